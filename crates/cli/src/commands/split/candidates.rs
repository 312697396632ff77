//! The huge pages of a process that can be split, and their pages after it.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    ops::Range,
    os::unix::fs::FileExt,
};

use hugewise_evidence::process::MachineState;
use hugewise_jvm::regions::has_libjvm;
use hugewise_linux::{
    pages::{occupancy::Occupancy, reason::Reason},
    proc::{
        process::Process,
        smaps::{Memory, Vma},
    },
    reading::{Reading, Reason as Cause},
    root::Root,
    units::{Bytes, PageSize, Pages},
};
use hugewise_memory::{
    collapse::candidates::Candidate,
    split::{self, MAX_PAGES_READ, ZeroEstimate},
};

use crate::commands::collapse::candidates::{
    DistinctCandidate, DistinctCandidates, PageId, ProcessScan, RegionSelection, overlap,
};

/// A selected region; all parts of one name are one region.
#[derive(Clone, Debug, Default)]
pub struct RegionToSplit {
    /// Resident bytes. Memory that is mapped several times is counted once.
    pub resident: Bytes,
    /// Resident bytes on huge pages.
    pub huge: Bytes,
    /// Huge pages to split.
    pub to_split: Pages,
    /// Bytes on huge pages that cannot be split, by reason.
    pub left_out: BTreeMap<Reason, Bytes>,
}

/// One sample of a process.
#[derive(Debug)]
pub struct SplitSample {
    pub is_jvm: bool,
    /// Selected regions by name.
    pub regions: BTreeMap<String, RegionToSplit>,
    /// Huge pages of anonymous memory, sorted by address.
    pub anonymous: Vec<Candidate>,
    /// Huge pages of shared memory; each once, even if it is mapped several times.
    pub shared: Vec<DistinctCandidate>,
    /// Resident bytes of the whole process.
    pub resident: Bytes,
    pub notes: Vec<String>,
    pub occupancy: Occupancy,
}

impl SplitSample {
    /// Bytes on huge pages in the selected regions.
    pub fn huge(&self) -> Bytes {
        self.regions.values().map(|region| region.huge).sum()
    }

    /// Whether the kernel reports which memory is on huge pages: since Linux 6.7.
    pub fn can_locate(&self, size: PageSize) -> bool {
        self.occupancy.on_zero_page(&(0..size.bytes().0)).is_ok()
    }

    /// All huge pages to split.
    pub fn pages(&self) -> Vec<Candidate> {
        self.identified().map(|(_, page)| page.clone()).collect()
    }

    fn identified(&self) -> impl Iterator<Item = (PageId, &Candidate)> {
        let anonymous = self.anonymous.iter().map(|page| (PageId::Private(page.addresses.start), page));
        anonymous.chain(self.shared.iter().map(|shared| (shared.page, &shared.candidate)))
    }

    /// The huge pages of `before` that are huge in this later sample: the kernel skipped them without an error, or
    /// they were collapsed again. Shared memory may be huge at another of its addresses.
    pub fn still_huge(&self, before: &SplitSample) -> Vec<Candidate> {
        let split: BTreeSet<PageId> = before.identified().map(|(id, _)| id).collect();
        self.identified().filter(|(id, _)| split.contains(id)).map(|(_, page)| page.clone()).collect()
    }
}

/// Samples a process without changing it.
pub fn sample(
    root: &Root,
    machine: &MachineState,
    process: &Process,
    size: PageSize,
    selected: RegionSelection,
) -> anyhow::Result<SplitSample> {
    let scan = ProcessScan::read(root, machine, process, size)?;
    let mut shared = DistinctCandidates::default();
    let (mut regions, mut anonymous): (BTreeMap<String, RegionToSplit>, Vec<Candidate>) = Default::default();
    let mut resident = Bytes::ZERO;
    for (part, counts) in &scan.survey.parts {
        let pages = counts.once();
        resident += pages.resident();
        if !selected.selects(part) {
            continue;
        }
        let region = regions.entry(part.name.clone()).or_default();
        region.resident += pages.resident();
        region.huge += pages.thp + pages.hugetlb.values().copied().sum();
        for vma in scan.vmas_of(part) {
            if let Some((reason, huge)) = left_out(vma) {
                *region.left_out.entry(reason).or_default() += huge.min(overlap(vma, &part.addresses));
                continue;
            }
            for slot in scan.slots(vma, part)?.into_iter().filter(|slot| slot.huge) {
                let end = slot.start.saturating_add(size.bytes().0);
                let page = Candidate { addresses: slot.start..end, present: slot.present };
                match vma.memory() {
                    Memory::Anonymous => {
                        region.to_split.0 += 1;
                        anonymous.push(page);
                    }
                    _ => shared.add(&part.name, vma, page),
                }
            }
        }
    }
    for shared in &shared.all {
        regions.entry(shared.region.clone()).or_default().to_split.0 += 1;
    }
    regions.retain(|_, region| region.resident > Bytes::ZERO);
    regions.values_mut().for_each(|region| region.left_out.retain(|_, bytes| *bytes > Bytes::ZERO));
    Ok(SplitSample {
        is_jvm: has_libjvm(&scan.vmas),
        regions,
        anonymous,
        shared: shared.all,
        resident,
        notes: scan.survey.notes,
        occupancy: scan.occupancy,
    })
}

