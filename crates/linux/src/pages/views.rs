//! Memory that a process maps several times, as ZGC did before JDK 21, is counted once.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    ops::Range,
};

use crate::{
    proc::smaps::Vma,
    root::Root,
    sys::{
        file::patient::PatientFile,
        pagemap::{self, MappedRange, PresentBytes},
    },
    units::Bytes,
};

/// Memory that an earlier mapping has as well, by index of the later mapping.
pub type Views = HashMap<usize, View>;

/// A mapping of memory that an earlier mapping of the same process maps as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// First address of the earlier mapping.
    pub of: u64,
    /// Bytes present here and in an earlier mapping.
    pub bytes: Bytes,
    /// Of `bytes`, those that huge page table entries map here.
    pub huge: Bytes,
}

/// Finds shared mappings of the same part of the same file.
pub fn find(root: &Root, pid: u32, vmas: &[Vma]) -> Views {
    let mut by_file: BTreeMap<((u64, u64), u64), Vec<usize>> = BTreeMap::new();
    for (index, vma) in vmas.iter().enumerate() {
        if vma.inode != 0 && vma.is_shared && vma.rss + vma.hugetlb > Bytes::ZERO {
            by_file.entry((vma.device, vma.inode)).or_default().push(index);
        }
    }
    let mut views = Views::new();
    let mut pagemap = None;
    for indices in by_file.into_values().filter(|indices| any_overlap(indices, vmas)) {
        let pagemap = pagemap.get_or_insert_with(|| root.open_patiently(format!("proc/{pid}/pagemap")).ok());
        let mut seen = CountedOffsets::default();
        for index in indices {
            let vma = &vmas[index];
            let (mut bytes, mut huge, mut of) = (0, 0, None);
            for mapped in present(pagemap.as_ref(), vma) {
                let (before, first) = seen.add(mapped.addresses, vma.addresses.start);
                bytes += before;
                huge += if mapped.huge { before } else { 0 };
                of = of.or(first);
            }
            if let Some(of) = of {
                let most = vma.rss + vma.hugetlb;
                views.insert(index, View { of, bytes: Bytes(bytes).min(most), huge: Bytes(huge).min(most) });
            }
        }
    }
    views
}

/// Shared memory of several processes, whose pages are counted once.
#[derive(Default)]
pub struct SharedByProcesses(BTreeMap<((u64, u64), u64), CountedOffsets>);

impl SharedByProcesses {
    /// Adds the shared mappings of a process. Returns the bytes of each that earlier processes have as well, by index;
    /// mappings of memory that the process itself maps before are left out.
    pub fn add(&mut self, root: &Root, pid: u32, vmas: &[Vma]) -> Views {
        let own = find(root, pid, vmas);
        let pagemap = root.open_patiently(format!("proc/{pid}/pagemap")).ok();
        let mut views = Views::new();
        for (index, vma) in vmas.iter().enumerate() {
            let resident = vma.rss + vma.hugetlb;
            if vma.inode == 0 || !vma.is_shared || resident == Bytes::ZERO || own.contains_key(&index) {
                continue;
            }
            let seen = self.0.entry((vma.device, vma.inode)).or_default();
            let (mut bytes, mut huge) = (0, 0);
            for mapped in present(pagemap.as_ref(), vma) {
                let (before, _) = seen.add(mapped.addresses, vma.addresses.start);
                bytes += before;
                huge += if mapped.huge { before } else { 0 };
            }
            if bytes > 0 {
                let of = vma.addresses.start;
                let (bytes, huge) = (Bytes(bytes).min(resident), Bytes(huge).min(resident));
                views.insert(index, View { of, bytes, huge });
            }
        }
        views
    }
}

fn any_overlap(indices: &[usize], vmas: &[Vma]) -> bool {
    let mut offsets: Vec<Range<u64>> = indices.iter().map(|index| offsets(&vmas[*index])).collect();
    offsets.sort_unstable_by_key(|offsets| offsets.start);
    offsets.windows(2).any(|two| two[1].start < two[0].end)
}

/// Disjoint ranges of file offsets, by start: the end, and the address of the first mapping.
#[derive(Default)]
struct CountedOffsets(BTreeMap<u64, (u64, u64)>);

impl CountedOffsets {
    /// Adds offsets of the mapping at `address`. Returns the number of those already in the set, and the
    /// mapping of the first one.
    fn add(&mut self, part: Range<u64>, address: u64) -> (u64, Option<u64>) {
        let before = self.0.range(..part.start).next_back().filter(|(_, (end, _))| *end > part.start);
        let from = before.map_or(part.start, |(start, _)| *start);
        let known: Vec<(u64, u64, u64)> =
            self.0.range(from..part.end).map(|(start, (end, of))| (*start, *end, *of)).collect();
        let (mut bytes, mut next) = (0, part.start);
        for &(start, end, _) in &known {
            bytes += overlap(&part, &(start..end));
            if next < start {
                self.0.insert(next, (start, address));
            }
            next = end;
        }
        if next < part.end {
            self.0.insert(next, (part.end, address));
        }
        (bytes, known.first().map(|(_, _, of)| *of))
    }
}

/// The file offsets of a mapping.
fn offsets(vma: &Vma) -> Range<u64> {
    vma.offset..vma.offset.saturating_add(vma.addresses.end - vma.addresses.start)
}

