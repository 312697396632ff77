//! The task that `hugewise run` gives to the observer of its program.

use std::time::Duration;

use hugewise_linux::{hugepages::backing::Backing, proc::vmstat::VmStat, root::Root, units::Bytes};
use serde::{Deserialize, Serialize};

/// What it is to look at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// The program's name.
    pub program: String,
    /// The backing that was chosen for its heap, or for all of it if it has none.
    pub backing: Backing,
    /// The backing that was chosen for memory outside of the heap.
    pub off_heap: Option<Backing>,
    /// The heap at its largest; nothing if it is no JVM.
    pub max_heap: Option<Bytes>,
    /// Make what is not huge so.
    pub convert: bool,
    /// The program may be a child of the process: it was started through another one.
    pub behind_wrapper: bool,
    /// Report after so long, ready or not.
    pub patience: Duration,
    /// Write JSON to standard output instead of text to standard error.
    pub json: bool,
}

/// Page faults, of the whole machine, for which no huge page could be made.
pub(super) fn fallbacks(root: &Root) -> Option<u64> {
    VmStat::read(root).ok()?.get("thp_fault_fallback")
}
