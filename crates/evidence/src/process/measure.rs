//! Bytes of each region by page size.

use hugewise_linux::{
    pages::{
        count::{PageCounter, PageCounts},
        folios::FolioRange,
        views::Views,
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
    names::{self, Part},
    reason_by_settings::{self, MappingReadings, ReasonWithCauses},
    reason_words::QuotedReadings,
};

/// The counts of all parts, in the order of their addresses.
pub struct MeasuredParts {
    pub parts: Vec<PartCounts>,
    pub notes: Vec<String>,
}

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
    /// Reason for most of the bytes on base pages; `None` if there are none.
    pub reason: Option<ReasonWithCauses>,
    memory: Memory,
    /// Bytes on base pages by reason.
    reasons: Vec<(ReasonWithCauses, Bytes)>,
}

impl PartCounts {
    /// The pages without those that an earlier part maps as well.
    #[must_use]
    pub fn once(&self) -> PageCounts {
        let mut pages = self.pages.clone();
        pages.subtract(self.counted_above, self.counted_above_huge);
        pages
    }

    /// The readings that the text of the reason quotes.
    pub fn evidence(&self, process: &Process) -> QuotedReadings {
        QuotedReadings {
            pid: process.pid,
            split: self.pages.split,
            swap: self.pages.swap,
            memory: self.memory,
        }
    }
}

/// Counts every part. `parts` are sorted by address and do not overlap.
pub fn measure(
    root: &Root,
    machine: &MachineState,
    process: &Process,
    vmas: &[Vma],
    parts: &[Part],
    folios: &Reading<Vec<FolioRange>>,
    views: &Views,
) -> MeasuredParts {
    let mut counter = PageCounter::of(root, process.pid);
    let context = Context {
        machine,
        folios: folios.known().map_or(&[], Vec::as_slice),
        process_off: process.thp_enabled.known() == Some(&false),
        wants_pool: names::wants_pool(&process.command),
    };
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
            let pages = counter.count(vma, &part.addresses, context.folios, machine.pmd());
            measured.add(vma, pages, part, &context);
            if let Some(view) = views.get(&index).filter(|_| vma.addresses.start >= part.addresses.start) {
                measured.counted_above += view.bytes;
                measured.counted_above_huge += view.huge;
                measured.same_memory_as = measured.same_memory_as.or(Some(view.of));
            }
        }
        let most = measured.reasons.iter().max_by_key(|(_, bytes)| *bytes);
        measured.reason = most.map(|(judged, _)| *judged);
        all.push(measured);
    }
    let mut notes = Vec::new();
    if counter.unsplit > 0 {
        notes.push(format!(
            "{} mappings hold more than one region, and this kernel does not report which bytes are present \
             where (PAGEMAP_SCAN, Linux 6.7): each is counted with the region that begins in it",
            counter.unsplit
        ));
    }
    MeasuredParts { parts: all, notes }
}

struct Context<'a> {
    machine: &'a MachineState,
    folios: &'a [FolioRange],
    process_off: bool,
    wants_pool: bool,
}

impl PartCounts {
    fn add(&mut self, vma: &Vma, pages: PageCounts, part: &Part, context: &Context<'_>) {
        let memory = vma.memory();
        let seen = MappingReadings {
            addresses: vma.addresses.clone(),
            offset: vma.offset,
            memory,
            advice: vma.advice,
            eligible: vma.thp_eligible,
            small: pages.base,
            thp: vma.thp,
            split: pages.split,
            swap: pages.swap,
            process_off: context.process_off,
            wants_pool: context.wants_pool && part.kind.is_for_large_pages(),
        };
        self.mappings += 1;
        if let Some(judged) = reason_by_settings::judge(&seen, context.machine) {
            self.memory = memory;
            let bytes = pages.base + pages.swap;
            match self.reasons.iter_mut().find(|(other, _)| *other == judged) {
                Some((_, sum)) => *sum += bytes,
                None => self.reasons.push((judged, bytes)),
            }
        }
        self.pages.add(&pages);
    }
}
