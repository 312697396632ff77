//! Memory as work for several threads.

use std::ops::Range;

use hugewise_linux::{
    hugepages::page_sizes::PageSizes,
    pages::coverage::Coverage,
    proc::smaps::Vma,
    reading::{Reading, Reason},
    sys::parallel_range::Span,
    units::PageSize,
};

use crate::coverage::{self, Part};

/// A span and the page sizes in it.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    pub span: Span<'a>,
    /// The largest page size possible in it.
    pub page_size: PageSize,
    /// Divisor of the chunk size: the page size, or the memory mapped by one page table.
    pub grain: PageSize,
    /// Distance between two touched bytes: the smallest page size possible in the span.
    pub step: PageSize,
    /// Addresses, and the size of the huge pages possible there.
    pub parts: Vec<Part>,
}

impl<'a> Target<'a> {
    /// Any memory of this process, with the mappings that overlap it.
    pub fn of(span: Span<'a>, vmas: &[Vma], sizes: &PageSizes) -> Result<Target<'a>, Reason> {
        all_usable(&span.addresses(), vmas)?;
        let parts = coverage::parts(&span.addresses(), vmas, sizes);
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

    /// Memory whose mappings cannot be read: on base pages or THP, as far as is known.
    pub fn unread(span: Span<'a>, sizes: &PageSizes) -> Target<'a> {
        let page_size = sizes.thp.unwrap_or(sizes.base);
        let parts = vec![(coverage::whole_pages(&span.addresses(), sizes.base), sizes.thp)];
        Target { page_size, grain: page_size, step: sizes.base, span, parts }
    }

    /// The addresses of all pages that hold a byte of the span.
    pub fn pages(&self) -> Range<u64> {
        coverage::whole_pages(&self.span.addresses(), self.step)
    }

    pub fn coverage(&self) -> Reading<Coverage> {
        coverage::of_parts(&self.span.addresses(), &self.parts)
    }
}

/// Fails on a gap or a page that cannot be read and written: touching it would end the process.
fn all_usable(addresses: &Range<u64>, vmas: &[Vma]) -> Result<(), Reason> {
    let mut at = addresses.start;
    for vma in vmas {
        if vma.addresses.start > at {
            break;
        }
        if !vma.permissions.starts_with("rw") {
            let Range { start, end } = vma.addresses;
            return Reason::err(format!(
                "{start:#x}-{end:#x} is not readable and writable ({})",
                vma.permissions
            ));
        }
        at = vma.addresses.end;
    }
    if at < addresses.end { Reason::err(format!("nothing is mapped at {at:#x}")) } else { Ok(()) }
}
