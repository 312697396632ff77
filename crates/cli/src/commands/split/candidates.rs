//! The huge pages of a process that can be split, and their pages after it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
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
    collapse::{candidates::Candidate, refusals::Refusal},
    split::{self, MAX_PAGES_READ, ZeroEstimate},
};

use crate::commands::collapse::candidates::{DistinctCandidates, ProcessScan, RegionSelection, overlap};

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
    pub shared: Vec<Candidate>,
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
        self.anonymous.iter().chain(&self.shared).cloned().collect()
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
    for (name, _) in &shared.all {
        regions.entry(name.clone()).or_default().to_split.0 += 1;
    }
    regions.retain(|_, region| region.resident > Bytes::ZERO);
    regions.values_mut().for_each(|region| region.left_out.retain(|_, bytes| *bytes > Bytes::ZERO));
    Ok(SplitSample {
        is_jvm: has_libjvm(&scan.vmas),
        regions,
        anonymous,
        shared: shared.all.into_iter().map(|(_, page)| page).collect(),
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
    let file = match File::open(root.path(format!("proc/{pid}/mem"))) {
        Ok(file) => file,
        Err(error) => return Reading::unknown(format!("/proc/{pid}/mem: {error}")),
    };
    let (mut zero, mut read, mut refused) = (Bytes::ZERO, Pages(0), None);
    let mut memory = Vec::new();
    for index in split::indices_to_read(pages.len(), MAX_PAGES_READ) {
        let Some(page) = pages.get(index) else { continue };
        memory.resize((page.addresses.end - page.addresses.start) as usize, 0);
        match file.read_exact_at(&mut memory, page.addresses.start) {
            Ok(()) => {
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

/// The pages of memory after it was split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PagesAfter {
    /// Huge pages that the kernel skipped without an error, or that were collapsed again; adjacent ones are one.
    pub still_huge: Vec<Range<u64>>,
    /// Bytes that are now the kernel's zero page: zero-filled base pages that were given back.
    pub given_back: Bytes,
}

/// Reads the pages after the split of `pages`, of which the kernel refused `refused`.
pub fn after(occupancy: &Occupancy, pages: &[Candidate], refused: &[Refusal]) -> io::Result<PagesAfter> {
    let refused: BTreeSet<u64> = pages
        .iter()
        .map(|page| page.addresses.start)
        .filter(|start| refused.iter().any(|refusal| refusal.addresses.contains(start)))
        .collect();
    let mut seen = PagesAfter::default();
    for range in merged(pages.iter().map(|page| page.addresses.clone())) {
        seen.given_back += occupancy.on_zero_page(&range)?;
        let page = pages.first().map_or(0, |page| page.addresses.end - page.addresses.start);
        let huge = occupancy.slots(&range)?.into_iter().filter(|slot| slot.huge).map(|slot| slot.start);
        let skipped = huge.filter(|start| !refused.contains(start)).map(|start| start..start + page);
        seen.still_huge.extend(merged(skipped));
    }
    Ok(seen)
}

/// The ranges, adjacent ones as one.
fn merged(ranges: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
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
    use super::*;

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
