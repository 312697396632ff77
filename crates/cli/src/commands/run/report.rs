//! What each region of a started program really got.

use std::time::Duration;

use hugewise_evidence::process::{Machine, Part, RegionPages, Survey};
use hugewise_jvm::regions::Kind;
use hugewise_linux::{
    hugepages::{backing::Backing, pools, thp},
    root::Root,
    units::Bytes,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::assignment::{Assignment, fallbacks};
use crate::output::terminal::plain;

/// With less than this share on huge pages, a region that should be on them is said to have fallen back.
const ENOUGH: f64 = 0.9;

/// What was seen, schema `hugewise.run/1`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Report {
    /// `hugewise.run/1`.
    pub schema: String,
    /// The program's name.
    pub program: String,
    /// The process that the memory belongs to.
    pub pid: u32,
    /// Seconds from the start to the look.
    pub seconds: f64,
    /// Was it ready?
    pub outcome: Outcome,
    /// The backing that was chosen.
    #[schemars(with = "String")]
    pub backing: Backing,
    /// The backing that was chosen for memory outside of the heap.
    #[schemars(with = "Option<String>")]
    pub off_heap: Option<Backing>,
    /// Its memory; nothing where the program had ended.
    pub regions: Vec<Region>,
    /// What was made huge from outside.
    pub converted_bytes: Bytes,
    /// How long that took.
    pub converting_seconds: f64,
    /// Which regions got less than they should, why, and what to do next; and what could not be told.
    pub notes: Vec<String>,
}

/// Whether it was ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Its memory no longer grew.
    Ready,
    /// Its memory was still growing when the time was over.
    StillGrowing,
    /// The program ended before.
    Ended,
}

/// A region, its pages, and the backing it should have.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Region {
    /// `heap`, `code cache`, `outside heap`; `anonymous` of a program without a heap.
    #[serde(flatten)]
    pub pages: RegionPages,
    /// The share on huge pages, 0 to 1.
    pub coverage: Option<f64>,
    /// The backing that was asked for; null for code, which no choice of `run` is about.
    #[schemars(with = "Option<String>")]
    pub asked: Option<Backing>,
}

impl Report {
    /// Nothing looked at yet.
    pub fn new(assignment: &Assignment, pid: u32, after: Duration, outcome: Outcome) -> Report {
        Report {
            schema: "hugewise.run/1".to_owned(),
            program: assignment.program.clone(),
            pid,
            seconds: after.as_secs_f64(),
            outcome,
            backing: assignment.backing,
            off_heap: assignment.off_heap,
            regions: Vec::new(),
            converted_bytes: Bytes::ZERO,
            converting_seconds: 0.0,
            notes: Vec::new(),
        }
    }

    /// Says why a region got less than it should, as far as the machine tells.
    pub fn explain(&mut self, assignment: &Assignment, root: &Root, fallbacks_before: Option<u64>) {
        if assignment.max_heap.is_some() && !self.regions.iter().any(|region| region.pages.name == "heap") {
            self.notes.push("no mapping of it is known to be the heap".to_owned());
        }
        let short = |region: &&Region| region.coverage.is_some_and(|coverage| coverage < ENOUGH);
        for region in self.regions.iter().filter(short) {
            let why = match region.asked {
                None | Some(Backing::Base) => continue,
                Some(Backing::Thp) => thp_shortage(root, fallbacks_before),
                Some(Backing::Hugetlb(_) | Backing::Shm(_)) => pool_shortage(root),
            };
            self.notes.push(format!("{} got less than it should: {why}", region.pages.name));
        }
    }
}

fn thp_shortage(root: &Root, before: Option<u64>) -> String {
    let thp = thp::read(root);
    if let Some(("never", file)) = thp.pmd_enabled().map(|(word, file)| (word, file.display().to_string())) {
        return format!("/{file} is never; next: hugewise check");
    }
    let now = fallbacks(root);
    match before.zip(now).map(|(before, now)| now.saturating_sub(before)) {
        Some(0) => {
            "no huge page was refused meanwhile (thp_fault_fallback), so it lies in small pieces, or is \
                    not advised; next: hugewise inspect PID"
                .to_owned()
        }
        Some(times) => format!(
            "{times} times meanwhile no huge page could be made (thp_fault_fallback, of all programs): memory is \
             fragmented; next: hugewise check"
        ),
        None => "/proc/vmstat does not tell why; next: hugewise check".to_owned(),
    }
}

