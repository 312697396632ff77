//! Bytes of each region by page size.

use std::{ops::Range, sync::Arc};

use hugewise_linux::{
    pages::{
        count::{PageCounter, PageCounts},
        folios::FolioRange,
        occupancy::{self, MIN_RESIDENT_PERCENT},
        reason, views,
    },
    proc::{
        mounts::Mount,
        smaps::{Memory, Vma},
    },
    reading::Reading,
    units::{Bytes, PageSize},
};

use super::{
    Known, MachineState,
    names::{self, Kind, Part},
    reason_by_settings::{self, MappingReadings, ReasonWithCauses},
};

/// The counts of one part.
#[derive(Clone, Debug, Default)]
pub struct PartCounts {
    /// Pages as mapped in this part, including those that an earlier part maps.
    pub pages: PageCounts,
    /// Number of mappings that overlap this part.
    pub mappings: usize,
    /// Bytes that an earlier part maps as well.
    pub counted_above: Bytes,
    /// Of `counted_above`, the bytes that huge page table entries map here.
    counted_above_huge: Bytes,
    /// First address of the earlier part.
    pub same_memory_as: Option<u64>,
    /// Reason for most of the bytes on base pages, and these bytes; `None` if there are none.
    pub reason: Option<(ReasonWithCauses, Bytes)>,
    /// Kind of the memory.
    pub memory: Memory,
    /// Aligned ranges with base pages that can be collapsed into huge pages.
    pub ranges: Ranges,
    /// The mount of the mapped file; `None` without a file.
    pub mount: Option<Arc<Mount>>,
    /// Bytes of a privately mapped file that are copies of its pages.
    pub copies: Bytes,
    /// Bytes on base pages by reason.
    pub(super) reasons: Vec<(ReasonWithCauses, Bytes)>,
}

impl PartCounts {
    /// Resident bytes on base pages that cannot be on huge pages, whatever the settings are.
    pub fn unsuitable(&self) -> Bytes {
        let of_place = self.reasons.iter().filter(|(judged, _)| judged.reason.is_of_place());
        of_place.map(|(_, bytes)| *bytes).sum::<Bytes>().min(self.once().base)
    }

    /// The pages without those that an earlier part maps as well.
    pub fn once(&self) -> PageCounts {
        let mut pages = self.pages.clone();
        pages.subtract(self.counted_above, self.counted_above_huge);
        pages
    }
}

/// Aligned ranges of the size of a huge page that are on base pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// Number of ranges that lack pages.
    pub sparse: u64,
    /// Present bytes in them.
    pub sparse_bytes: Bytes,
    /// Bytes that they lack.
    pub missing: Bytes,
    /// Present bytes in ranges of which at least [`MIN_RESIDENT_PERCENT`] percent are present.
    pub dense_bytes: Bytes,
}

/// Counts every part, in the same order, and remarks on the counts. `parts` are sorted by address and do not
/// overlap.
pub fn measure(
    known: &Known<'_>,
    vmas: &[Vma],
    parts: &[Part],
    folios: &Reading<Vec<FolioRange>>,
) -> (Vec<PartCounts>, Option<String>) {
    let Known { root, machine, process, environment, .. } = *known;
    let views = views::find(root, process.pid, vmas);
    let mut counter = PageCounter::of(root, process.pid);
    let folios: &[FolioRange] = folios.known().map_or(&[], Vec::as_slice);
    let process_off = process.thp_enabled.known() == Some(&false);
    let jvm_wants_pool = environment.jvm_wants_pool(&process.command);
    let excludes_pool = names::excludes_pool(&process.command);
    let mut all: Vec<PartCounts> = Vec::with_capacity(parts.len());
    let mut first = 0;
    for part in parts {
        let mut measured = PartCounts::default();
        while vmas.get(first).is_some_and(|vma| vma.addresses.end <= part.addresses.start) {
            first += 1;
        }
        for (index, vma) in vmas.iter().enumerate().skip(first) {
            if vma.addresses.start >= part.addresses.end {
                break;
            }
            let pages = counter.count(vma, &part.addresses, folios, machine.pmd());
            let within =
                vma.addresses.start.max(part.addresses.start)..vma.addresses.end.min(part.addresses.end);
            let ranges = ranges(&counter, machine, vma, &within, &pages);
            let seen = MappingReadings {
                addresses: vma.addresses.clone(),
                offset: vma.offset,
                memory: vma.memory(),
                tmpfs: vma.tmpfs().map(|tmpfs| tmpfs.huge),
                is_stack: part.kind == Kind::Stack,
                edges: edges(&counter, machine, vma, &within, &pages),
                sparse: ranges.sparse_bytes,
                advice: vma.advice,
                eligible: vma.thp_eligible,
                small: pages.base,
                thp: vma.thp,
                split: pages.split,
                swap: pages.swap,
                process_off,
                wants_pool: match part.kind {
                    Kind::JvmLargePages => jvm_wants_pool,
                    Kind::Database => !excludes_pool,
                    _ => false,
                },
            };
            measured.add(&pages, vma, ranges, reason_by_settings::judge(&seen, machine));
            if let Some(view) = views.get(&index).filter(|_| vma.addresses.start >= part.addresses.start) {
                measured.counted_above += view.bytes;
                measured.counted_above_huge += view.huge;
                measured.same_memory_as = measured.same_memory_as.or(Some(view.of));
            }
        }
        measured.reason = measured.reasons.iter().max_by_key(|(_, bytes)| *bytes).copied();
        all.push(measured);
    }
    let note = (counter.unsplit > 0).then(|| {
        format!(
            "{} mappings hold more than one region, and this kernel does not report which bytes are present \
             where (PAGEMAP_SCAN, Linux 6.7): each is counted with the region that begins in it",
            counter.unsplit
        )
    });
    (all, note)
}

