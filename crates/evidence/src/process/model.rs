//! What is told of a process: plain values, schema `hugewise.inspect/1`.

use std::collections::BTreeMap;

use hugewise_linux::{
    pages::count::PageCounts,
    proc::process::{CannotTell, Obstacle, Process},
    reading::Reading,
    units::{Bytes, PageSize},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Kind, Machine, Reason};

const SCHEMA: &str = "hugewise.inspect/1";

/// What `inspect --json` prints for each process.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Document {
    /// What it got.
    Inspected(Box<Inspected>),
    /// Why that cannot be told.
    Failed(Failed),
}

/// What a process got.
#[derive(Serialize, JsonSchema)]
pub struct Inspected {
    schema: &'static str,
    /// Its number.
    pub pid: u32,
    /// Its number in its container, where it is in one.
    pub pid_inside: Option<u32>,
    /// What it calls itself.
    pub name: String,
    /// Its command line.
    pub command: Vec<String>,
    /// Its effective user.
    pub uid: Reading<u32>,
    /// Is it a JVM? Nothing where its mappings were not read.
    pub is_jvm: Option<bool>,
    /// Where the names of the regions are from.
    pub names_from: String,
    /// Does the kernel give it THP at all? Not so after `prctl(PR_SET_THP_DISABLE)`.
    pub thp_enabled: Reading<bool>,
    /// Everything, memory that is mapped more than once counted once.
    pub totals: Totals,
    /// Null where folios were told apart; otherwise why base pages and those of mTHP count as one.
    pub folio_sizes: Reading<()>,
    /// Its regions, by address; null where only the sums were read.
    pub regions: Option<Vec<Region>>,
    /// What else should be known of the reading.
    pub notes: Vec<String>,
}

impl Inspected {
    pub(super) fn new(
        process: Process,
        is_jvm: bool,
        names_from: String,
        totals: Totals,
        folio_sizes: Reading<()>,
        regions: Option<Vec<Region>>,
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
            folio_sizes,
            regions,
            notes,
        }
    }
}

/// A process that nothing can be told of.
#[derive(Serialize, JsonSchema)]
pub struct Failed {
    schema: &'static str,
    /// Its number.
    pub pid: u32,
    /// What kind of reason it is.
    pub obstacle: Obstacle,
    /// The reason.
    pub could_not_tell: String,
}

impl Failed {
    /// For this reason.
    pub fn new(pid: u32, why: CannotTell) -> Failed {
        Failed { schema: SCHEMA, pid, obstacle: why.obstacle, could_not_tell: why.words }
    }
}

/// Sums over all regions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Totals {
    /// Bytes that are present, on pages of any kind.
    pub resident_bytes: Bytes,
    /// The same by the size of their pages.
    pub bytes_by_page_size: BTreeMap<PageSize, Bytes>,
    /// Of those, the bytes on pages of a pool.
    pub hugetlb_bytes: Bytes,
    /// Bytes that are swapped out.
    pub swapped_bytes: Bytes,
}

impl Totals {
    /// Adds bytes on pages of this size.
    pub(super) fn on(&mut self, size: PageSize, bytes: Bytes) {
        if bytes > Bytes::ZERO {
            *self.bytes_by_page_size.entry(size).or_default() += bytes;
        }
    }

    /// Adds pages that are not counted yet.
    pub(super) fn add(&mut self, pages: &PageCounts, machine: &Machine) {
        self.resident_bytes += pages.resident();
        self.swapped_bytes += pages.swap;
        self.hugetlb_bytes += pages.hugetlb.values().copied().sum();
        for (size, bytes) in pages.by_page_size(machine.sizes.base, machine.sizes.thp) {
            self.on(size, bytes);
        }
    }
}

/// Bytes on pages larger than `base`.
pub fn huge(bytes_by_page_size: &BTreeMap<PageSize, Bytes>, base: PageSize) -> Bytes {
    bytes_by_page_size.iter().filter(|(size, _)| **size > base).map(|(_, bytes)| *bytes).sum()
}

/// A mapping with a purpose: several of the kernel's, or a part of one.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Region {
    /// What it is for.
    pub name: String,
    /// Which kind that is.
    pub kind: Kind,
    /// Its first address.
    pub start: u64,
    /// The address behind its last.
    pub end: u64,
    /// How many of the kernel's mappings lie in it, in part or as a whole.
    pub mappings: usize,
    /// Bytes that are present, pages of pools among them.
    pub resident_bytes: Bytes,
    /// The same by the size of their pages; together they are all that is resident. Base pages include
    /// those of mTHP where `folio_sizes` says so.
    pub bytes_by_page_size: BTreeMap<PageSize, Bytes>,
    /// Of those, the bytes on pages of a pool.
    pub hugetlb_bytes: Bytes,
    /// Bytes that are swapped out.
    pub swapped_bytes: Bytes,
    /// Of those on base pages: in whole THPs of the PMD size that base page table entries map, since the
    /// huge entry was split or never made. Null where folios were not told apart.
    pub split_bytes: Option<Bytes>,
    /// Of those on base pages: in folios that are not mapped as a whole here, or not aligned. Told with
    /// `--full` only, and null where folios were not told apart.
    pub part_of_folio_bytes: Option<Bytes>,
    /// Of the resident ones: bytes that an earlier region of this process maps too. Counted there.
    pub counted_above_bytes: Bytes,
    /// The first address of that region.
    pub same_memory_as: Option<u64>,
    /// Why what is on base pages is not on huge ones, for most of it; null where all is.
    pub reason: Option<Reason>,
    /// Where only `eligible` can be said: what it may be, the machine's counters considered.
    pub candidates: Vec<Reason>,
    /// The reason in words.
    pub why: Option<String>,
    /// What would change it.
    pub next_step: Option<String>,
}
