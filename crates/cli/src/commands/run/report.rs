//! The observer's report: coverage of each region of the program.

use std::time::Duration;

use hugewise_evidence::process::RegionPages;
use hugewise_launch::proof::Taken;
use hugewise_linux::{
    hugepages::{
        backing::Backing,
        pools::{self, Pool},
        thp,
    },
    root::Root,
    units::Bytes,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    assignment::{ObserverTask, fallbacks},
    regions::{Found, RunRegion},
};
use crate::output::terminal::plain;

/// Coverage, 0 to 1, below which a region that should be on huge pages gets a note.
const MIN_COVERAGE: f64 = 0.9;
/// Huge pages that a region must fill for a verdict: of a smaller one, its beginning and end are a large part.
const MIN_PAGES: u64 = 4;

/// The observer's report, schema `hugewise.run/2`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RunReport {
    /// `hugewise.run/2`.
    pub schema: String,
    /// Name of the program.
    pub program: String,
    /// ID of the process that has the memory.
    pub pid: u32,
    /// Time from the start to the sample.
    pub seconds: f64,
    /// Time from the start to the end of the program; null if it was running at the report.
    pub lasted_seconds: Option<f64>,
    /// Readings of the resident bytes until the end of the program; 0 if it was running at the report.
    pub readings: u32,
    /// Whether the program was ready.
    pub outcome: RunOutcome,
    /// Backing chosen for the heap, or for all memory if the program is not a JVM.
    #[schemars(with = "String")]
    pub backing: Backing,
    /// Backing chosen for memory outside of the heap; null if unchanged.
    #[schemars(with = "Option<String>")]
    #[serde(rename = "off_heap_backing")]
    pub off_heap: Option<Backing>,
    /// Regions of the program; empty if it ended before the first sample.
    pub regions: Vec<RunRegion>,
    /// Bytes that the observer collapsed.
    pub collapsed_bytes: Bytes,
    /// Duration of the collapse; 0 if there was none.
    pub collapse_seconds: f64,
    /// Whether the JVM with most memory took the options that were passed, by its own flags. False if the options were
    /// for JVMs only, and none was found. Null if the flags could not be read.
    pub options_taken: Option<bool>,
    /// Whether the regions for which a backing was requested have it, to 90 % at least; null if that could not be read,
    /// or if they are smaller than four huge pages.
    pub is_covered: Option<bool>,
    /// Regions with too little coverage, with cause and action; and failed readings.
    pub notes: Vec<String>,
    /// What the sample found, which the other fields show.
    #[serde(skip)]
    pub found: Found,
}

/// Whether the program has what was requested. The numbers are the exit statuses of an observer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// It has it, or that is unknown.
    #[default]
    NotShort = 0,
    /// A region is on other pages.
    TooFewPages = 3,
    /// The JVM with most memory did not take the options, or no JVM was found.
    OptionsNotTaken = 4,
}

impl Verdict {
    pub fn of_status(status: i32) -> Option<Verdict> {
        [Verdict::NotShort, Verdict::TooFewPages, Verdict::OptionsNotTaken]
            .into_iter()
            .find(|verdict| *verdict as i32 == status)
    }
}

/// Whether the program was ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// The memory of the program no longer grew.
    Ready,
    /// The memory of the program was still growing at the end of `--within`.
    StillGrowing,
    /// The program has ended; the sample is the fullest one, or with `--exact` that at the exit.
    Ended,
}

impl RunReport {
    pub fn new(assignment: &ObserverTask, pid: u32, after: Duration, outcome: RunOutcome) -> RunReport {
        RunReport {
            schema: "hugewise.run/2".to_owned(),
            program: assignment.program.clone(),
            pid,
            seconds: after.as_secs_f64(),
            lasted_seconds: None,
            readings: 0,
            outcome,
            backing: assignment.backing,
            off_heap: assignment.off_heap,
            regions: Vec::new(),
            collapsed_bytes: Bytes::ZERO,
            collapse_seconds: 0.0,
            options_taken: None,
            is_covered: None,
            notes: Vec::new(),
            found: Found::default(),
        }
    }

    /// Takes the readings of a sample.
    pub fn take(&mut self, found: &Found) {
        self.regions = found.regions.clone();
        self.found = found.clone();
        // A launcher has become another program. The kernel's name has 15 bytes at most.
        if let Some(name) = found.name.as_ref().filter(|name| !self.program.starts_with(name.as_str())) {
            self.program.clone_from(name);
        }
    }

