//! The memory of a process that can be collapsed: its regions, candidates, and skipped memory.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
};

use anyhow::{Context, anyhow, ensure};
use hugewise_evidence::process::{self, Kind, MachineState, Part, Survey};
use hugewise_jvm::regions;
use hugewise_linux::{
    hugepages::thp,
    pages::{
        occupancy::{Occupancy, Slot},
        reason::Reason as BasePageReason,
    },
    proc::{
        process::Process,
        smaps::{self, Vma},
    },
    reading::{Reading, Reason},
    root::Root,
    units::{Bytes, PageSize},
};
use hugewise_memory::collapse::{
    candidates::{self, Candidate, MIN_RESIDENT_PERCENT, Sum},
    suitable::{self, Circumstances},
};

use crate::output::terminal::plain;

/// Regions to collapse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RegionSelection {
    /// The object heap of a JVM
    Heap,
    /// Malloc'd memory (direct buffers, native libraries), and anonymous memory without a name
    Malloc,
    /// All memory that can be collapsed
    All,
}

impl RegionSelection {
    /// An error if `process` has no such region.
    pub fn ensure_exists(self, is_jvm: bool, process: &str) -> anyhow::Result<()> {
        ensure!(
            is_jvm || self != RegionSelection::Heap,
            "{process} is not a JVM and has no object heap; use '--region malloc' for the heap of C programs, or \
             '--region all' for all memory"
        );
        Ok(())
    }

    /// Whether this part is selected.
    pub fn selects(self, part: &Part) -> bool {
        match self {
            RegionSelection::All => true,
            RegionSelection::Heap => part.of_jvm == Some(regions::RegionKind::Heap),
            // Large allocations are separate mappings without a mark of malloc.
            RegionSelection::Malloc => {
                part.kind == Kind::Malloc || (part.kind == Kind::Anonymous && part.of_jvm.is_none())
            }
        }
    }
}

/// A selected region; all parts of one name are one region.
#[derive(Clone, Debug, Default)]
pub struct SelectedRegion {
    /// Resident bytes. Memory that is mapped several times is counted once.
    pub resident: Bytes,
    /// Resident bytes on huge pages.
    pub huge: Bytes,
    /// Candidates for collapse.
    pub wanted: Sum,
    /// Ranges with too few resident pages.
    pub sparse: Sum,
    /// Bytes on base pages that cannot be collapsed, by reason.
    pub left_out: BTreeMap<BasePageReason, Bytes>,
}

/// One sample of a process.
#[derive(Debug)]
pub struct ProcessSample {
    /// Whether it is a JVM.
    pub is_jvm: bool,
    /// Selected regions by name.
    pub regions: BTreeMap<String, SelectedRegion>,
    /// Sorted by address.
    pub candidates: Vec<Candidate>,
    /// Locked memory: huge pages of it cannot be split again.
    pub locked: Vec<Range<u64>>,
    /// Resident bytes of the whole process.
    pub resident: Bytes,
    pub notes: Vec<String>,
}

impl ProcessSample {
    /// Sum of all candidates.
    pub fn wanted(&self) -> Sum {
        let mut sum = Sum::default();
        self.candidates.iter().for_each(|candidate| sum.add(candidate.present));
        sum
    }

    /// Bytes on huge pages in the selected regions.
    pub fn huge(&self) -> Bytes {
        self.regions.values().map(|region| region.huge).sum()
    }
}

/// Options that select the candidates, and limit the collapse.
#[derive(clap::Args, Debug)]
pub struct CollapseOptions {
    /// Regions to collapse
    #[arg(long, value_enum, default_value_t = RegionSelection::All, value_name = "REGION")]
    pub region: RegionSelection,

    /// Collapse at most this much per second; unlimited by default
    #[arg(long, value_name = "GiB/s", value_parser = rate)]
    pub rate: Option<f64>,

    /// Smallest resident share of a range that is collapsed; its missing pages become resident
    #[arg(long, value_name = "PERCENT", default_value_t = MIN_RESIDENT_PERCENT, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub min_present: u8,

    /// Allow the kernel to reclaim and compact memory: other programs may have to wait
    #[arg(long)]
    pub allow_reclaim: bool,

    /// Report candidates without collapsing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}

pub fn rate(text: &str) -> Result<f64, Reason> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(rate),
        _ => Reason::err("expected a number above 0, in GiB/s"),
    }
}

/// Circumstances that all mappings of this process share.
pub fn circumstances(root: &Root, process: &Process, size: PageSize) -> Circumstances {
    Circumstances {
        size,
        process_off: process.thp_enabled.known() == Some(&false),
        shared_denied: thp::read(root).pmd_shmem_enabled().is_some_and(|(word, _)| word == "deny"),
    }
}

