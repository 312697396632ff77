//! Memory that several threads are to work on.

use std::ops::Range;

use hugewise_kernel::{
    coverage::Coverage, page_sizes::PageSizes, reading::Reading, smaps::Vma, sys::span::Span, units::PageSize,
};

use crate::coverage;

/// A span, and what is to be known of its pages.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    pub span: Span<'a>,
    /// The largest page that may be in it.
    pub page_size: PageSize,
    /// No chunk is cut through so much: the page, or what one page table maps.
    pub grain: PageSize,
    /// Every page has a byte at a multiple of it.
    pub step: PageSize,
    /// Addresses, and the size of the huge pages that may be there.
    pub parts: Vec<(Range<u64>, Option<PageSize>)>,
}

impl<'a> Target<'a> {
    /// Any memory of this process; its pages are looked up.
    pub fn of(span: Span<'a>, sizes: &PageSizes) -> Result<Target<'a>, String> {
        let vmas = coverage::mappings(&span.addresses())?;
        if vmas.is_empty() {
            return Err("nothing is mapped there".to_owned());
        }
        let all = whole_pages(span.addresses(), sizes.base);
        let part = |vma: &Vma| {
            let pooled = PageSize::new(vma.kernel_page_size).ok().filter(|_| vma.is_hugetlb);
            let addresses = vma.addresses.start.max(all.start)..vma.addresses.end.min(all.end);
            (addresses, pooled.or(sizes.thp))
        };
        let parts: Vec<_> = vmas.iter().map(part).collect();
        let all_pooled = vmas.iter().all(|vma| vma.is_hugetlb);
        let huge = parts.iter().filter_map(|(_, size)| *size);
        let page_size = huge.clone().max().unwrap_or(sizes.base);
        Ok(Target {
            page_size,
            grain: sizes.thp.map_or(page_size, |thp| thp.max(page_size)),
            step: huge.min().filter(|_| all_pooled).unwrap_or(sizes.base),
            span,
            parts,
        })
    }

    /// The addresses of all pages that hold a byte of it.
    pub fn pages(&self) -> Range<u64> {
        whole_pages(self.span.addresses(), self.step)
    }

    /// What its pages really are.
    pub fn coverage(&self) -> Reading<Coverage> {
        let mut seen = Coverage::none(coverage::SCAN);
        for (addresses, size) in &self.parts {
            match coverage::scan(addresses.clone(), *size) {
                Ok(part) => seen.add(&part),
                Err(_) => return Reading::from(self.coverage_of_mappings()),
            }
        }
        Reading::Known(seen)
    }

    /// The older way: exact only where the kernel did not merge the memory with a neighbour.
    fn coverage_of_mappings(&self) -> Result<Coverage, String> {
        coverage::of_mappings(self.span.addresses(), self.parts.iter().find_map(|(_, size)| *size))
    }
}

fn whole_pages(addresses: Range<u64>, size: PageSize) -> Range<u64> {
    let page = size.bytes().0;
    let last = u64::MAX / page * page;
    addresses.start / page * page..addresses.end.checked_next_multiple_of(page).unwrap_or(last)
}
