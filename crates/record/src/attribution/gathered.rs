//! A recording in memory, ordered by time.

use std::collections::BTreeMap;

use hugewise_jvm::threads::Role;

use super::{
    intervals::Stall,
    log::{LogSource, LoggedPause, Safepoint},
    room::Room,
};
use crate::recording::{Ending, Evidence, Header, Memory, Process};

/// The content of a recording.
#[derive(Debug)]
pub struct RecordingData {
    pub header: Header,
    /// How the file ends; `None` if it was not read to its end.
    pub ending: Option<Ending>,
    /// Latest time in the recording, in nanoseconds of CLOCK_MONOTONIC.
    pub last_ns: u64,
    /// Recorded processes by PID, with their last command line.
    pub processes: BTreeMap<u32, Process>,
    /// All threads that occur in the recording.
    pub threads: Vec<Thread>,
    /// Waits of each thread, ordered by time; the index is that of [`RecordingData::threads`].
    pub stalls: Vec<Vec<Stall>>,
    /// Number of waits whose begin or end is missing, so that their duration is unknown.
    pub open_stalls: u64,
    /// Attempts to allocate a huge page, ordered by time.
    pub huge_pages: Vec<HugePageAttempt>,
    /// Usage of threads between two samples.
    pub steps: Vec<UsageStep>,
    /// Pauses, ordered by time.
    pub pauses: Vec<LoggedPause>,
    /// Safepoints, ordered by time.
    pub safepoints: Vec<Safepoint>,
    /// The JVM logs that pauses and safepoints were read from.
    pub logs: Vec<LogSource>,
    /// Memory of the processes over time.
    pub memory: Vec<Memory>,
    /// Growth of machine-wide counters during the recording.
    pub machine: BTreeMap<String, u64>,
    /// Lost evidence: number of counted losses, and whether there were losses without a count.
    pub lost: BTreeMap<Evidence, (u64, bool)>,
    pub notes: Vec<String>,
    /// Number of unreadable lines, and the error of the first.
    pub unread: (u64, Option<String>),
    /// Memory left for the attribution, and the number of lines that were not kept.
    pub room: Room,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    pub tid: u32,
    /// PID of its process; `None` if unknown.
    pub pid: Option<u32>,
    /// Last name; `None` if the thread exited before it could be read.
    pub name: Option<String>,
    /// Its role in a JVM.
    pub role: Role,
    /// Direct compaction and direct reclaim by delay accounting, in nanoseconds; `None` without delay
    /// accounting.
    pub accounted: Option<(u64, u64)>,
}

/// An attempt to allocate a huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePageAttempt {
    /// Time of the result, in nanoseconds of CLOCK_MONOTONIC.
    pub ns: u64,
    /// Index into [`RecordingData::threads`].
    pub thread: usize,
    /// Whether the thread got the page.
    pub got: bool,
}

/// Usage of a thread between two samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageStep {
    /// Index into [`RecordingData::threads`].
    pub thread: usize,
    /// Time of the previous sample, in nanoseconds of CLOCK_MONOTONIC.
    pub from_ns: u64,
    /// Time of this sample, in nanoseconds of CLOCK_MONOTONIC.
    pub to_ns: u64,
    /// CPU time in the kernel, in nanoseconds, accounted in ticks.
    pub sys_ns: u64,
    /// Page faults without I/O, of base pages and huge pages.
    pub minor_faults: u64,
    /// Direct compaction by delay accounting, in nanoseconds.
    pub compaction_ns: u64,
    /// Direct reclaim by delay accounting, in nanoseconds.
    pub reclaim_ns: u64,
}

impl RecordingData {
    /// Name of a thread for display; `?` if unknown.
    pub fn name(&self, thread: usize) -> &str {
        self.threads.get(thread).and_then(|thread| thread.name.as_deref()).unwrap_or("?")
    }

    /// Whether the thread belongs to a recorded process, unlike khugepaged.
    pub fn is_own(&self, thread: usize) -> bool {
        let pid = self.threads.get(thread).and_then(|thread| thread.pid);
        pid.is_none_or(|pid| self.processes.contains_key(&pid))
    }

    /// Whether the recording has this kind of evidence.
    pub fn has(&self, evidence: Evidence) -> bool {
        self.header.evidence.get(&evidence).is_some_and(|reading| reading.known().is_some())
    }

    /// Duration of the recording, in nanoseconds.
    pub fn elapsed_ns(&self) -> u64 {
        self.last_ns.saturating_sub(self.header.began_ns)
    }
}
