//! Counts the pages of a mapping, or of a part of it, by size.

use std::{collections::BTreeMap, ops::Range};

use super::{
    coverage::{Coverage, add_bytes},
    folios::{self, Folio, FolioRange},
    occupancy::Occupancy,
};
use crate::{
    proc::smaps::Vma,
    root::Root,
    sys::{
        file::patient::PatientFile,
        pagemap::{self, PresentBytes},
    },
    units::{Bytes, PageSize},
};

/// Present and swapped-out bytes by the kind of their pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageCounts {
    /// On base pages, including those of mTHP if folios were not read.
    pub base: Bytes,
    /// On mTHP, by size.
    pub mthp: BTreeMap<PageSize, Bytes>,
    /// Mapped by huge page table entries: THP of the PMD size.
    pub thp: Bytes,
    /// On pages of a pool, by size.
    pub hugetlb: BTreeMap<PageSize, Bytes>,
    pub swap: Bytes,
    /// Of `base`: in whole THPs that base page table entries map.
    pub split: Bytes,
    /// Of `base`: in folios that are not mapped as a whole, or not aligned.
    pub part_of_folio: Bytes,
}

impl PageCounts {
    /// Present bytes on pages of any size.
    pub fn resident(&self) -> Bytes {
        let mthp: Bytes = self.mthp.values().copied().sum();
        self.base + mthp + self.thp + self.hugetlb.values().copied().sum()
    }

    pub fn add(&mut self, other: &PageCounts) {
        self.base += other.base;
        self.thp += other.thp;
        self.swap += other.swap;
        self.split += other.split;
        self.part_of_folio += other.part_of_folio;
        for (mine, theirs) in [(&mut self.mthp, &other.mthp), (&mut self.hugetlb, &other.hugetlb)] {
            for (size, bytes) in theirs {
                *mine.entry(*size).or_default() += *bytes;
            }
        }
    }

    /// Subtracts bytes that are counted in another mapping of the same memory. Huge page table entries map
    /// `huge` of them here.
    pub fn subtract(&mut self, bytes: Bytes, huge: Bytes) {
        let left = subtract_from(self.hugetlb.values_mut().rev().chain([&mut self.thp]), huge);
        let small = [&mut self.base].into_iter().chain(self.mthp.values_mut()).chain([&mut self.thp]);
        subtract_from(small, bytes.saturating_sub(huge) + left);
        self.hugetlb.retain(|_, bytes| *bytes > Bytes::ZERO);
    }

    /// Present bytes by page size; `thp` is the PMD size.
    pub fn by_page_size(&self, base: PageSize, thp: Option<PageSize>) -> BTreeMap<PageSize, Bytes> {
        let mut all = self.on_huge_pages(thp);
        add_bytes(&mut all, base, self.base);
        all
    }

    /// Present bytes as coverage; `source` names their source.
    pub fn coverage(&self, thp: Option<PageSize>, source: &str) -> Coverage {
        Coverage { resident: self.resident(), huge: self.on_huge_pages(thp), source: source.to_owned() }
    }

    fn on_huge_pages(&self, thp: Option<PageSize>) -> BTreeMap<PageSize, Bytes> {
        let mut all = self.hugetlb.clone();
        self.mthp.iter().for_each(|(size, bytes)| add_bytes(&mut all, *size, *bytes));
        if let Some(size) = thp {
            add_bytes(&mut all, size, self.thp);
        }
        all
    }
}

/// Subtracts `amount` from the first `counts` that have it; returns the rest.
fn subtract_from<'a>(counts: impl Iterator<Item = &'a mut Bytes>, amount: Bytes) -> Bytes {
    let mut left = amount;
    for count in counts {
        let part = left.min(*count);
        *count = count.saturating_sub(part);
        left = left.saturating_sub(part);
    }
    left
}

/// Counts mappings of one process.
pub struct PageCounter {
    /// `None` if it cannot be read.
    pagemap: Option<PatientFile>,
    /// Number of mappings whose parts this kernel cannot count separately: each is counted with its first
    /// part.
    pub unsplit: usize,
}

impl PageCounter {
    pub fn of(root: &Root, pid: u32) -> PageCounter {
        PageCounter { pagemap: root.open_patiently(format!("proc/{pid}/pagemap")).ok(), unsplit: 0 }
    }

