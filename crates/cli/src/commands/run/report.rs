//! What each region of a started program really got.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use hugewise_linux::{
    hugepages::{backing::Backing, pools, thp},
    proc::smaps::{self, Vma},
    root::Root,
    units::{Bytes, PageSize},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::observer::Assignment;
use crate::output::terminal::plain;

/// With less than this share on huge pages, a region that should be on them is said to have fallen back.
const ENOUGH: f64 = 0.9;
/// Where heaps with compressed pointers end.
const COMPRESSED_ENDS: [u64; 2] = [1 << 32, 32 << 30];

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

/// A region, and the pages it got.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Region {
    /// `heap`, `code`, `outside heap`; `anonymous` of a program without a heap.
    pub name: String,
    /// What is present.
    pub resident_bytes: Bytes,
    /// Of that, what is on huge pages, by their size in bytes (`"2MiB": 1048576`).
    pub huge_bytes: BTreeMap<String, Bytes>,
    /// The share on huge pages; nothing where nothing is resident.
    pub share: Option<f64>,
    /// The backing it should have.
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
        if assignment.max_heap.is_some() && !self.regions.iter().any(|region| region.name == "heap") {
            self.notes.push("which of its mappings is the heap could not be told".to_owned());
        }
        for region in self.regions.iter().filter(|region| region.share.is_some_and(|share| share < ENOUGH)) {
            let why = match region.asked {
                None | Some(Backing::Base) => continue,
                Some(Backing::Thp) => thp_shortage(root, fallbacks_before),
                Some(Backing::Hugetlb(_) | Backing::Shm(_)) => pool_shortage(root),
            };
            self.notes.push(format!("{} got less than it should: {why}", region.name));
        }
    }
}