/// The mappings of a process, and its page table.
pub struct ProcessScan {
    pid: u32,
    size: PageSize,
    pub vmas: Vec<Vma>,
    pub survey: Survey,
    pub occupancy: Occupancy,
}

impl ProcessScan {
    /// Reads a process without changing it.
    pub fn read(
        root: &Root,
        machine: &MachineState,
        process: &Process,
        size: PageSize,
    ) -> anyhow::Result<ProcessScan> {
        let pid = process.pid;
        let vmas = smaps::read_many(root, &pid.to_string())
            .map_err(|error| anyhow!(plain(&process.explain(root, &error).words)))?;
        let folios = Reading::unknown("not needed here");
        let survey = process::survey(root, machine, process, &vmas, &folios, process::Options::default());
        let occupancy = Occupancy::open(root, pid, machine.sizes.base, size).with_context(|| {
            format!("cannot read /proc/{pid}/pagemap: it needs the user of the process or CAP_SYS_PTRACE")
        })?;
        Ok(ProcessScan { pid, size, vmas, survey, occupancy })
    }

    /// The mappings that overlap this part.
    pub fn vmas_of(&self, part: &Part) -> impl Iterator<Item = &Vma> + use<'_> {
        vmas_of(&self.vmas, &part.addresses)
    }

    /// The aligned ranges of a mapping that begin in this part and have present pages.
    pub fn slots(&self, vma: &Vma, part: &Part) -> anyhow::Result<Vec<Slot>> {
        let range = within(vma, &part.addresses, self.size);
        let pid = self.pid;
        self.occupancy.slots(&range).with_context(|| format!("cannot scan the page table of process {pid}"))
    }
}

/// Samples a process without changing it.
pub fn sample(
    root: &Root,
    machine: &MachineState,
    process: &Process,
    size: PageSize,
    options: &CollapseOptions,
) -> anyhow::Result<ProcessSample> {
    let scan = ProcessScan::read(root, machine, process, size)?;
    let circumstances = circumstances(root, process, size);
    let mut seen = ProcessSample {
        is_jvm: regions::has_libjvm(&scan.vmas),
        regions: BTreeMap::new(),
        candidates: Vec::new(),
        locked: scan.vmas.iter().filter(|vma| vma.is_locked).map(|vma| vma.addresses.clone()).collect(),
        resident: Bytes::ZERO,
        notes: scan.survey.notes.clone(),
    };
    let mut once = DistinctCandidates::default();
    for (part, counts) in &scan.survey.parts {
        let pages = counts.once();
        seen.resident += pages.resident();
        if !options.region.selects(part) {
            continue;
        }
        let region = seen.regions.entry(part.name.clone()).or_default();
        region.resident += pages.resident();
        region.huge += pages.thp + pages.hugetlb.values().copied().sum();
        // A huge page may cross parts; it belongs to the part in which it begins.
        for vma in scan.vmas_of(part) {
            match suitable::unsuitable(vma, &circumstances) {
                Some(why) => {
                    let small = vma.rss.saturating_sub(vma.thp).min(overlap(vma, &part.addresses));
                    *region.left_out.entry(why).or_default() += small;
                }
                None => {
                    let chosen = candidates::choose(&scan.slots(vma, part)?, size, options.min_present);
                    region.sparse.pages.0 += chosen.sparse.pages.0;
                    region.sparse.present_bytes += chosen.sparse.present_bytes;
                    chosen.candidates.into_iter().for_each(|one| once.add(&part.name, vma, one));
                }
            }
        }
    }
    for DistinctCandidate { region, candidate, .. } in once.all {
        seen.regions.entry(region).or_default().wanted.add(candidate.present);
        seen.candidates.push(candidate);
    }
    seen.regions.retain(|_, region| region.resident > Bytes::ZERO);
    seen.regions.values_mut().for_each(|region| region.left_out.retain(|_, bytes| *bytes > Bytes::ZERO));
    Ok(seen)
}

/// The mappings that overlap these addresses.
fn vmas_of<'a>(vmas: &'a [Vma], addresses: &Range<u64>) -> impl Iterator<Item = &'a Vma> + use<'a> {
    let (start, end) = (addresses.start, addresses.end);
    let first = vmas.partition_point(|vma| vma.addresses.end <= start);
    vmas[first..].iter().take_while(move |vma| vma.addresses.start < end)
}

pub fn overlap(vma: &Vma, addresses: &Range<u64>) -> Bytes {
    let end = vma.addresses.end.min(addresses.end);
    Bytes(end.saturating_sub(vma.addresses.start.max(addresses.start)))
}