/// The reason why the huge pages of this mapping cannot be split, and their bytes; `None` if they can.
fn left_out(vma: &Vma) -> Option<(Reason, Bytes)> {
    match vma.memory() {
        Memory::Anonymous | Memory::Shared => None,
        Memory::Pool => Some((Reason::Pool, vma.hugetlb)),
        Memory::File => Some((Reason::File, vma.thp)),
        Memory::Kernel => Some((Reason::Kernel, vma.thp)),
    }
}

/// Estimates the zero-filled memory in huge pages of anonymous memory, by reading them: all of them, or some
/// that are spread over all.
///
/// Reads /proc/PID/mem: process_vm_readv(2) pins what it reads, for which the kernel copies pages that a fork
/// shares.
pub fn estimate_zeros(root: &Root, pid: u32, pages: &[Candidate], base: PageSize) -> Reading<ZeroEstimate> {
    let file = match root.open_patiently(format!("proc/{pid}/mem")) {
        Ok(file) => file,
        Err(error) => return Reading::unknown(error.to_string()),
    };
    let (mut zero, mut read, mut refused) = (Bytes::ZERO, Pages(0), None);
    let mut memory = Vec::new();
    for index in split::indices_to_read(pages.len(), MAX_PAGES_READ) {
        let Some(page) = pages.get(index) else { continue };
        let (mut buffer, addresses) = (std::mem::take(&mut memory), page.addresses.clone());
        let filled = file.with(move |file| {
            buffer.resize((addresses.end - addresses.start) as usize, 0);
            file.read_exact_at(&mut buffer, addresses.start)?;
            Ok(buffer)
        });
        match filled {
            Ok(filled) => {
                memory = filled;
                zero += split::zero_filled(&memory, base);
                read.0 += 1;
            }
            Err(error) => refused = Some(error),
        }
    }
    let estimate = ZeroEstimate::of(zero, read, Pages(pages.len() as u64));
    let reason = || match refused {
        Some(error) => Cause::new(format!("cannot read the memory of process {pid}: {error}")),
        None => Cause::new("no huge page could be read"),
    };
    estimate.ok_or_else(reason).into()
}

/// Bytes of split pages that are now the kernel's zero page: zero-filled base pages that were given back.
pub fn given_back(occupancy: &Occupancy, pages: &[Candidate]) -> io::Result<Bytes> {
    merged(pages.iter().map(|page| page.addresses.clone()))
        .iter()
        .map(|range| occupancy.on_zero_page(range))
        .sum()
}

/// The ranges, adjacent ones as one.
pub fn merged(ranges: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut all: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match all.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => all.push(range),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    /// A sample with huge pages of anonymous memory and of one file, by address and offset.
    fn huge(anonymous: &[u64], shared_pages: &[(u64, u64)]) -> Result<SplitSample, Box<dyn Error>> {
        let size: PageSize = "2m".parse()?;
        let page = |start: u64| Candidate { addresses: start..start + size.bytes().0, present: size.bytes() };
        let id = |offset| PageId::Shared { device: (0, 1), inode: 7, offset };
        let shared = |&(start, offset): &(u64, u64)| DistinctCandidate {
            region: "heap".to_owned(),
            page: id(offset),
            candidate: page(start),
        };
        Ok(SplitSample {
            is_jvm: true,
            regions: BTreeMap::new(),
            anonymous: anonymous.iter().map(|&start| page(start)).collect(),
            shared: shared_pages.iter().map(shared).collect(),
            resident: Bytes::ZERO,
            notes: Vec::new(),
            occupancy: Occupancy::open(&Root::live(), std::process::id(), "4k".parse()?, size)?,
        })
    }

    #[test]
    fn shared_memory_that_is_huge_at_another_address_is_still_huge() -> Result<(), Box<dyn Error>> {
        const MIB: u64 = 1 << 20;
        let before = huge(&[16 * MIB, 32 * MIB], &[(64 * MIB, 0), (66 * MIB, 2 * MIB)])?;
        // One anonymous page and one of the file were skipped; another page of each kind is new.
        let after = huge(&[32 * MIB, 48 * MIB], &[(130 * MIB, 2 * MIB), (132 * MIB, 4 * MIB)])?;
        let starts: Vec<u64> =
            after.still_huge(&before).iter().map(|page| page.addresses.start / MIB).collect();
        assert_eq!(starts, [32, 130]);
        Ok(())
    }

    #[test]
    fn adjacent_ranges_are_one() {
        assert_eq!(merged([1..2, 2..3, 5..6, 6..9].into_iter()), [1..3, 5..9]);
    }

    #[test]
    fn memory_that_is_not_split_has_its_reason() {
        let vma = |name: &str| Vma {
            name: name.to_owned(),
            thp: Bytes(2 << 20),
            hugetlb: Bytes(4 << 20),
            ..Vma::default()
        };
        assert_eq!(left_out(&vma("")), None);
        assert_eq!(left_out(&vma("/memfd:java_heap (deleted)")), None);
        assert_eq!(left_out(&vma("/lib/libjvm.so")), Some((Reason::File, Bytes(2 << 20))));
        let pool = Vma { is_hugetlb: true, ..vma("") };
        assert_eq!(left_out(&pool), Some((Reason::Pool, Bytes(4 << 20))));
    }
}
