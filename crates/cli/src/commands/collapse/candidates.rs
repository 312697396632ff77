//! What of a process' memory could be made huge: its regions, what is wanted of them, and what is left out.

use std::{
    collections::{BTreeMap, HashMap, btree_map::Entry},
    ops::Range,
};

use anyhow::{Context, anyhow};
use hugewise_evidence::process::{self, Kind, Machine, Part, Survey};
use hugewise_jvm::regions;
use hugewise_linux::{
    hugepages::thp,
    pages::{count::PageCounts, occupancy::Occupancy, reason::Reason},
    proc::{
        process::Process,
        smaps::{self, Vma},
    },
    reading::Reading,
    root::Root,
    units::{Bytes, PageSize},
};
use hugewise_memory::collapse::{
    candidates::{self, Candidate, Sum},
    suitable::{self, Circumstances},
};

use crate::output::terminal::plain;

/// Which regions are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Wanted {
    /// The object heap of a JVM
    Heap,
    /// What malloc gave: direct buffers, native libraries; and anonymous memory that nobody names
    Malloc,
    /// All that can be converted
    All,
}

impl Wanted {
    /// Is this part meant?
    fn means(self, part: &Part) -> bool {
        match self {
            Wanted::All => true,
            Wanted::Heap => part.of_jvm == Some(regions::Kind::Heap),
            // Large allocations are mappings of their own, which nothing marks as malloc's.
            Wanted::Malloc => {
                part.kind == Kind::Malloc || (part.kind == Kind::Anonymous && part.of_jvm.is_none())
            }
        }
    }
}

/// A region of those that are meant; several of one name are one.
#[derive(Clone, Debug, Default)]
pub struct Region {
    /// What is present, counted once.
    pub resident: Bytes,
    /// Of that, what is on huge pages.
    pub huge: Bytes,
    /// To be converted.
    pub wanted: Sum,
    /// Too little is present in them.
    pub sparse: Sum,
    /// What cannot be converted, by the reason.
    pub left_out: BTreeMap<Reason, Bytes>,
}

/// What was seen of a process.
#[derive(Debug)]
pub struct Seen {
    /// Is it a JVM?
    pub is_jvm: bool,
    /// By name.
    pub regions: BTreeMap<String, Region>,
    /// In the order of their addresses.
    pub candidates: Vec<Candidate>,
    /// All of its memory, wanted or not.
    pub resident: Bytes,
    /// What should be known of it.
    pub notes: Vec<String>,
}

impl Seen {
    /// All that is to be converted.
    pub fn wanted(&self) -> Sum {
        let mut sum = Sum::default();
        self.candidates.iter().for_each(|candidate| sum.add(candidate.present));
        sum
    }

    /// What is on huge pages in the regions that are meant.
    pub fn huge(&self) -> Bytes {
        self.regions.values().map(|region| region.huge).sum()
    }
}

/// What to look for.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The size of a huge page.
    pub size: PageSize,
    /// Which regions.
    pub wanted: Wanted,
    /// So many percent of a huge page's worth must be present.
    pub min_present: u8,
}

/// What holds for all mappings of this process.
pub fn circumstances(root: &Root, process: &Process, size: PageSize) -> Circumstances {
    let shared = thp::read(root).pmd_shmem_enabled().map(|(word, _)| word.to_owned());
    Circumstances {
        size,
        process_off: process.thp_enabled.known() == Some(&false),
        shared_denied: shared.as_deref() == Some("deny"),
    }
}

/// Looks at a process, and changes nothing.
pub fn look(root: &Root, machine: &Machine, process: &Process, options: Options) -> anyhow::Result<Seen> {
    let pid = process.pid;
    let vmas = smaps::read_many(root, &pid.to_string())
        .map_err(|error| anyhow!(plain(&process.explain(root, &error).words)))?;
    let folios = Reading::unknown("not needed here");
    let Survey { naming, measured } = process::survey(root, machine, process, &vmas, &folios, false);
    let base = machine.sizes.base;
    let occupancy = Occupancy::open(root, pid, base, options.size).with_context(|| {
        format!(
            "reading /proc/{pid}/pagemap, which tells what is present: it takes the user of the process, or \
             CAP_SYS_PTRACE"
        )
    })?;
    let circumstances = circumstances(root, process, options.size);
    let mut seen = Seen {
        is_jvm: regions::has_libjvm(&vmas),
        regions: BTreeMap::new(),
        candidates: Vec::new(),
        resident: Bytes::ZERO,
        notes: naming.notes,
    };
    seen.notes.extend(measured.notes);
    let mut once = Once::default();
    for (part, measured) in naming.parts.iter().zip(&measured.parts) {
        let pages = measured.once();
        seen.resident += pages.resident();
        if !options.wanted.means(part) {
            continue;
        }
        let region = seen.regions.entry(part.name.clone()).or_default();
        region.count(&pages);
        // A mapping is looked at as a whole, with the part that it begins in: huge pages may cross parts.
        for vma in vmas_of(&vmas, &part.addresses) {
            match suitable::unsuitable(vma, &circumstances) {
                Some(why) => {
                    let small = vma.rss.saturating_sub(vma.thp).min(overlap(vma, &part.addresses));
                    *region.left_out.entry(why).or_default() += small;
                }
                None => {
                    let slots = occupancy
                        .slots(&within(vma, &part.addresses, options.size))
                        .with_context(|| format!("scanning the page table of process {pid}"))?;
                    let chosen = candidates::choose(&slots, options.size, options.min_present);
                    region.sparse.pages.0 += chosen.sparse.pages.0;
                    region.sparse.present_bytes += chosen.sparse.present_bytes;
                    chosen.candidates.into_iter().for_each(|one| once.add(&part.name, vma, one));
                }
            }
        }
    }
    for (name, candidate) in once.all {
        let region = seen.regions.entry(name).or_default();
        region.wanted.add(candidate.present);
        seen.candidates.push(candidate);
    }
    seen.regions.retain(|_, region| region.resident > Bytes::ZERO);
    seen.regions.values_mut().for_each(|region| region.left_out.retain(|_, bytes| *bytes > Bytes::ZERO));
    Ok(seen)
}

