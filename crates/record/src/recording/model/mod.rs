//! The lines of a recording.
//!
//! A recording is gzip-compressed text with one JSON object per line. It is flushed during the recording, so
//! that it can be read after a kill. All times are in nanoseconds of CLOCK_MONOTONIC (names end in `_ns`),
//! which is also the clock of a JVM's `timenanos`. Lines are in the order of writing, which is not always
//! that of their times.

mod header;
mod memory;
mod threads;
mod waits;

use hugewise_linux::sys::process::monotonic_ns;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use header::{Evidence, Facts, FirstTouch, Header, PageCost};
pub use memory::{HeapMemory, Machine, Memory, PoolSample};
pub(crate) use threads::memory_waits_ns;
pub use threads::{DelaysOfThreads, Process, Thread, ThreadDelays, ThreadEnd, ThreadUsage, Usage};
pub use waits::{Cause, Collapse, HugePage, Stall};

/// Name and version of the format.
pub const SCHEMA: &str = "hugewise.recording/2";

/// A line of a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Line {
    /// The first line: process, machine and evidence.
    Header(Box<Header>),
    /// A process that is new, or has executed another program.
    Process(Process),
    /// A thread that is new, or has a new name.
    Thread(Thread),
    /// A wait of a thread in compaction or reclaim.
    Stall(Stall),
    /// An attempt of a thread to allocate a huge page.
    HugePage(HugePage),
    /// A collapse of base pages into a huge page, or a failed attempt.
    Collapse(Collapse),
    /// Usage of threads since their start, for those whose usage changed since the last such line.
    Usage(Usage),
    /// Waits of threads since their start, for those whose waits changed since the last such line.
    Delays(DelaysOfThreads),
    /// Final usage and waits of an exited thread.
    ThreadEnd(ThreadEnd),
    /// Machine-wide counters. They support other evidence and never attribute a pause.
    Machine(Machine),
    /// Memory of a process.
    Memory(Memory),
    /// Origin of a JVM's log.
    JvmLogSource(JvmLogSource),
    /// Lines of a JVM's log, unchanged.
    JvmLog(JvmLog),
    /// A loss of evidence.
    Lost(Lost),
    /// A remark for the reader.
    Note(Note),
    /// The last line of a complete recording.
    End(End),
}

impl Line {
    /// A loss of evidence, detected now.
    pub(super) fn lost(of: Evidence, count: Option<u64>, reason: impl ToString) -> Line {
        Line::Lost(Lost { ns: monotonic_ns(), of, count, reason: reason.to_string() })
    }

    /// A remark for the reader, made now.
    pub(super) fn note(text: impl ToString) -> Line {
        Line::Note(Note { ns: monotonic_ns(), text: text.to_string() })
    }
}

/// Origin of a JVM's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JvmLogSource {
    /// Time of the first read, in nanoseconds of CLOCK_MONOTONIC.
    pub ns: u64,
    /// PID of the JVM.
    pub pid: u32,
    /// The log that was switched on, or the file that the JVM writes.
    pub source: String,
    /// Whether the log has times of CLOCK_MONOTONIC (`timenanos`); otherwise its times must be fitted.
    pub monotonic: bool,
}

/// Lines of a JVM's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JvmLog {
    /// Time of the read, in nanoseconds of CLOCK_MONOTONIC; the lines are older by up to a sampling interval.
    pub ns: u64,
    /// PID of the JVM.
    pub pid: u32,
    /// The lines; bytes that are not UTF-8 are replaced.
    pub lines: Vec<String>,
}

/// A loss of evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lost {
    /// Time at which the loss was detected, in nanoseconds of CLOCK_MONOTONIC.
    pub ns: u64,
    /// The kind of evidence that was lost.
    pub of: Evidence,
    /// Number of lost events; null if unknown.
    pub count: Option<u64>,
    /// Why it was lost.
    pub reason: String,
}

/// A remark for the reader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Note {
    /// Time of the remark, in nanoseconds of CLOCK_MONOTONIC.
    pub ns: u64,
    /// The remark.
    pub text: String,
}

/// End of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct End {
    /// Time of the end, in nanoseconds of CLOCK_MONOTONIC.
    pub ns: u64,
    /// Why the recording ended.
    pub reason: EndReason,
    /// Number of lost kernel events; null if unknown.
    pub lost_events: Option<u64>,
    /// CPU time of the recorder up to this line, in nanoseconds; null if unknown.
    #[serde(default)]
    pub recorder_cpu_ns: Option<u64>,
}

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The process exited.
    ProcessEnded,
    /// The recorder received a signal.
    Interrupted,
    /// The time limit was reached.
    TimeOver,
}