fn thp_shortage(root: &Root, before: Option<u64>) -> String {
    let thp = thp::read(root);
    if let Some(("never", file)) = thp.pmd_enabled().map(|(word, file)| (word, file.display().to_string())) {
        return format!("/{file} is never; next: hugewise check");
    }
    let now = super::observer::fallbacks(root);
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

/// Where the heap lies, which is at most so large, for want of the JVM's own word: ZGC names it, others
/// put it where compressed pointers reach, or else it is a run of mappings of that size.
pub fn heap(vmas: &[Vma], max: Bytes) -> Option<Range<u64>> {
    let named: Vec<&Vma> = vmas.iter().filter(|vma| vma.name.contains("java_heap")).collect();
    if let (Some(first), Some(last)) = (named.first(), named.last()) {
        return Some(first.addresses.start..last.addresses.end);
    }
    let is_heap = |vma: &&Vma| (vma.is_anonymous() || vma.is_hugetlb) && !is_code(vma);
    for end in COMPRESSED_ENDS {
        let start = end.saturating_sub(max.0);
        if vmas.iter().filter(is_heap).any(|vma| vma.addresses.start == start) {
            return Some(start..end);
        }
    }
    let mut runs: Vec<Range<u64>> = Vec::new();
    for vma in vmas.iter().filter(is_heap) {
        match runs.last_mut() {
            Some(run) if run.end == vma.addresses.start => run.end = vma.addresses.end,
            _ => runs.push(vma.addresses.clone()),
        }
    }
    // A run of other memory of that size would have to be as large, and not an eighth larger.
    let of_that_size =
        |run: &Range<u64>| (max.0..=max.0.saturating_add(max.0 / 8)).contains(&(run.end - run.start));
    let run = runs.into_iter().find(of_that_size)?;
    Some(run.start..run.start.saturating_add(max.0))
}

/// Memory that is neither a file's nor the heap's nor code.
pub fn outside<'a>(vmas: &'a [Vma], heap: Option<&'a Range<u64>>) -> impl Iterator<Item = &'a Vma> {
    let in_heap = move |vma: &&Vma| heap.is_some_and(|heap| heap.contains(&vma.addresses.start));
    vmas.iter().filter(move |vma| (vma.is_anonymous() || vma.is_hugetlb) && !is_code(vma) && !in_heap(vma))
}

fn is_code(vma: &Vma) -> bool {
    vma.permissions.contains('x')
}

/// The regions, and the pages that each of them got.
pub fn regions(
    vmas: &[Vma],
    heap: Option<&Range<u64>>,
    thp_size: Option<PageSize>,
    assignment: &Assignment,
) -> Vec<Region> {
    let region = |name: &str, of: Vec<&Vma>, asked: Option<Backing>| {
        let coverage = smaps::coverage(of, thp_size);
        let huge = coverage.huge.iter().map(|(size, bytes)| (size.to_string(), *bytes));
        Region {
            name: name.to_owned(),
            resident_bytes: coverage.resident,
            huge_bytes: huge.collect(),
            share: coverage.share(),
            asked,
        }
    };
    let mut regions = Vec::new();
    if let Some(heap) = heap {
        let inside = vmas.iter().filter(|vma| heap.contains(&vma.addresses.start) && !is_code(vma)).collect();
        regions.push(region("heap", inside, Some(assignment.backing)));
    }
    if assignment.max_heap.is_some() {
        let code = |vma: &&Vma| {
            is_code(vma) && (vma.is_anonymous() || vma.is_hugetlb) && !vma.name.starts_with("[v")
        };
        regions.push(region("code", vmas.iter().filter(code).collect(), None));
        regions.push(region("outside heap", outside(vmas, heap).collect(), assignment.off_heap));
    } else {
        let asked = assignment.off_heap.or(Some(assignment.backing));
        regions.push(region("anonymous", outside(vmas, None).collect(), asked));
    }
    regions.retain(|region| region.resident_bytes > Bytes::ZERO);
    regions
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
        let share = region.share.map_or("?".to_owned(), |share| format!("{:.0}", (share * 100.0).floor()));
        let sizes: Vec<&str> = region.huge_bytes.keys().map(String::as_str).collect();
        let pages = if sizes.is_empty() { "huge".to_owned() } else { sizes.join(" and ") };
        let converted = match (region.asked, report.converted_bytes) {
            (Some(Backing::Thp), bytes) if bytes > Bytes::ZERO && region.name != "heap" => {
                format!(" ({bytes} made huge in {:.1} s)", report.converting_seconds)
            }
            _ => String::new(),
        };
        let resident = region.resident_bytes.to_string();
        lines.push(format!("  {:<12} {resident:>9}, {share:>3} % on {pages} pages{converted}", region.name));
    }
    lines.extend(report.notes.iter().map(|note| format!("  {note}")));
    lines.iter().map(|line| format!("hugewise: {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vma(addresses: Range<u64>, permissions: &str, name: &str) -> Vma {
        let rss = Bytes(addresses.end - addresses.start);
        Vma { addresses, permissions: permissions.to_owned(), name: name.to_owned(), rss, ..Vma::default() }
    }

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
    fn the_heap_is_found_below_what_compressed_pointers_reach_or_by_its_size() {
        let max = Bytes(256 << 20);
        let start = (1 << 32) - max.0;
        let below = [vma(start..start + 100, "rw-p", ""), vma(start + 100..1 << 32, "---p", "")];
        assert_eq!(heap(&below, max), Some(start..1 << 32));
        let high = 0x7f00_0000_0000;
        let far = [vma(high..high + 4096, "rw-p", ""), vma(high + 4096..high + max.0, "---p", "")];
        assert_eq!(heap(&far, max), Some(high..high + max.0));
        assert_eq!(heap(&far, Bytes(1 << 30)), None);
        let zgc = [vma(0x400_0000_0000..0x400_1000_0000, "rw-s", "/memfd:java_heap (deleted)")];
        assert_eq!(heap(&zgc, max), Some(0x400_0000_0000..0x400_1000_0000));
    }

    #[test]
    fn each_region_has_what_is_its_own() {
        let max = Bytes(256 << 20);
        let start = (1 << 32) - max.0;
        let mut all = vec![
            vma(start..1 << 32, "rw-p", ""),
            vma(0x7000_0000_0000..0x7000_0020_0000, "rwxp", ""),
            vma(0x7100_0000_0000..0x7100_0040_0000, "rw-p", ""),
            vma(0x7200_0000_0000..0x7200_0010_0000, "r-xp", "/lib/libc.so.6"),
            vma(0x7300_0000_0000..0x7300_0000_1000, "r-xp", "[vdso]"),
        ];
        all[2].thp = Bytes(2 << 20);
        let heap = heap(&all, max);
        let seen = regions(&all, heap.as_ref(), "2m".parse().ok(), &assignment(Some(max)));
        let shares: Vec<_> = seen.iter().map(|region| (region.name.as_str(), region.share)).collect();
        assert_eq!(shares, [("heap", Some(0.0)), ("code", Some(0.0)), ("outside heap", Some(0.5))]);
        assert_eq!(seen[1].resident_bytes, Bytes(2 << 20));
        let native = regions(&all, None, "2m".parse().ok(), &assignment(None));
        assert_eq!((native.len(), native[0].name.as_str()), (1, "anonymous"));
    }

    #[test]
    fn a_program_that_has_ended_is_not_spoken_of() {
        let report = Report::new(&assignment(None), 1, Duration::ZERO, Outcome::Ended);
        assert_eq!(text(&report), "");
    }
}