impl Region {
    fn count(&mut self, pages: &PageCounts) {
        self.resident += pages.resident();
        self.huge += pages.thp + pages.hugetlb.values().copied().sum();
    }
}

/// The mappings that lie in these addresses, in part or as a whole.
fn vmas_of<'a>(vmas: &'a [Vma], addresses: &Range<u64>) -> impl Iterator<Item = &'a Vma> + use<'a> {
    let (start, end) = (addresses.start, addresses.end);
    let first = vmas.partition_point(|vma| vma.addresses.end <= start);
    vmas[first..].iter().take_while(move |vma| vma.addresses.start < end)
}

fn overlap(vma: &Vma, addresses: &Range<u64>) -> Bytes {
    let end = vma.addresses.end.min(addresses.end);
    Bytes(end.saturating_sub(vma.addresses.start.max(addresses.start)))
}

/// The huge pages of a mapping that begin in these addresses.
fn within(vma: &Vma, addresses: &Range<u64>, size: PageSize) -> Range<u64> {
    let start = vma.addresses.start.max(addresses.start);
    let end = addresses.end.checked_next_multiple_of(size.bytes().0).unwrap_or(addresses.end);
    start..vma.addresses.end.min(end)
}

/// Memory that is mapped several times is converted once: where most of it is present.
#[derive(Default)]
struct Once {
    all: Vec<(String, Candidate)>,
    /// By device, inode and offset: which of them.
    shared: HashMap<((u64, u64), u64, u64), usize>,
}

impl Once {
    fn add(&mut self, name: &str, vma: &Vma, candidate: Candidate) {
        if vma.inode != 0 && vma.is_shared {
            let offset = vma.offset + (candidate.addresses.start - vma.addresses.start);
            let key = (vma.device, vma.inode, offset);
            if let Some(index) = self.shared.get(&key) {
                if let Some((_, known)) =
                    self.all.get_mut(*index).filter(|(_, c)| c.present < candidate.present)
                {
                    *known = candidate;
                }
                return;
            }
            self.shared.insert(key, self.all.len());
        }
        self.all.push((name.to_owned(), candidate));
    }
}

/// How a region was and is.
#[derive(Clone, Debug, Default)]
pub struct Compared {
    /// As it was.
    pub before: Region,
    /// As it is; nothing where nobody looked again.
    pub after: Option<Region>,
}

/// Puts the regions of two looks side by side.
pub fn compare(before: &Seen, after: Option<&Seen>) -> BTreeMap<String, Compared> {
    let mut all: BTreeMap<String, Compared> = BTreeMap::new();
    for (name, region) in &before.regions {
        all.insert(name.clone(), Compared { before: region.clone(), after: None });
    }
    for (name, region) in after.into_iter().flat_map(|after| &after.regions) {
        match all.entry(name.clone()) {
            Entry::Occupied(mut known) => known.get_mut().after = Some(region.clone()),
            Entry::Vacant(new) => {
                new.insert(Compared { before: Region::default(), after: Some(region.clone()) });
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_means_its_regions() {
        let part = |kind, of_jvm| Part { addresses: 0..1, name: String::new(), kind, of_jvm };
        let (heap, cards) = (regions::Kind::Heap, regions::Kind::GcTable);
        for (part, heap, malloc) in [
            (part(Kind::JvmLargePages, Some(heap)), true, false),
            (part(Kind::JvmLargePages, Some(cards)), false, false),
            (part(Kind::Malloc, Some(regions::Kind::Malloc)), false, true),
            (part(Kind::Malloc, None), false, true),
            // Of a JVM, and of a program that names nothing.
            (part(Kind::Anonymous, Some(regions::Kind::Metaspace)), false, false),
            (part(Kind::Anonymous, None), false, true),
            (part(Kind::Shared, None), false, false),
        ] {
            let means = [Wanted::Heap, Wanted::Malloc, Wanted::All].map(|wanted| wanted.means(&part));
            assert_eq!(means, [heap, malloc, true], "{part:?}");
        }
    }

    #[test]
    fn memory_that_is_mapped_three_times_is_converted_once() {
        let view =
            |start| Vma { addresses: start..start + (64 << 20), inode: 7, is_shared: true, ..Vma::default() };
        let candidate = |start: u64, mib: u64| Candidate {
            addresses: start..start + (2 << 20),
            present: Bytes(mib << 19),
        };
        let mut once = Once::default();
        for (base, present) in [(0x400_0000_0000, 3), (0x800_0000_0000, 4), (0x1000_0000_0000, 2)] {
            once.add("heap", &view(base), candidate(base + (4 << 20), present));
        }
        let private = Vma { inode: 0, is_shared: false, ..view(0x10_0000_0000) };
        once.add("malloc", &private, candidate(0x10_0040_0000, 4));
        let starts: Vec<u64> = once.all.iter().map(|(_, one)| one.addresses.start).collect();
        // Where most of it is present.
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
