//! The lines of a recording.
//!
//! A recording is a gzip'd text of JSON objects, one a line, written as it goes: what was written
//! before a kill can be read. Every time is nanoseconds of CLOCK_MONOTONIC (names end in `_ns`), which
//! is the clock of the JVM's `timenanos` too. Lines stand in the order in which they were written,
//! not always in that of their times.

use std::{collections::BTreeMap, fmt};

use hugewise_kernel::{
    meminfo::Meminfo,
    pools::Pool,
    reading::Reading,
    taskstats::Delays,
    thp::Thp,
    tracefs::Value,
    units::{Bytes, PageSize},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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

/// Of what, and by what means.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Header {
    /// `hugewise.recording/1`.
    pub schema: String,
    /// The version of hugewise.
    pub hugewise: String,
    /// When it began.
    pub began_ns: u64,
    /// The same moment in milliseconds since 1970.
    pub began_unix_ms: u64,
    /// The process that was named, or started.
    pub pid: u32,
    /// Was it started by the recorder, so that nothing of it is missing?
    pub started: bool,
    /// The command line that was recorded.
    pub command: Vec<String>,
    /// The machine.
    pub machine: Facts,
    /// What the recording rests on, by the name of the evidence; or why it is missing.
    pub evidence: BTreeMap<Evidence, Reading<String>>,
    /// The kernel's events that were recorded.
    pub events: Vec<String>,
    /// What first touch cost the recorder, before it began.
    #[serde(default = "not_measured")]
    pub first_touch: Reading<FirstTouch>,
}

fn not_measured() -> Reading<FirstTouch> {
    Reading::unknown("the recorder did not measure it")
}

/// What the first touch of a page costs, in CPU time of the thread that touches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FirstTouch {
    /// Of a base page.
    pub base: PageCost,
    /// Of a THP of the PMD size; nothing where too few were to be had without waiting.
    pub huge: Option<PageCost>,
}

/// In nanoseconds for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PageCost {
    /// Of all that were touched.
    pub mean_ns: u64,
    /// In the dearest block of the PMD size. On a virtual machine a page may cost many times as much
    /// where its host has to provide the memory first.
    pub most_ns: u64,
}

/// A machine as it was when the recording began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Facts {
    /// The release of the kernel.
    pub kernel: Reading<String>,
    /// CPUs that are online, as `0-3`.
    pub cpus: Reading<String>,
    /// The size of a base page.
    pub base_page: Reading<PageSize>,
    /// Memory as a whole.
    pub meminfo: Meminfo,
    /// The hugetlb pools.
    pub pools: Reading<Vec<Pool>>,
    /// Transparent huge pages.
    pub thp: Thp,
}

/// A kind of evidence, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// Events of the kernel: who waited, from when to when.
    Events,
    /// Delay accounting: who waited, how long in all.
    Delays,
    /// Notice of threads that end.
    Ends,
    /// The log of a JVM.
    JvmLog,
    /// Counters of the machine: that somebody waited.
    Counters,
    /// Pressure: for how long somebody waited.
    Pressure,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Evidence::Events => "kernel events",
            Evidence::Delays => "delay accounting",
            Evidence::Ends => "threads that end",
            Evidence::JvmLog => "the JVM's log",
            Evidence::Counters => "counters of the machine",
            Evidence::Pressure => "memory pressure",
        })
    }
}

/// A process of the recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Process {
    /// When this was read.
    pub ns: u64,
    /// Its number.
    pub pid: u32,
    /// What it calls itself.
    pub name: String,
    /// Its command line.
    pub command: Vec<String>,
    /// Its number in its own PID name space, where that is another one.
    pub pid_inside: Option<u32>,
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Thread {
    /// When this was read.
    pub ns: u64,
    /// Its number.
    pub tid: u32,
    /// That of its process.
    pub pid: u32,
    /// Its name, of which the kernel keeps 15 bytes.
    pub name: String,
    /// Its start in clock ticks since boot, which tells it from a later one of its number.
    pub started_ticks: u64,
}

/// What a thread waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// It moved pages to make a gap of the wanted size (`mm_compaction_begin`, `_end`), in one zone.
    Compaction,
    /// It looked for pages to free (`mm_vmscan_direct_reclaim_begin`, `_end`).
    Reclaim,
    /// The same for the limit of its control group (`mm_vmscan_memcg_reclaim_begin`, `_end`).
    MemcgReclaim,
    /// The same on one NUMA node (`mm_vmscan_node_reclaim_begin`, `_end`).
    NodeReclaim,
    /// It was made to sleep while others free pages (`mm_vmscan_throttled`).
    Throttled,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cause::Compaction => "compaction",
            Cause::Reclaim => "reclaim",
            Cause::MemcgReclaim => "reclaim for its control group",
            Cause::NodeReclaim => "reclaim on a node",
            Cause::Throttled => "sleep until pages are free",
        })
    }
}

