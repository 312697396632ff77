//! The lines of a recording.
//!
//! A recording is a gzip'd text of JSON objects, one a line, written as it goes: what was written
//! before a kill can be read. Every time is nanoseconds of CLOCK_MONOTONIC (names end in `_ns`), which
//! is the clock of the JVM's `timenanos` too. Lines stand in the order in which they were written,
//! not always in that of their times.

mod header;
mod memory;
mod threads;
mod waits;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use header::{Evidence, Facts, FirstTouch, Header, PageCost};
pub use memory::{HeapMemory, Machine, Memory, PoolSample};
pub use threads::{DelaysOfThreads, Process, Thread, ThreadDelays, ThreadEnd, ThreadUsage, Usage};
pub use waits::{Cause, Collapse, HugePage, Stall};

/// What the header calls its format.
pub const SCHEMA: &str = "hugewise.recording/1";

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Line {
    /// The first line: of what, and by what means.
    Header(Box<Header>),
    /// A process of the recording, when it was first seen or has become another program.
    Process(Process),
    /// A thread, when it was first seen or has changed its name.
    Thread(Thread),
    /// A thread waited for the kernel to find memory.
    Stall(Stall),
    /// A thread asked for a huge page.
    HugePage(HugePage),
    /// Huge pages were made of small ones, or could not be.
    Collapse(Collapse),
    /// What threads have used so far: those for which it changed since the last such line.
    Usage(Usage),
    /// What threads have waited for so far: those for which it changed since the last such line.
    Delays(DelaysOfThreads),
    /// The last that the kernel told of a thread.
    ThreadEnd(ThreadEnd),
    /// Counters of the whole machine. They corroborate; they never attribute.
    Machine(Machine),
    /// The memory of a process.
    Memory(Memory),
    /// Where a JVM's log comes from.
    JvmLogSource(JvmLogSource),
    /// Lines of a JVM's log, as they were written.
    JvmLog(JvmLog),
    /// Something was lost.
    Lost(Lost),
    /// Something that whoever reads this should know.
    Note(Note),
    /// The last line of a recording that ended in order.
    End(End),
}

/// Where a JVM's log comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JvmLogSource {
    /// When the recorder began to read it.
    pub ns: u64,
    /// The JVM.
    pub pid: u32,
    /// What was switched on, or the file that the JVM writes itself.
    pub source: String,
    /// Does it carry CLOCK_MONOTONIC (`timenanos`)? Otherwise its times must be fitted.
    pub monotonic: bool,
}

/// Lines of a JVM's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JvmLog {
    /// When they were read: up to a look later than they were written.
    pub ns: u64,
    /// The JVM.
    pub pid: u32,
    /// The lines. Bytes that are not UTF-8 are replaced.
    pub lines: Vec<String>,
}

/// Something was lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lost {
    /// When that was noticed.
    pub ns: u64,
    /// Of which evidence.
    pub of: Evidence,
    /// How many, where the kernel tells.
    pub count: Option<u64>,
    /// Why.
    pub reason: String,
}

/// Something that whoever reads this should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Note {
    /// When.
    pub ns: u64,
    /// It.
    pub text: String,
}

/// The end of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct End {
    /// When.
    pub ns: u64,
    /// Why.
    pub reason: EndReason,
    /// Events of the kernel that were lost, in all; nothing where they cannot be counted.
    pub lost_events: Option<u64>,
    /// CPU time that the recorder itself took, up to this line.
    #[serde(default)]
    pub recorder_cpu_ns: Option<u64>,
}

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The process had ended.
    ProcessEnded,
    /// The recorder was told to end.
    Interrupted,
    /// The time that was asked for was over.
    TimeOver,
}