impl PartCounts {
    /// Adds the pages of a mapping, and the reason for its base pages.
    fn add(
        &mut self,
        pages: &PageCounts,
        vma: &Vma,
        ranges: Ranges,
        reasons: Vec<(ReasonWithCauses, Bytes)>,
    ) {
        self.mappings += 1;
        self.ranges.sparse += ranges.sparse;
        self.ranges.sparse_bytes += ranges.sparse_bytes;
        self.ranges.missing += ranges.missing;
        self.ranges.dense_bytes += ranges.dense_bytes;
        for (judged, bytes) in reasons {
            self.memory = vma.memory();
            self.mount.clone_from(&vma.mount);
            match self.reasons.iter_mut().find(|(other, _)| *other == judged) {
                Some((_, sum)) => *sum += bytes,
                None => self.reasons.push((judged, bytes)),
            }
        }
        if vma.memory() == Memory::File {
            self.copies += vma.anonymous.min(pages.base);
        }
        self.pages.add(pages);
    }
}

/// The ranges of a mapping on base pages within these addresses; none if it is in the wrong place for huge pages.
fn ranges(
    counter: &PageCounter,
    machine: &MachineState,
    vma: &Vma,
    within: &Range<u64>,
    pages: &PageCounts,
) -> Ranges {
    let mut ranges = Ranges::default();
    let Some(pmd) = machine.pmd().filter(|pmd| pages.base > Bytes::ZERO && suits(vma, *pmd)) else {
        return ranges;
    };
    let occupancy = counter.occupancy(machine.sizes.base, pmd);
    let slots = occupancy.and_then(|occupancy| occupancy.slots(within).ok()).unwrap_or_default();
    for slot in slots.into_iter().filter(|slot| !slot.huge) {
        let missing = pmd.bytes().saturating_sub(slot.present);
        if missing > Bytes::ZERO {
            ranges.sparse += 1;
            ranges.sparse_bytes += slot.present;
            ranges.missing += missing;
        }
        if slot.present.0 * 100 >= pmd.bytes().0 * u64::from(MIN_RESIDENT_PERCENT) {
            ranges.dense_bytes += slot.present;
        }
    }
    // Before Linux 6.7 ranges of huge pages are among the dense ones.
    ranges.dense_bytes = ranges.dense_bytes.min(pages.base);
    ranges
}

/// Bytes on base pages before the first and after the last aligned huge page of a mapping, within these addresses;
/// `None` if unknown.
fn edges(
    counter: &PageCounter,
    machine: &MachineState,
    vma: &Vma,
    within: &Range<u64>,
    pages: &PageCounts,
) -> Option<Bytes> {
    let pmd = machine.pmd().filter(|pmd| suits(vma, *pmd))?;
    if pages.base == Bytes::ZERO {
        return None;
    }
    let whole = occupancy::whole(&vma.addresses, pmd);
    let ends = [within.start..within.end.min(whole.start), within.start.max(whole.end)..within.end];
    ends.iter().filter(|end| !end.is_empty()).map(|end| counter.base_bytes(end)).sum()
}

/// Whether huge pages fit into a mapping of memory that can be on them.
fn suits(vma: &Vma, pmd: PageSize) -> bool {
    vma.memory() != Memory::Pool && reason::by_place(vma.memory(), &vma.addresses, vma.offset, pmd).is_none()
}
