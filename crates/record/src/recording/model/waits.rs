//! What threads waited for, and the huge pages that they got or did not.

use std::{collections::BTreeMap, fmt};

use hugewise_linux::tracefs::Value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
