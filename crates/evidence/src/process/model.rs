//! The result of inspecting a process, schema `hugewise.inspect/2`.

use std::collections::BTreeMap;

use hugewise_linux::{
    action::Action,
    pages::count::PageCounts,
    proc::process::{Obstacle, Process, ProcessError},
    reading::Reading,
    units::{Bytes, PageSize},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Kind, MachineState, Reason, RegionPages};

const SCHEMA: &str = "hugewise.inspect/2";

/// What `inspect --json` prints for each process.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Document {
    /// The process was read.
    Inspected(Box<Inspected>),
    /// The process could not be read.
    Failed(Failed),
}

/// The page sizes of a process' memory.
#[derive(Serialize, JsonSchema)]
pub struct Inspected {
    schema: &'static str,
    /// Process ID.
    pub pid: u32,
    /// Process ID in its own PID namespace; null if that is the reader's.
    pub pid_inside: Option<u32>,
    /// `comm`: the name of the process, at most 15 bytes.
    pub name: String,
    /// Command line.
    pub command: Vec<String>,
    /// Effective user ID.
    pub uid: Reading<u32>,
    /// Whether libjvm is mapped; null if the mappings were not read.
    pub is_jvm: Option<bool>,
    /// Source of the region names.
    pub names_from: String,
    /// Whether THP is enabled for the process; false after `prctl(PR_SET_THP_DISABLE)`.
    pub thp_enabled: Reading<bool>,
    /// Sums over all regions. Memory that is mapped several times is counted once.
    pub totals: Totals,
    /// Of the totals, bytes of shared memory by page size that an earlier process of the same output has as well.
    pub counted_before: BTreeMap<PageSize, Bytes>,
    /// Whether folio sizes were read; if they are unknown, base pages include those of mTHP.
    pub folio_sizes: Reading<bool>,
    /// Regions in the order of their addresses; null if only the totals were read.
    pub regions: Option<Vec<InspectedRegion>>,
    /// Limitations of this result.
    pub notes: Vec<String>,
}

impl Inspected {
    pub(super) fn new(
        process: Process,
        is_jvm: bool,
        names_from: String,
        totals: Totals,
        folio_sizes: Reading<bool>,
        regions: Option<Vec<InspectedRegion>>,
        notes: Vec<String>,
    ) -> Inspected {
        Inspected {
            schema: SCHEMA,
            pid: process.pid,
            pid_inside: process.pid_inside,
            name: process.name,
            command: process.command,
            uid: process.uid,
            is_jvm: regions.as_ref().map(|_| is_jvm),
            names_from,
            thp_enabled: process.thp_enabled,
            totals,
            counted_before: BTreeMap::new(),
            folio_sizes,
            regions,
            notes,
        }
    }
}

/// A process that could not be read.
#[derive(Serialize, JsonSchema)]
pub struct Failed {
    schema: &'static str,
    /// Process ID.
    pub pid: u32,
    /// Kind of the reason.
    pub cause: Obstacle,
    /// The reason as text.
    pub detail: String,
}

impl Failed {
    pub fn new(pid: u32, why: ProcessError) -> Failed {
        Failed { schema: SCHEMA, pid, cause: why.obstacle, detail: why.words }
    }
}

/// Sums over all regions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Totals {
    /// Resident bytes, hugetlb pages included.
    pub resident_bytes: Bytes,
    /// Resident bytes by page size.
    pub bytes_by_page_size: BTreeMap<PageSize, Bytes>,
    /// Resident bytes on hugetlb pages.
    pub hugetlb_bytes: Bytes,
    /// Swapped-out bytes.
    pub swapped_bytes: Bytes,
    /// Of the resident bytes, those that can be on huge pages; 0 if they were not counted.
    pub suitable_bytes: Bytes,
}

impl Totals {
    pub(super) fn on(&mut self, size: PageSize, bytes: Bytes) {
        if bytes > Bytes::ZERO {
            *self.bytes_by_page_size.entry(size).or_default() += bytes;
        }
    }

    pub(super) fn add(&mut self, pages: &PageCounts, machine: &MachineState) {
        self.resident_bytes += pages.resident();
        self.swapped_bytes += pages.swap;
        self.hugetlb_bytes += pages.hugetlb.values().copied().sum();
        for (size, bytes) in pages.by_page_size(machine.sizes.base, machine.sizes.thp) {
            self.on(size, bytes);
        }
    }
}

/// The sums over several processes. Shared memory of several of them is counted once.
pub fn sum(found: &[Inspected]) -> Totals {
    let mut sum = Totals::default();
    for inspected in found {
        let totals = &inspected.totals;
        sum.swapped_bytes += totals.swapped_bytes;
        sum.suitable_bytes += totals.suitable_bytes;
        for (size, bytes) in &totals.bytes_by_page_size {
            let before = inspected.counted_before.get(size).copied().unwrap_or_default();
            let bytes = bytes.saturating_sub(before);
            sum.resident_bytes += bytes;
            sum.on(*size, bytes);
        }
    }
    // How much of the memory that several have could be on huge pages is not counted apart.
    if found.iter().any(|inspected| !inspected.counted_before.is_empty()) {
        sum.suitable_bytes = Bytes::ZERO;
    }
    sum
}

/// Sums the bytes on pages larger than `base`.
pub fn huge(bytes_by_page_size: &BTreeMap<PageSize, Bytes>, base: PageSize) -> Bytes {
    bytes_by_page_size.iter().filter(|(size, _)| **size > base).map(|(_, bytes)| *bytes).sum()
}

/// A region: several mappings with one purpose, or a part of a mapping.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct InspectedRegion {
    #[serde(flatten)]
    pub pages: RegionPages,
    /// Kind of the region.
    pub kind: Kind,
    /// Number of mappings that overlap the region.
    pub mappings: usize,
    /// Swapped-out bytes.
    pub swapped_bytes: Bytes,
    /// Of the bytes on base pages, those in whole PMD-sized THPs that base page table entries map: the PMD
    /// entry was split or never set. Null if folio sizes were not read.
    pub split_bytes: Option<Bytes>,
    /// Bytes on base pages in folios that are only partly mapped here, or not aligned. Null without
    /// `--full`, or if folio sizes were not read.
    pub part_of_folio_bytes: Option<Bytes>,
    /// Resident bytes that an earlier region of this process maps as well. The totals count them there.
    pub counted_above_bytes: Bytes,
    /// First address of the earlier region that maps the same memory; null if there is none.
    pub same_memory_as: Option<u64>,
    /// Possible reasons if `reason` is `eligible`, as far as the counters of the machine allow them.
    pub candidates: Vec<Reason>,
    /// The reason as text; null if there is none.
    pub detail: Option<String>,
    /// Changes that would remove the reason; empty if there is none.
    pub actions: Vec<Action>,
}
