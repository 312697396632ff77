//! The observer's report: coverage of each region of the program.

use std::time::Duration;

use hugewise_evidence::process::{MachineState, Part, RegionPages, Survey};
use hugewise_jvm::regions::RegionKind;
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

use super::assignment::{ObserverTask, fallbacks};
use crate::output::terminal::plain;

/// Coverage, 0 to 1, below which a region that should be on huge pages gets a note.
const MIN_COVERAGE: f64 = 0.9;

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
    /// Regions with too little coverage, with cause and action; and failed readings.
    pub notes: Vec<String>,
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

/// A region, its pages, and the backing it should have.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RunRegion {
    /// `heap`, `code cache`, `outside heap`; `anonymous` of a program without a heap; `heap of PID` of the other JVMs
    /// of a script.
    #[serde(flatten)]
    pub pages: RegionPages,
    /// Share of the resident bytes on huge pages, 0 to 1; null if nothing is resident.
    pub coverage: Option<f64>,
    /// Requested backing; null for the code cache, for which `run` requests none.
    #[schemars(with = "Option<String>")]
    #[serde(rename = "requested_backing")]
    pub asked: Option<Backing>,
}

impl RunReport {
    pub fn new(assignment: &ObserverTask, pid: u32, after: Duration, outcome: RunOutcome) -> RunReport {
        RunReport {
            schema: "hugewise.run/2".to_owned(),
            program: assignment.program.clone(),
            pid,
            seconds: after.as_secs_f64(),
            lasted_seconds: None,
            outcome,
            backing: assignment.backing,
            off_heap: assignment.off_heap,
            regions: Vec::new(),
            collapsed_bytes: Bytes::ZERO,
            collapse_seconds: 0.0,
            notes: Vec::new(),
        }
    }

    /// Adds a note with the cause for each region with too little coverage.
    pub fn explain(&mut self, assignment: &ObserverTask, root: &Root, fallbacks_before: Option<u64>) {
        if assignment.max_heap.is_some() && !self.regions.iter().any(|region| region.pages.name == "heap") {
            self.notes.push("the heap was not found among the mappings of the process".to_owned());
        }
        let short = |region: &&RunRegion| region.coverage.is_some_and(|coverage| coverage < MIN_COVERAGE);
        for region in self.regions.iter().filter(short) {
            let why = match region.asked {
                None | Some(Backing::Base) => continue,
                Some(Backing::Thp) => {
                    thp_shortage(root, fallbacks_before, self.lasted_seconds.is_none().then_some(self.pid))
                }
                Some(Backing::Hugetlb(_) | Backing::Shm(_)) => pool_shortage(root, assignment),
            };
            self.notes.push(format!("{} has too little coverage: {why}", region.pages.name));
        }
    }
}

/// `pid`: of the program, if it still runs.
fn thp_shortage(root: &Root, before: Option<u64>, pid: Option<u32>) -> String {
    let thp = thp::read(root);
    if let Some(("never", file)) = thp.pmd_enabled() {
        return format!("THP mode is never (/{}); next: hugewise check", file.display());
    }
    let now = fallbacks(root);
    match before.zip(now).map(|(before, now)| now.saturating_sub(before)) {
        Some(0) => format!(
            "no huge-page allocation failed since the start (thp_fault_fallback), so its mappings are too small or \
             lack MADV_HUGEPAGE{}",
            pid.map_or_else(String::new, |pid| format!("; next: hugewise inspect {pid}"))
        ),
        Some(times) => format!(
            "{times} huge-page allocations failed since the start (thp_fault_fallback, of all programs): memory is \
             fragmented; next: hugewise check"
        ),
        None => {
            "the cause is unknown: /proc/vmstat has no thp_fault_fallback; next: hugewise check".to_owned()
        }
    }
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

/// The regions of a process, and the pages of each.
pub fn regions(survey: &Survey, machine: &MachineState, assignment: &ObserverTask) -> Vec<RunRegion> {
    let is = |part: &Part, kind| part.of_jvm == Some(kind);
    let region = |name: &str, asked, belongs: &dyn Fn(&Part) -> bool| {
        let pages = survey.region(name, machine, belongs)?;
        Some(RunRegion { coverage: pages.coverage(), pages, asked })
    };
    let has_heap = survey.parts.iter().any(|(part, _)| is(part, RegionKind::Heap));
    let regions = match has_heap || assignment.max_heap.is_some() {
        true => vec![
            region("heap", Some(assignment.backing), &|part| is(part, RegionKind::Heap)),
            region("code cache", None, &|part| is(part, RegionKind::CodeCache)),
            region("outside heap", assignment.off_heap, &is_outside_heap),
        ],
        false if assignment.script => vec![region("anonymous", assignment.off_heap, &is_outside_heap)],
        false => {
            vec![region("anonymous", assignment.off_heap.or(Some(assignment.backing)), &is_outside_heap)]
        }
    };
    regions.into_iter().flatten().collect()
}

/// The heap of another process that a script started, with the process ID in its name; `None` if that process is not a
/// JVM.
pub fn heap_of_other(
    survey: &Survey,
    machine: &MachineState,
    pid: u32,
    assignment: &ObserverTask,
) -> Option<RunRegion> {
    let is_heap = |part: &Part| part.of_jvm == Some(RegionKind::Heap);
    let pages = survey.region(&format!("heap of {pid}"), machine, is_heap)?;
    Some(RunRegion { coverage: pages.coverage(), pages, asked: Some(assignment.backing) })
}

/// Whether a part is memory outside of heap and code cache. The CDS archive is mapped from a file.
pub fn is_outside_heap(part: &Part) -> bool {
    use hugewise_evidence::process::Kind as Use;
    matches!(part.kind, Use::Anonymous | Use::Malloc | Use::Stack | Use::JvmLargePages)
        && !matches!(part.of_jvm, Some(RegionKind::Heap | RegionKind::CodeCache | RegionKind::Cds))
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
            format!("ended after {lasted:.2} s; its memory was fullest in the sample at {seconds:.2} s:")
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
        lines.push(format!("  {:<12} {resident:>9}, {coverage:>3} % on {on} pages{collapsed}", pages.name));
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
            script: false,
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

    #[test]
    fn memory_outside_of_the_heap_is_anonymous() {
        use hugewise_evidence::process::Kind;
        let is = |kind, of_jvm| is_outside_heap(&Part { addresses: 0..1, name: String::new(), kind, of_jvm });
        assert!(is(Kind::Malloc, None) && is(Kind::Anonymous, Some(RegionKind::Metaspace)));
        assert!(!is(Kind::Anonymous, Some(RegionKind::Cds)), "mapped from a file");
        assert!(!is(Kind::JvmLargePages, Some(RegionKind::Heap)) && !is(Kind::File, None));
    }
}