    /// Counts the overlap of `vma` and `part`. `pieces` are folios sorted by address, empty if they were not
    /// read; `thp` is the PMD size.
    pub fn count(
        &mut self,
        vma: &Vma,
        part: &Range<u64>,
        pieces: &[FolioRange],
        thp: Option<PageSize>,
    ) -> PageCounts {
        let addresses = vma.addresses.start.max(part.start)..vma.addresses.end.min(part.end);
        let sums = self.sums(vma, &addresses);
        let (mut split, mut part_of_folio) = (Bytes::ZERO, Bytes::ZERO);
        let mut counts = PageCounts {
            base: sums.rss.saturating_sub(sums.thp),
            thp: sums.thp,
            swap: sums.swap,
            ..PageCounts::default()
        };
        for (folio, bytes) in folios::inside(pieces, &addresses) {
            match folio {
                Folio::Part => part_of_folio += bytes,
                Folio::Whole(size) if thp.is_some_and(|thp| size >= thp) => split += bytes,
                Folio::Whole(size) => {
                    // Read at another time, so limited to the remaining bytes.
                    let bytes = bytes.min(counts.base);
                    counts.base = counts.base.saturating_sub(bytes);
                    add_bytes(&mut counts.mthp, size, bytes);
                }
            }
        }
        (counts.split, counts.part_of_folio) = (split.min(counts.base), part_of_folio.min(counts.base));
        if let Ok(size) = PageSize::new(vma.kernel_page_size) {
            add_bytes(&mut counts.hugetlb, size, sums.hugetlb);
        }
        counts
    }

    /// Sums for a part of a mapping; smaps reports whole mappings only.
    fn sums(&mut self, vma: &Vma, part: &Range<u64>) -> Sums {
        let whole = Sums { rss: vma.rss, thp: vma.thp, hugetlb: vma.hugetlb, swap: vma.swap };
        if *part == vma.addresses || vma.rss + vma.hugetlb + vma.swap == Bytes::ZERO {
            return whole;
        }
        let begins_here = part.start == vma.addresses.start;
        match self.scan(part) {
            Some(scan) if vma.is_hugetlb => Sums { hugetlb: scan.present, ..Sums::default() },
            // The swapped-out bytes of a part are unknown: all are counted with the first part.
            Some(scan) => Sums {
                rss: scan.present,
                thp: scan.huge,
                swap: if begins_here { vma.swap } else { Bytes::ZERO },
                ..Sums::default()
            },
            None if begins_here => {
                self.unsplit += 1;
                whole
            }
            None => Sums::default(),
        }
    }

    /// The page table of the process in ranges of `size`; `None` if it cannot be read.
    pub fn occupancy(&self, base: PageSize, size: PageSize) -> Option<Occupancy> {
        self.pagemap.clone().map(|pagemap| Occupancy::of(pagemap, base, size))
    }

    /// Present bytes on base pages; `None` before Linux 6.7, and if the page table cannot be read.
    pub fn base_bytes(&self, addresses: &Range<u64>) -> Option<Bytes> {
        self.scan(addresses).map(|found| found.present.saturating_sub(found.huge))
    }

    fn scan(&self, addresses: &Range<u64>) -> Option<PresentBytes> {
        let pagemap = self.pagemap.as_ref()?;
        let mut scan = PresentBytes::default();
        let addresses = addresses.clone();
        for mapped in pagemap.with(move |file| pagemap::present(file, addresses)).ok()? {
            let bytes = Bytes(mapped.addresses.end - mapped.addresses.start);
            scan.present += bytes;
            if mapped.huge {
                scan.huge += bytes;
            }
        }
        Some(scan)
    }
}

#[derive(Default)]
struct Sums {
    rss: Bytes,
    thp: Bytes,
    hugetlb: Bytes,
    swap: Bytes,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_counted_elsewhere_are_taken_off_by_their_size() -> Result<(), Box<dyn std::error::Error>> {
        let (base, two): (PageSize, PageSize) = ("4k".parse()?, "2m".parse()?);
        let mut counts = PageCounts { base: Bytes(8192), thp: Bytes(4 << 20), ..PageCounts::default() };
        counts.subtract(Bytes((2 << 20) + 4096), Bytes(2 << 20));
        assert_eq!((counts.base, counts.thp), (Bytes(4096), Bytes(2 << 20)));
        assert_eq!(counts.by_page_size(base, Some(two)), [(base, Bytes(4096)), (two, Bytes(2 << 20))].into());
        counts.hugetlb.insert(two, Bytes(2 << 20));
        counts.subtract(Bytes(2 << 20), Bytes(2 << 20));
        assert!(counts.hugetlb.is_empty() && counts.resident() == Bytes((2 << 20) + 4096));
        // More than the mapping has, because the two were read at different times.
        counts.subtract(Bytes(1 << 30), Bytes(0));
        assert_eq!(counts.resident(), Bytes::ZERO);
        Ok(())
    }
}
