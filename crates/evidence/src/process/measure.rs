//! Bytes of each region by page size.

use hugewise_linux::{
    pages::{
        count::{PageCounter, PageCounts},
        folios::FolioRange,
        views,
    },
    proc::{
        process::Process,
        smaps::{Memory, Vma},
    },
    reading::Reading,
    root::Root,
    units::Bytes,
};

use super::{
    MachineState,
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
    /// Kind of most of the memory.
    pub memory: Memory,
    /// Bytes on base pages by reason.
    pub(super) reasons: Vec<(ReasonWithCauses, Bytes)>,
}

impl PartCounts {
    /// The pages without those that an earlier part maps as well.
    pub fn once(&self) -> PageCounts {
        let mut pages = self.pages.clone();
        pages.subtract(self.counted_above, self.counted_above_huge);
        pages
    }
}

/// Counts every part, in the same order, and remarks on the counts. `parts` are sorted by address and do not
/// overlap.
pub fn measure(
    root: &Root,
    machine: &MachineState,
    process: &Process,
    vmas: &[Vma],
    parts: &[Part],
    folios: &Reading<Vec<FolioRange>>,
) -> (Vec<PartCounts>, Option<String>) {
    let views = views::find(root, process.pid, vmas);
    let mut counter = PageCounter::of(root, process.pid);
    let folios: &[FolioRange] = folios.known().map_or(&[], Vec::as_slice);
    let process_off = process.thp_enabled.known() == Some(&false);
    let jvm_wants_pool = names::wants_pool(&process.command);
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
            let seen = MappingReadings {
                addresses: vma.addresses.clone(),
                offset: vma.offset,
                memory: vma.memory(),
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
            measured.add(&pages, seen.memory, reason_by_settings::judge(&seen, machine));
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
    fn add(&mut self, pages: &PageCounts, memory: Memory, reason: Option<ReasonWithCauses>) {
        self.mappings += 1;
        if let Some(judged) = reason {
            self.memory = memory;
            let bytes = pages.base + pages.swap;
            match self.reasons.iter_mut().find(|(other, _)| *other == judged) {
                Some((_, sum)) => *sum += bytes,
                None => self.reasons.push((judged, bytes)),
            }
        }
        self.pages.add(pages);
    }
}