/// The range of a mapping's huge pages that begin in these addresses.
fn within(vma: &Vma, addresses: &Range<u64>, size: PageSize) -> Range<u64> {
    let start = vma.addresses.start.max(addresses.start);
    let end = addresses.end.checked_next_multiple_of(size.bytes().0).unwrap_or(addresses.end);
    start..vma.addresses.end.min(end)
}

/// What a huge page is, whatever the address at which it is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PageId {
    /// Memory with one address in the process.
    Private(u64),
    /// Shared memory, which can be mapped several times.
    Shared { device: (u64, u64), inode: u64, offset: u64 },
}

impl PageId {
    fn of(vma: &Vma, start: u64) -> PageId {
        if vma.inode == 0 || !vma.is_shared {
            return PageId::Private(start);
        }
        let offset = vma.offset + (start - vma.addresses.start);
        PageId::Shared { device: vma.device, inode: vma.inode, offset }
    }
}

/// A candidate that is listed once, although its memory may be mapped at several addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DistinctCandidate {
    /// Name of the region.
    pub region: String,
    pub page: PageId,
    pub candidate: Candidate,
}

/// Candidates without duplicates: of several mappings of the same memory, the one with most resident pages.
#[derive(Default)]
pub struct DistinctCandidates {
    pub all: Vec<DistinctCandidate>,
    /// Index into `all`.
    index: HashMap<PageId, usize>,
}

impl DistinctCandidates {
    pub fn add(&mut self, region: &str, vma: &Vma, candidate: Candidate) {
        let page = PageId::of(vma, candidate.addresses.start);
        if let Some(index) = self.index.get(&page) {
            let known = &mut self.all[*index].candidate;
            if known.present < candidate.present {
                *known = candidate;
            }
            return;
        }
        self.index.insert(page, self.all.len());
        self.all.push(DistinctCandidate { region: region.to_owned(), page, candidate });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_means_its_regions() {
        let part = |kind, of_jvm| Part { addresses: 0..1, name: String::new(), kind, of_jvm };
        let (heap, cards) = (regions::RegionKind::Heap, regions::RegionKind::GcTable);
        for (part, heap, malloc) in [
            (part(Kind::JvmLargePages, Some(heap)), true, false),
            (part(Kind::JvmLargePages, Some(cards)), false, false),
            (part(Kind::Malloc, Some(regions::RegionKind::Malloc)), false, true),
            (part(Kind::Malloc, None), false, true),
            // Anonymous memory of a JVM, and of another program.
            (part(Kind::Anonymous, Some(regions::RegionKind::Metaspace)), false, false),
            (part(Kind::Anonymous, None), false, true),
            (part(Kind::Shared, None), false, false),
        ] {
            let selects = [RegionSelection::Heap, RegionSelection::Malloc, RegionSelection::All]
                .map(|wanted| wanted.selects(&part));
            assert_eq!(selects, [heap, malloc, true], "{part:?}");
        }
    }

    #[test]
    fn memory_that_is_mapped_three_times_is_collapsed_once() {
        let view =
            |start| Vma { addresses: start..start + (64 << 20), inode: 7, is_shared: true, ..Vma::default() };
        let candidate = |start: u64, mib: u64| Candidate {
            addresses: start..start + (2 << 20),
            present: Bytes(mib << 19),
        };
        let mut once = DistinctCandidates::default();
        for (base, present) in [(0x400_0000_0000, 3), (0x800_0000_0000, 4), (0x1000_0000_0000, 2)] {
            once.add("heap", &view(base), candidate(base + (4 << 20), present));
        }
        let private = Vma { inode: 0, is_shared: false, ..view(0x10_0000_0000) };
        once.add("malloc", &private, candidate(0x10_0040_0000, 4));
        let starts: Vec<u64> = once.all.iter().map(|one| one.candidate.addresses.start).collect();
        // The mapping with most resident pages.
        assert_eq!(starts, [0x800_0040_0000, 0x10_0040_0000]);
    }

    #[test]
    fn a_huge_page_belongs_to_the_region_that_it_begins_in() -> Result<(), Box<dyn std::error::Error>> {
        let size: PageSize = "2m".parse()?;
        let vma = Vma { addresses: 0x20_0000..0x100_0000, ..Vma::default() };
        assert_eq!(within(&vma, &(0x20_0000..0x50_0000), size), 0x20_0000..0x60_0000);
        assert_eq!(within(&vma, &(0x50_0000..0x100_0000), size), 0x50_0000..0x100_0000);
        Ok(())
    }
}