fn pool_shortage(root: &Root) -> String {
    let pools = pools::read(root).unwrap_or_default();
    let told: Vec<String> = pools
        .iter()
        .filter(|pool| pool.node.is_none())
        .map(|pool| {
            format!("{} of {} pages of {} are available", pool.available(), pool.total, pool.page_size)
        })
        .collect();
    format!("now {}; next: hugewise plan -- COMMAND", told.join(", "))
}

/// The regions of a process, and the pages of each.
pub fn regions(survey: &Survey, machine: &Machine, assignment: &Assignment) -> Vec<Region> {
    let is = |part: &Part, kind| part.of_jvm == Some(kind);
    let region = |name: &str, asked, belongs: &dyn Fn(&Part) -> bool| {
        let pages = survey.region(name, machine, belongs)?;
        Some(Region { coverage: pages.coverage(), pages, asked })
    };
    let regions = match assignment.max_heap {
        Some(_) => vec![
            region("heap", Some(assignment.backing), &|part| is(part, Kind::Heap)),
            region("code cache", None, &|part| is(part, Kind::CodeCache)),
            region("outside heap", assignment.off_heap, &is_outside),
        ],
        None => vec![region("anonymous", assignment.off_heap.or(Some(assignment.backing)), &is_outside)],
    };
    regions.into_iter().flatten().collect()
}

/// Memory of the program's own that is neither heap nor code.
pub fn is_outside(part: &Part) -> bool {
    use hugewise_evidence::process::Kind as Use;
    matches!(part.kind, Use::Anonymous | Use::Malloc | Use::Stack | Use::JvmLargePages)
        && !matches!(part.of_jvm, Some(Kind::Heap | Kind::CodeCache))
}

/// The report for people; nothing where the program ended before.
pub fn text(report: &Report) -> String {
    if report.outcome == Outcome::Ended {
        return String::new();
    }
    let growing = if report.outcome == Outcome::StillGrowing { ", still growing" } else { "" };
    let mut lines = vec![format!(
        "{} (pid {}) after {:.1} s{growing}:",
        plain(&report.program),
        report.pid,
        report.seconds
    )];
    for region in &report.regions {
        let pages = &region.pages;
        let coverage =
            region.coverage.map_or("?".to_owned(), |coverage| format!("{:.0}", (coverage * 100.0).floor()));
        let sizes: Vec<String> = pages.huge_page_sizes().map(|size| size.to_string()).collect();
        let on = if sizes.is_empty() { "huge".to_owned() } else { sizes.join(" and ") };
        let collapsed = match (region.asked, report.converted_bytes) {
            (Some(Backing::Thp), bytes) if bytes > Bytes::ZERO && pages.name != "heap" => {
                format!(" ({bytes} collapsed in {:.1} s)", report.converting_seconds)
            }
            _ => String::new(),
        };
        let resident = pages.resident_bytes.to_string();
        lines.push(format!("  {:<12} {resident:>9}, {coverage:>3} % on {on} pages{collapsed}", pages.name));
    }
    lines.extend(report.notes.iter().map(|note| format!("  {note}")));
    lines.iter().map(|line| format!("hugewise: {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assignment(max_heap: Option<Bytes>) -> Assignment {
        Assignment {
            program: "java".to_owned(),
            backing: Backing::Thp,
            off_heap: Some(Backing::Thp),
            max_heap,
            convert: false,
            behind_wrapper: false,
            patience: Duration::from_secs(1),
            json: false,
        }
    }

    #[test]
    fn a_program_that_has_ended_is_not_spoken_of() {
        let report = Report::new(&assignment(None), 1, Duration::ZERO, Outcome::Ended);
        assert_eq!(text(&report), "");
    }
}
