//! Assigns addresses to regions; the first claim on an address takes precedence.

use std::{collections::BTreeMap, ops::Range};

use hugewise_linux::proc::smaps::Vma;

use super::{NamedRange, RegionKind};

/// Smallest page size of Linux; starts of larger pages are multiples of it, too.
pub(super) const PAGE: u64 = 4096;

/// Mappings of a process, and the claims on them.
pub(super) struct Claims<'a> {
    vmas: &'a [Vma],
    /// Claims by start address: end, name and kind; without overlaps.
    taken: BTreeMap<u64, (u64, String, RegionKind)>,
}

impl<'a> Claims<'a> {
    /// No claims yet. `vmas` are sorted by address, as the kernel lists them.
    pub(super) fn over(vmas: &'a [Vma]) -> Claims<'a> {
        Claims { vmas, taken: BTreeMap::new() }
    }

    pub(super) fn vmas(&self) -> &'a [Vma] {
        self.vmas
    }

    /// Mapping that contains `address`.
    pub(super) fn vma(&self, address: u64) -> Option<&'a Vma> {
        let behind = self.vmas.partition_point(|vma| vma.addresses.start <= address);
        self.vmas.get(behind.checked_sub(1)?).filter(|vma| address < vma.addresses.end)
    }

    /// Kind of the claim that contains `address`.
    pub(super) fn kind_at(&self, address: u64) -> Option<RegionKind> {
        let (_, (end, _, kind)) = self.taken.range(..=address).next_back()?;
        (address < *end).then_some(*kind)
    }

    /// Claims the free parts of `range`.
    pub(super) fn claim(&mut self, range: Range<u64>, name: &str, kind: RegionKind) {
        for free in self.gaps(range) {
            self.taken.insert(free.start, (free.end, name.to_owned(), kind));
        }
    }

    /// Renames the claim that begins at `start`.
    pub(super) fn rename(&mut self, start: u64, name: &str) {
        if let Some((_, old, _)) = self.taken.get_mut(&start) {
            *old = name.to_owned();
        }
    }

    /// Parts of `range` without a claim, mapped or not.
    pub(super) fn gaps(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut at = match self.taken.range(..=range.start).next_back() {
            Some((_, (end, ..))) => range.start.max(*end),
            None => range.start,
        };
        let mut gaps = Vec::new();
        for (start, (end, ..)) in self.taken.range(range.start..range.end.max(range.start)) {
            if at < *start {
                gaps.push(at..*start);
            }
            at = at.max(*end);
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        gaps
    }

    /// Whether all of `range` is mapped, unclaimed, and memory that a JVM may have allocated.
    pub(super) fn is_free(&self, range: &Range<u64>) -> bool {
        range.start < range.end && self.free_from(range.start).is_some_and(|free| range.end <= free.end)
    }

    /// Free memory from `address` on, across adjacent mappings.
    pub(super) fn free_from(&self, address: u64) -> Option<Range<u64>> {
        if self.kind_at(address).is_some() {
            return None;
        }
        let first = self.vmas.partition_point(|vma| vma.addresses.end <= address);
        let mut end = address;
        for vma in &self.vmas[first.min(self.vmas.len())..] {
            if vma.addresses.start > end || !is_allocatable(vma) {
                break;
            }
            end = vma.addresses.end;
        }
        let next_claim = self.taken.range(address..).next().map_or(u64::MAX, |(start, _)| *start);
        let end = end.min(next_claim);
        (address < end).then_some(address..end)
    }

    /// Whether a mapping or a claim begins or ends at `address`.
    pub(super) fn is_edge(&self, address: u64) -> bool {
        self.taken.contains_key(&address)
            || self.vma(address).is_none_or(|vma| vma.addresses.start == address)
            || self.taken.range(..address).next_back().is_some_and(|(_, (end, ..))| *end == address)
    }

    /// Claims as sorted ranges inside the mappings; adjacent ranges of one name and kind are joined.
    pub(super) fn into_ranges(self) -> Vec<NamedRange> {
        let mut ranges: Vec<NamedRange> = Vec::new();
        let mut vmas = self.vmas.iter().peekable();
        for (start, (end, name, kind)) in self.taken {
            while vmas.next_if(|vma| vma.addresses.end <= start).is_some() {}
            for vma in vmas.clone().take_while(|vma| vma.addresses.start < end) {
                let (start, end) = (start.max(vma.addresses.start), end.min(vma.addresses.end));
                match ranges.last_mut() {
                    Some(last) if last.end == start && last.name == name && last.kind == kind => {
                        last.end = end;
                    }
                    _ if start < end => ranges.push(NamedRange { start, end, name: name.clone(), kind }),
                    _ => {}
                }
            }
        }
        ranges
    }
}

/// Whether a JVM or an allocator may have allocated the mapping: neither a file nor executable.
pub(super) fn is_allocatable(vma: &Vma) -> bool {
    let huge = vma.name.starts_with("/anon_hugepage") || vma.name.starts_with("/SYSV");
    (vma.is_anonymous() || huge) && !vma.permissions.contains('x')
}

pub(super) fn is_archive(name: &str) -> bool {
    name.trim_end_matches(" (deleted)").ends_with(".jsa")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn vma(start: u64, end: u64) -> Vma {
        Vma { addresses: start..end, permissions: "rw-p".to_owned(), ..Vma::default() }
    }

    #[test]
    fn the_first_claim_stands_and_the_rest_is_split_around_it() {
        let vmas = [vma(10, 20), vma(20, 30), vma(40, 50)];
        let mut claims = Claims::over(&vmas);
        claims.claim(15..25, "heap", RegionKind::Heap);
        assert!(claims.is_free(&(10..15)) && !claims.is_free(&(10..16)) && !claims.is_free(&(30..40)));
        claims.claim(0..100, "rest", RegionKind::Other);
        let seen: Vec<_> = claims.into_ranges().into_iter().map(|r| (r.start, r.end, r.name)).collect();
        let expected = [(10, 15, "rest"), (15, 25, "heap"), (25, 30, "rest"), (40, 50, "rest")];
        assert_eq!(seen, expected.map(|(start, end, name)| (start, end, name.to_owned())));
    }

    proptest! {
        #[test]
        fn ranges_are_sorted_apart_and_mapped(asked in prop::collection::vec((0u64..100, 0u64..100, "[ab]"), 0..20)) {
            let vmas = [vma(5, 30), vma(30, 31), vma(60, 90)];
            let mut claims = Claims::over(&vmas);
            for (start, end, name) in asked {
                claims.claim(start..end, &name, RegionKind::Heap);
            }
            let ranges = claims.into_ranges();
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
            for range in ranges {
                prop_assert!(range.start < range.end);
                prop_assert!((5 <= range.start && range.end <= 31) || (60 <= range.start && range.end <= 90));
            }
        }
    }
}