    pub fn verdict(&self) -> Verdict {
        match (self.options_taken, self.is_covered) {
            (Some(false), _) => Verdict::OptionsNotTaken,
            (_, Some(false)) => Verdict::TooFewPages,
            _ => Verdict::NotShort,
        }
    }

    /// Whether the JVM with most memory took the options; others may be those of a launcher. False if the options were
    /// for JVMs only, and none was found.
    fn are_options_taken(&self, assignment: &ObserverTask) -> Option<bool> {
        assignment.passed.as_ref()?;
        match self.found.jvms.first() {
            Some((_, Taken::Yes)) => Some(true),
            Some((_, Taken::Unknown)) => None,
            Some(_) => Some(false),
            None => self.lacks_jvm(assignment).then_some(false),
        }
    }

    fn lacks_jvm(&self, assignment: &ObserverTask) -> bool {
        let has_heap = self.regions.iter().any(|region| region.pages.name.starts_with("heap"));
        assignment.is_launcher() && assignment.for_jvms && !self.regions.is_empty() && !has_heap
    }

    fn covers(&self) -> Option<bool> {
        let least = Bytes(MIN_PAGES * self.found.huge_page?.bytes().0);
        let asked =
            self.regions.iter().filter(|region| region.asked.is_some_and(|asked| asked != Backing::Base));
        let mut large = asked.filter(|region| region.pages.resident_bytes >= least).peekable();
        large.peek()?;
        Some(large.all(|region| region.coverage.is_none_or(|coverage| coverage >= MIN_COVERAGE)))
    }

    /// Adds a note with the cause for each region with too little coverage.
    pub fn explain(&mut self, assignment: &ObserverTask, root: &Root, fallbacks_before: Option<u64>) {
        if assignment.max_heap.is_some() && !self.regions.iter().any(|region| region.pages.name == "heap") {
            self.notes.push("the heap was not found among the mappings of the process".to_owned());
        }
        self.options_taken = self.are_options_taken(assignment);
        self.is_covered = self.covers();
        let passed = assignment.passed.iter();
        let shortcomings: Vec<String> = passed
            .flat_map(|passed| {
                self.found.jvms.iter().filter_map(|(pid, taken)| passed.shortcoming(taken, *pid))
            })
            .collect();
        if self.lacks_jvm(assignment) {
            self.notes.push(format!(
                "no JVM was found among the processes of {}: options were passed for JVMs only, and other memory was \
                 left as it is",
                assignment.program
            ));
        }
        let explains_heap = !shortcomings.is_empty();
        self.notes.extend(shortcomings);
        let short = |region: &&RunRegion| {
            let is_heap = region.pages.name.starts_with("heap");
            region.coverage.is_some_and(|coverage| coverage < MIN_COVERAGE) && !(is_heap && explains_heap)
        };
        for region in self.regions.iter().filter(short) {
            let why = match region.asked {
                None | Some(Backing::Base) => continue,
                Some(Backing::Thp) => {
                    let pid = self.lasted_seconds.is_none().then_some(self.pid);
                    thp_shortage(root, fallbacks_before, &region.pages, pid)
                }
                Some(Backing::Hugetlb(_) | Backing::Shm(_)) => pool_shortage(root, assignment),
            };
            self.notes.push(format!("{} has too little coverage: {why}", region.pages.name));
        }
    }
}

/// `pid`: of the program, if it still runs.
fn thp_shortage(root: &Root, before: Option<u64>, pages: &RegionPages, pid: Option<u32>) -> String {
    let thp = thp::read(root);
    if let Some(("never", file)) = thp.pmd_enabled() {
        return format!("THP mode is never (/{}); next: hugewise check", file.display());
    }
    let now = fallbacks(root);
    match before.zip(now).map(|(before, now)| now.saturating_sub(before)) {
        Some(0) => {
            let next = pid.map_or_else(String::new, |pid| format!("; next: hugewise inspect {pid}"));
            format!("{}{next}", without_failure(pages))
        }
        Some(times) => format!(
            "{times} huge-page allocations failed since the start (thp_fault_fallback, of all programs): memory is \
             fragmented; next: hugewise check"
        ),
        None => {
            "the cause is unknown: /proc/vmstat has no thp_fault_fallback; next: hugewise check".to_owned()
        }
    }
}

