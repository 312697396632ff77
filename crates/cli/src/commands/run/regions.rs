//! The regions of the program that `run` started, in a sample.

use hugewise_evidence::process::{MachineState, Part, RegionPages, Survey};
use hugewise_jvm::regions::RegionKind;
use hugewise_launch::proof::Taken;
use hugewise_linux::{hugepages::backing::Backing, units::PageSize};
use schemars::JsonSchema;
use serde::Serialize;

use super::assignment::ObserverTask;

/// A region, its pages, and the backing it should have.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RunRegion {
    /// `heap`, `code cache`, `outside heap`; `anonymous` of a program without a heap; `heap of PID` of the other JVMs
    /// of a program that starts several.
    #[serde(flatten)]
    pub pages: RegionPages,
    /// Share of the resident bytes on huge pages, 0 to 1; null if nothing is resident.
    pub coverage: Option<f64>,
    /// Requested backing; null for the code cache, for which `run` requests none.
    #[schemars(with = "Option<String>")]
    #[serde(rename = "requested_backing")]
    pub asked: Option<Backing>,
}

/// The regions of a sample, and whether its JVMs took the options that were passed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// The present name of the process, by the kernel; `None` if it could not be read.
    pub name: Option<String>,
    pub regions: Vec<RunRegion>,
    /// By process, the one with most memory first; without the JVMs whose heap does not exist yet.
    pub jvms: Vec<(u32, Taken)>,
    /// The PMD size.
    pub huge_page: Option<PageSize>,
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
        false if assignment.for_jvms => vec![region("anonymous", assignment.off_heap, &is_outside_heap)],
        false => {
            vec![region("anonymous", assignment.off_heap.or(Some(assignment.backing)), &is_outside_heap)]
        }
    };
    regions.into_iter().flatten().collect()
}

/// The heap of another process that the program started, with the process ID in its name; `None` if that process is not a
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
    part.is_anonymous()
        && !matches!(part.of_jvm, Some(RegionKind::Heap | RegionKind::CodeCache | RegionKind::Cds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_outside_of_the_heap_is_anonymous() {
        use hugewise_evidence::process::Kind;
        let is = |kind, of_jvm| is_outside_heap(&Part { addresses: 0..1, name: String::new(), kind, of_jvm });
        assert!(is(Kind::Malloc, None) && is(Kind::Anonymous, Some(RegionKind::Metaspace)));
        assert!(!is(Kind::Anonymous, Some(RegionKind::Cds)), "mapped from a file");
        assert!(!is(Kind::JvmLargePages, Some(RegionKind::Heap)) && !is(Kind::File, None));
    }
}