/// A thread waited.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stall {
    /// For what.
    pub cause: Cause,
    /// The thread.
    pub tid: u32,
    /// From; nothing where it had begun before the recording, or the event was lost.
    pub begin_ns: Option<u64>,
    /// To; nothing where the recording ended before, or the event was lost.
    pub end_ns: Option<u64>,
    /// What the events say of it, in the kernel's words: `status` and `sync` of a compaction, `order`
    /// and `nr_reclaimed` of a reclaim.
    pub details: BTreeMap<String, Value>,
}

impl Stall {
    /// How long it took, in nanoseconds, where both ends are known.
    #[must_use]
    pub fn duration_ns(&self) -> Option<u64> {
        self.end_ns?.checked_sub(self.begin_ns?)
    }
}

/// A thread asked for pages of at least the size of a whole THP (`mm_page_alloc`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HugePage {
    /// When it was answered.
    pub ns: u64,
    /// The thread.
    pub tid: u32,
    /// Base pages asked for, as a power of two.
    pub order: u32,
    /// Did it get them? If not, it goes on with smaller ones, or fails.
    pub got: bool,
}

/// Huge pages were made of small ones, or could not be: by khugepaged, whose number is in a line
/// `thread`, for any process of the machine; or by `MADV_COLLAPSE`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Collapse {
    /// When.
    pub ns: u64,
    /// The thread that did it.
    pub tid: u32,
    /// The kernel's event.
    pub event: String,
    /// What it says, in the kernel's words.
    pub details: BTreeMap<String, Value>,
}

/// What threads have used so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// When this was read.
    pub ns: u64,
    /// Thread by thread, since its start.
    pub threads: Vec<ThreadUsage>,
}

/// What a thread has used since its start: /proc/PID/task/TID/stat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadUsage {
    /// The thread.
    pub tid: u32,
    /// CPU time in user space; the kernel tells it in ticks, of 10 ms nearly everywhere.
    pub user_ns: u64,
    /// CPU time in the kernel.
    pub sys_ns: u64,
    /// Page faults that needed no I/O.
    pub minor_faults: u64,
    /// Page faults that needed I/O.
    pub major_faults: u64,
}

/// What threads have waited for so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DelaysOfThreads {
    /// When this was read.
    pub ns: u64,
    /// Thread by thread, since its start.
    pub threads: Vec<ThreadDelays>,
}

/// What a thread has waited for since its start, by taskstats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadDelays {
    /// The thread.
    pub tid: u32,
    /// What it waited for. All of it but `cpu` is zero, whatever it waited for, where the thread was
    /// made before the kernel began to account (see the header's evidence).
    #[serde(flatten)]
    pub delays: Delays,
}

/// The last that the kernel told of a thread, when it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadEnd {
    /// When this was read: up to a look later than its end.
    pub ns: u64,
    /// That of its process, since Linux 5.19.
    pub pid: Option<u32>,
    /// Its name at its end.
    pub name: String,
    /// What it used.
    #[serde(flatten)]
    pub usage: ThreadUsage,
    /// What it waited for.
    pub delays: Delays,
}

/// Counters of the whole machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// When they were read.
    pub ns: u64,
    /// /proc/vmstat: THP, compaction, direct reclaim; those that this kernel has, since boot.
    pub vmstat: BTreeMap<String, u64>,
    /// /proc/pressure/memory: for how long some task waited, in microseconds since boot.
    pub pressure_some_us: Option<u64>,
    /// The pools of the whole machine.
    pub pools: Vec<PoolSample>,
    /// `MemAvailable`.
    pub available_bytes: Option<Bytes>,
}

/// A pool at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolSample {
    /// The size of its pages.
    pub page_size: PageSize,
    /// All pages.
    pub total: u64,
    /// Those not in use.
    pub free: u64,
    /// Those promised and not yet touched.
    pub reserved: Option<u64>,
}

/// The memory of a process, in bytes: /proc/PID/smaps_rollup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Memory {
    /// When it was read.
    pub ns: u64,
    /// The process.
    pub pid: u32,
    /// `Rss` and the pages of pools.
    pub resident_bytes: Bytes,
    /// On THP of the PMD size: anonymous, shared memory and files.
    pub thp_bytes: Bytes,
    /// On pages of pools.
    pub hugetlb_bytes: Bytes,
    /// The heap of a JVM, where its place is known: a part of the above.
    pub heap: Option<HeapMemory>,
}

/// The heap of a JVM at one moment, in bytes: PAGEMAP_SCAN of Linux 6.7 and later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeapMemory {
    /// Present.
    pub resident_bytes: Bytes,
    /// Of those, on huge pages of any kind.
    pub huge_bytes: Bytes,
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
