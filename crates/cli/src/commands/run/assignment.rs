//! The assignment of the observer that `hugewise run` starts.

use std::time::Duration;

use hugewise_launch::proof::PassedOptions;
use hugewise_linux::{hugepages::backing::Backing, proc::vmstat::VmStat, root::Root, units::Bytes};
use serde::{Deserialize, Serialize};

/// The program to observe, and the backings to check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObserverTask {
    /// ID of the process, whose pidfd is standard input.
    pub pid: u32,
    /// Name of the program.
    pub program: String,
    /// Backing chosen for the heap, or for all memory if the program is not a JVM.
    pub backing: Backing,
    /// Backing chosen for memory outside of the heap; `None` if unchanged.
    pub off_heap: Option<Backing>,
    /// Largest heap of the JVM of a `java` command line; `None` for other programs.
    pub max_heap: Option<Bytes>,
    /// The backing is for the heaps of JVMs only, which the program is or starts.
    pub for_jvms: bool,
    /// The options that were passed for JVMs.
    pub passed: Option<PassedOptions>,
    /// Collapse memory outside of the heap once the program is ready.
    pub collapse: bool,
    /// The program was started through a wrapper and may be a child of the process.
    pub behind_wrapper: bool,
    /// Longest time from the start to the report, even if the program is not ready.
    pub patience: Duration,
    /// Trace the process, and sample its memory at its exit.
    pub exact: bool,
    /// The program is the systemd service of this name: end after the first report.
    pub is_service: bool,
    /// Where the report goes.
    pub report: ReportPlace,
}

impl ObserverTask {
    /// Whether another program than `java` was started, which may start several JVMs.
    pub fn is_launcher(&self) -> bool {
        self.max_heap.is_none() && self.passed.is_some()
    }
}

/// Where the observer writes its reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReportPlace {
    /// Text to standard error.
    Text,
    /// JSON to standard output, a file of its own: a later report replaces an earlier one.
    File,
    /// JSON to standard output, which may contain other text.
    Stream,
}

/// Failed huge-page allocations of the whole machine since boot; `None` if not reported.
pub(super) fn fallbacks(root: &Root) -> Option<u64> {
    VmStat::read(root).ok()?.get("thp_fault_fallback")
}