/// Why memory is on base pages although no allocation of a huge page failed.
fn without_failure(pages: &RegionPages) -> String {
    let never = pages.resident_bytes.saturating_sub(pages.suitable_bytes);
    let missing = pages.suitable_bytes.saturating_sub(pages.huge());
    let never = (never > Bytes::ZERO)
        .then(|| format!("{never} are in no aligned range of a huge page, so they cannot be on one"));
    let missing = (missing > Bytes::ZERO).then(|| {
        format!(
            "{missing} could be on huge pages, and no allocation of one failed since the start (thp_fault_fallback): \
             they were not requested, or the program gave back a part of each"
        )
    });
    never.into_iter().chain(missing).collect::<Vec<_>>().join("; ")
}

fn pool_shortage(root: &Root, assignment: &ObserverTask) -> String {
    let pools = pools::read(root).unwrap_or_default();
    let state = |pool: &Pool| {
        format!("{} of {} pages of {} are available", pool.available(), pool.total, pool.page_size)
    };
    let reported: Vec<String> = pools.iter().filter(|pool| pool.node.is_none()).map(state).collect();
    let program = match assignment.is_service {
        true => format!("--pid {}", assignment.program),
        false => "-- COMMAND".to_owned(),
    };
    format!("{} now; next: hugewise plan {program}", reported.join(", "))
}

/// The report as text.
pub fn text(report: &RunReport) -> String {
    let (seconds, lasted) = (report.seconds, report.lasted_seconds.unwrap_or(report.seconds));
    let when = match report.outcome {
        RunOutcome::Ready => format!("after {seconds:.1} s:"),
        RunOutcome::StillGrowing => format!("after {seconds:.1} s, still growing:"),
        RunOutcome::Ended if report.regions.is_empty() => format!(
            "ended after {lasted:.2} s, before its memory was read: its coverage is unknown; --exact reads it at \
             the exit"
        ),
        RunOutcome::Ended if seconds >= lasted => format!("at its exit after {lasted:.2} s:"),
        RunOutcome::Ended => {
            format!(
                "ended after {lasted:.2} s; its memory was fullest at {seconds:.2} s (readings: {}):",
                report.readings
            )
        }
    };
    let mut lines = vec![format!("{} (pid {}) {when}", plain(&report.program), report.pid)];
    for region in &report.regions {
        let pages = &region.pages;
        let coverage =
            region.coverage.map_or("?".to_owned(), |coverage| format!("{:.0}", (coverage * 100.0).floor()));
        let sizes: Vec<String> = pages.huge_page_sizes().map(|size| size.to_string()).collect();
        let on = if sizes.is_empty() { "huge".to_owned() } else { sizes.join(" and ") };
        let collapsed = match (region.asked, report.collapsed_bytes) {
            (Some(Backing::Thp), bytes) if bytes > Bytes::ZERO && pages.name != "heap" => {
                format!(" ({bytes} collapsed in {:.1} s)", report.collapse_seconds)
            }
            _ => String::new(),
        };
        let resident = pages.resident_bytes.to_string();
        let suitable = match pages.suitable_bytes {
            suitable if suitable < pages.resident_bytes => format!(", {suitable} of it can be huge"),
            _ => String::new(),
        };
        lines.push(format!(
            "  {:<12} {resident:>9}, {coverage:>3} % on {on} pages{suitable}{collapsed}",
            pages.name
        ));
    }
    lines.extend(report.notes.iter().map(|note| format!("  {note}")));
    lines.iter().map(|line| format!("hugewise: {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::run::assignment::ReportPlace;

    fn assignment(max_heap: Option<Bytes>) -> ObserverTask {
        ObserverTask {
            pid: 1,
            program: "java".to_owned(),
            backing: Backing::Thp,
            off_heap: Some(Backing::Thp),
            max_heap,
            for_jvms: false,
            passed: None,
            collapse: false,
            behind_wrapper: false,
            patience: Duration::from_secs(1),
            exact: false,
            is_service: false,
            report: ReportPlace::Text,
        }
    }

    #[test]
    fn a_program_that_ended_before_a_sample_has_a_report_without_figures() {
        let report = RunReport::new(&assignment(None), 1, Duration::ZERO, RunOutcome::Ended);
        assert!(text(&report).contains("its coverage is unknown; --exact"), "{}", text(&report));
    }
}
