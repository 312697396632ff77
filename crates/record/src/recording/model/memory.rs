//! Samples of the machine's and the processes' memory.

use std::collections::BTreeMap;

use hugewise_linux::units::{Bytes, PageSize};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A sample of machine-wide counters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// Time of the sample, in nanoseconds of CLOCK_MONOTONIC.
    pub ns: u64,
    /// Counters of /proc/vmstat on THP, compaction and direct reclaim, since boot; those that the kernel has.
    pub vmstat: BTreeMap<String, u64>,
    /// Time in which some task waited for memory, in nanoseconds since boot (/proc/pressure/memory); null
    /// without PSI.
    pub pressure_some_ns: Option<u64>,
    /// The hugetlb pools of the whole machine.
    pub pools: Vec<PoolSample>,
    /// `MemAvailable`, in bytes; null if unknown.
    pub available_bytes: Option<Bytes>,
}

/// A sample of a hugetlb pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolSample {
    /// Page size, in bytes.
    #[serde(rename = "page_size_bytes")]
    pub page_size: PageSize,
    /// Number of pages.
    pub total: u64,
    /// Number of free pages.
    pub free: u64,
    /// Number of pages reserved but not yet faulted in; null if unknown.
    pub reserved: Option<u64>,
}

/// A sample of a process' memory (/proc/PID/smaps_rollup).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Memory {
    /// Time of the sample, in nanoseconds of CLOCK_MONOTONIC.
    pub ns: u64,
    /// PID of the process.
    pub pid: u32,
    /// Resident memory including hugetlb pages, in bytes.
    pub resident_bytes: Bytes,
    /// Memory on THP of the PMD size (anonymous, shared, file-backed), in bytes.
    pub thp_bytes: Bytes,
    /// Memory on hugetlb pages, in bytes.
    pub hugetlb_bytes: Bytes,
    /// The Java heap, as part of the above; null if its addresses are unknown.
    pub heap: Option<HeapMemory>,
}

/// A sample of a Java heap, by PAGEMAP_SCAN (Linux 6.7). If the heap is mapped more than once, as by ZGC
/// before JDK 21, the mapping with the most resident memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeapMemory {
    /// Resident memory, in bytes.
    pub resident_bytes: Bytes,
    /// The part of it on huge pages of any kind, in bytes.
    pub huge_bytes: Bytes,
}
