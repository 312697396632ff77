//! The memory of the machine and of processes, at one moment.

use std::collections::BTreeMap;

use hugewise_linux::units::{Bytes, PageSize};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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

/// The heap of a JVM at one moment, in bytes: PAGEMAP_SCAN of Linux 6.7 and later. Of a heap that is mapped more than
/// once, as by ZGC before JDK 21, the mapping that shows most of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeapMemory {
    /// Present.
    pub resident_bytes: Bytes,
    /// Of those, on huge pages of any kind.
    pub huge_bytes: Bytes,
}
