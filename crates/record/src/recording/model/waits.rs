//! Waits of threads, and their attempts to allocate huge pages.

use std::{collections::BTreeMap, fmt};

use hugewise_linux::tracefs::Value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Cause of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Direct compaction of one zone (`mm_compaction_begin`, `_end`).
    Compaction,
    /// Direct reclaim (`mm_vmscan_direct_reclaim_begin`, `_end`).
    Reclaim,
    /// Reclaim under the limit of a memory cgroup (`mm_vmscan_memcg_reclaim_begin`, `_end`).
    MemcgReclaim,
    /// Reclaim on one NUMA node (`mm_vmscan_node_reclaim_begin`, `_end`).
    NodeReclaim,
    /// Throttling until other tasks have freed pages (`mm_vmscan_throttled`).
    Throttled,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cause::Compaction => "compaction",
            Cause::Reclaim => "reclaim",
            Cause::MemcgReclaim => "cgroup reclaim",
            Cause::NodeReclaim => "node reclaim",
            Cause::Throttled => "reclaim throttling",
        })
    }
}

/// A wait of a thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stall {
    /// The cause.
    pub cause: Cause,
    /// TID.
    pub tid: u32,
    /// Begin, in nanoseconds of CLOCK_MONOTONIC; null if it was before the recording or its event was lost.
    pub begin_ns: Option<u64>,
    /// End, in nanoseconds of CLOCK_MONOTONIC; null if it was after the recording or its event was lost.
    pub end_ns: Option<u64>,
    /// Fields of the events, as named by the kernel: `status` and `sync` of a compaction, `order` and
    /// `nr_reclaimed` of a reclaim.
    pub details: BTreeMap<String, Value>,
}

impl Stall {
    /// Duration, in nanoseconds; `None` without begin or end.
    pub fn duration_ns(&self) -> Option<u64> {
        self.end_ns?.checked_sub(self.begin_ns?)
    }
}

/// An attempt to allocate pages of at least the PMD size (`mm_page_alloc`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HugePage {
    /// Time of the result, in nanoseconds of CLOCK_MONOTONIC.
    pub ns: u64,
    /// TID.
    pub tid: u32,
    /// Size of the allocation: 2^`order` base pages.
    pub order: u32,
    /// Whether the allocation succeeded; otherwise the thread continues with smaller pages, or fails.
    pub got: bool,
}

/// A collapse of base pages into a huge page, or a failed attempt: by khugepaged for any process of the
/// machine, or by `MADV_COLLAPSE`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Collapse {
    /// Time, in nanoseconds of CLOCK_MONOTONIC.
    pub ns: u64,
    /// TID of the collapsing thread; khugepaged has a line `thread`.
    pub tid: u32,
    /// Name of the kernel event.
    pub event: String,
    /// Fields of the event, as named by the kernel.
    pub details: BTreeMap<String, Value>,
}
