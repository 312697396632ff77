//! Memory that several threads are to work on.

use std::ops::Range;

use hugewise_linux::{
    hugepages::page_sizes::PageSizes, pages::coverage::Coverage, proc::smaps::Vma, reading::Reading,
    sys::parallel_range::Span, units::PageSize,
};

use crate::coverage::{self, Part};

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
    pub parts: Vec<Part>,
}

impl<'a> Target<'a> {
    /// Any memory of this process; its pages are looked up.
    pub fn of(span: Span<'a>, sizes: &PageSizes) -> Result<Target<'a>, String> {
        let vmas = coverage::mappings(&span.addresses())?;
        all_usable(&span.addresses(), &vmas)?;
        let parts = coverage::parts(&span.addresses(), &vmas, sizes);
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
        coverage::whole_pages(&self.span.addresses(), self.step)
    }

    /// What its pages really are.
    pub fn coverage(&self) -> Reading<Coverage> {
        coverage::of_parts(&self.span.addresses(), &self.parts)
    }
}

/// Is there no gap, and may all be read and written? Elsewhere a touch would end the process.
fn all_usable(addresses: &Range<u64>, vmas: &[Vma]) -> Result<(), String> {
    let mut at = addresses.start;
    for vma in vmas {
        if vma.addresses.start > at {
            break;
        }
        if !vma.permissions.starts_with("rw") {
            let Range { start, end } = vma.addresses;
            return Err(format!("{start:#x}-{end:#x} may not be read and written ({})", vma.permissions));
        }
        at = vma.addresses.end;
    }
    if at < addresses.end { Err(format!("nothing is mapped at {at:#x}")) } else { Ok(()) }
}
