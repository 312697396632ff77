//! Garbage collection logs of JDK 8 to 25: pauses with their CPU time, and safepoints.
//!
//! A [`Reader`] turns streams into [`Event`]s and keeps no more than one pause in memory, whatever the size
//! of the log. [`sets`] orders the files of a rotation, [`summary`] aggregates the events.

#[cfg(test)]
mod balance_tests;
#[cfg(test)]
mod dress_tests;
mod legacy;
mod names;
mod numbers;
mod reader;
mod safepoints;
pub mod sets;
mod stamp;
pub mod summary;
#[cfg(test)]
mod tests;
pub mod timeline;
mod unified;

use std::{ops::Range, path::Path};

use hugewise_texts::{lines, near};

pub use reader::Reader;
pub use stamp::Stamp;

/// Option that makes a JVM write the log into `file`. The `timenanos` decoration is CLOCK_MONOTONIC.
pub fn log_option(file: &Path) -> String {
    format!("-Xlog:{TAGS}:file=\"{}\":{DECORATIONS}:filecount=0", file.display())
}

/// Option that makes a JVM write the log to its standard output.
pub fn stdout_log_option() -> String {
    format!("-Xlog:{TAGS}:stdout:{DECORATIONS}")
}

const TAGS: &str = "gc*=info,gc+heap+coops=debug,pagesize=info";
const DECORATIONS: &str = "timenanos,level,tags";

/// Content of a log, in the order of its lines.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<'a> {
    /// A stop-the-world pause of the collector; concurrent phases are not pauses.
    Pause(Pause<'a>),
    /// A safepoint of any VM operation, collections included.
    Safepoint(Safepoint<'a>),
    /// A thread waited for the collector: of ZGC and Shenandoah, the pauses that matter to it.
    Stall(Stall<'a>),
    /// The collector finished an initialization step. After the last one the heap is ready, pre-touch
    /// included.
    Init(Stamp),
    /// Address range of the reserved heap. ZGC does not log it.
    Heap(Range<u64>),
    /// A line that resembles a pause, CPU time or a safepoint, and does not parse.
    Unparsed(Unparsed<'a>),
}

/// Position of a line in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogPosition {
    /// Index of the stream, from 0.
    pub file: usize,
    /// Line number, from 1.
    pub line: u64,
}

/// A stop-the-world pause of the collector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pause<'a> {
    pub place: LogPosition,
    /// Index of the JVM in the log, from 0.
    pub run: u32,
    /// Id of the collection; `None` if the log has no ids.
    pub gc_id: Option<u64>,
    /// `Young (Normal)`, `Full`, `Mark End`: without the cause and sizes.
    pub kind: &'a str,
    /// Cause of the collection, such as `System.gc()`; `None` if the log has no cause.
    pub cause: Option<&'a str>,
    pub start: Stamp,
    pub duration_ns: u64,
    /// CPU time of the whole process during the pause; `None` if the collector does not log it.
    pub cpu: Option<Cpu>,
    /// Whether another pause contains this one; the outer pause follows and includes its time.
    pub nested: bool,
}

/// CPU time of a pause, in nanoseconds; the JVM logs it to 10 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    pub user_ns: u64,
    pub sys_ns: u64,
    /// Elapsed time.
    pub real_ns: u64,
}

/// Resolution of the JVM's CPU times, in nanoseconds: the true value is at most so far from a logged one.
pub const CPU_TICK_NS: u64 = 10_000_000;
/// Three ticks: a smaller value may be a rounding error.
const MIN_SYS_NS: u64 = 3 * CPU_TICK_NS;

impl Cpu {
    /// Whether sys > user by more than the rounding of the log can explain.
    pub fn sys_exceeds_user(self) -> bool {
        self.sys_ns > self.user_ns && self.sys_ns >= MIN_SYS_NS
    }

    /// Least time in which no thread of the pause ran: wall-clock time without user and system time, and without what
    /// rounding can hide.
    pub fn waiting_ns(self, duration_ns: u64) -> u64 {
        let ran_ns = self.user_ns.saturating_add(self.sys_ns);
        duration_ns.saturating_sub(ran_ns).saturating_sub(2 * CPU_TICK_NS)
    }

    /// Whether at least half of the pause is waiting.
    pub fn waits(self, duration_ns: u64) -> bool {
        let waiting_ns = self.waiting_ns(duration_ns);
        waiting_ns >= MIN_WAITING_NS && waiting_ns >= duration_ns / 2
    }
}

/// Shortest waiting that is reported, in nanoseconds.
const MIN_WAITING_NS: u64 = 5 * CPU_TICK_NS;

/// A stop of all Java threads for a VM operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Safepoint<'a> {
    pub place: LogPosition,
    /// Index of the JVM in the log, from 0.
    pub run: u32,
    /// VM operation; `None` if the log lacks it, as that of JDK 8 does.
    pub operation: Option<&'a str>,
    pub end: Stamp,
    /// Time to safepoint (TTSP); `None` if the log lacks it.
    pub time_to_safepoint_ns: Option<u64>,
    /// Time to safepoint, operation and resumption.
    pub total_ns: u64,
}

/// A wait of one thread for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall<'a> {
    pub place: LogPosition,
    /// Index of the JVM in the log, from 0.
    pub run: u32,
    /// `Allocation Stall`, `Relocation Stall` or `Allocation Pacing`.
    pub kind: &'static str,
    /// Name of the thread.
    pub thread: &'a str,
    pub end: Stamp,
    pub duration_ns: u64,
}

/// A line that does not parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unparsed<'a> {
    pub place: LogPosition,
    /// Event that the line resembles: `a pause`, `a safepoint` …
    pub what: &'static str,
    /// The line, or its beginning; empty if it is no longer in memory.
    pub text: &'a [u8],
}

/// Address range of the reserved heap, from the beginning of a log.
pub fn heap(log: &[u8]) -> Option<Range<u64>> {
    let mut heap = None;
    // Reading from memory cannot fail.
    let _ = Reader::default().read(log, &mut |event| {
        if let Event::Heap(range) = event {
            heap.get_or_insert(range);
        }
    });
    heap
}