/// The present offsets. If the page table cannot be scanned, the first offsets, as many as smaps counts: all
/// views of a heap have their pages at the same offsets.
fn present(pagemap: Option<&PatientFile>, vma: &Vma) -> Vec<MappedRange> {
    let addresses = vma.addresses.clone();
    match pagemap.and_then(|pagemap| pagemap.with(move |file| pagemap::present(file, addresses)).ok()) {
        Some(mapped) => mapped.into_iter().map(|mapped| in_file(mapped, vma)).collect(),
        None => {
            let addresses = vma.offset..vma.offset.saturating_add((vma.rss + vma.hugetlb).0);
            vec![MappedRange { addresses, huge: vma.is_hugetlb }]
        }
    }
}

/// Converts addresses to file offsets.
fn in_file(mapped: MappedRange, vma: &Vma) -> MappedRange {
    let offset = |address: u64| vma.offset.wrapping_add(address.wrapping_sub(vma.addresses.start));
    MappedRange { addresses: offset(mapped.addresses.start)..offset(mapped.addresses.end), ..mapped }
}

/// The present bytes of address ranges, from the page table only. Memory that is mapped several times is
/// counted once, at its first mapping. Of `vmas`, the mappings of the process, only addresses, files and
/// permissions are used. Fails like [`pagemap::scan`].
pub fn present_once(pagemap: &PatientFile, vmas: &[Vma], ranges: &[Range<u64>]) -> io::Result<PresentBytes> {
    let mut files: BTreeMap<((u64, u64), u64), CountedOffsets> = BTreeMap::new();
    let mut scan = PresentBytes::default();
    for range in ranges {
        let first = vmas.partition_point(|vma| vma.addresses.end <= range.start);
        for vma in vmas[first..].iter().take_while(|vma| vma.addresses.start < range.end) {
            let inside = vma.addresses.start.max(range.start)..vma.addresses.end.min(range.end);
            for mapped in pagemap.with(move |file| pagemap::present(file, inside))? {
                let mut bytes = mapped.addresses.end - mapped.addresses.start;
                if vma.inode != 0 && vma.permissions.ends_with('s') {
                    let seen = files.entry((vma.device, vma.inode)).or_default();
                    let (before, _) = seen.add(in_file(mapped.clone(), vma).addresses, vma.addresses.start);
                    bytes = bytes.saturating_sub(before);
                }
                scan.present += Bytes(bytes);
                scan.huge += Bytes(if mapped.huge { bytes } else { 0 });
            }
        }
    }
    Ok(scan)
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> u64 {
    one.end.min(other.end).saturating_sub(one.start.max(other.start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vma(start: u64, offset: u64, kib: u64) -> Vma {
        Vma {
            addresses: start..start + (kib << 10),
            offset,
            inode: 7,
            is_shared: true,
            rss: Bytes::from_kib(kib),
            ..Vma::default()
        }
    }

    #[test]
    fn three_views_of_one_heap_are_one() {
        // A process that does not exist: its page table cannot be scanned.
        let nowhere = Root::at("/nonexistent");
        let vmas = [vma(0x10_0000, 0, 64), vma(0x20_0000, 0, 64), vma(0x30_0000, 0, 32)];
        let views = find(&nowhere, 1, &vmas);
        assert_eq!(views.get(&0), None);
        assert_eq!(
            views.get(&1),
            Some(&View { of: 0x10_0000, bytes: Bytes::from_kib(64), huge: Bytes::ZERO })
        );
        assert_eq!(
            views.get(&2),
            Some(&View { of: 0x10_0000, bytes: Bytes::from_kib(32), huge: Bytes::ZERO })
        );
    }

    #[test]
    fn what_several_processes_share_is_counted_with_the_first() {
        let nowhere = Root::at("/nonexistent");
        let mut shared = SharedByProcesses::default();
        let first = [vma(0x10_0000, 0, 64)];
        assert!(shared.add(&nowhere, 1, &first).is_empty());
        // The second process has more of the file resident, maps it twice, and maps another file.
        let other = Vma { inode: 8, ..vma(0x40_0000, 0, 64) };
        let second = [vma(0x20_0000, 0, 96), vma(0x30_0000, 0, 96), other];
        let views = shared.add(&nowhere, 2, &second);
        let counted: Vec<_> = views.iter().map(|(index, view)| (*index, view.bytes)).collect();
        assert_eq!(counted, [(0, Bytes::from_kib(64))]);
        assert_eq!(shared.add(&nowhere, 3, &second[..1])[&0].bytes, Bytes::from_kib(96));
    }

    #[test]
    fn other_parts_of_a_file_and_private_copies_are_no_views() {
        let nowhere = Root::at("/nonexistent");
        let copy = Vma { is_shared: false, ..vma(0x30_0000, 0, 64) };
        assert!(find(&nowhere, 1, &[vma(0x10_0000, 0, 64), vma(0x20_0000, 0x1_0000, 64), copy]).is_empty());
    }

    #[test]
    fn what_was_seen_is_not_counted_again() {
        let mut seen = CountedOffsets::default();
        assert_eq!(seen.add(10..20, 1), (0, None));
        assert_eq!(seen.add(30..40, 2), (0, None));
        assert_eq!(seen.add(15..35, 3), (10, Some(1)));
        assert_eq!(seen.add(0..50, 4), (30, Some(1)));
        assert_eq!(seen.add(20..30, 5), (10, Some(3)));
        assert_eq!(seen.add(0..60, 6), (50, Some(4)));
    }
}
