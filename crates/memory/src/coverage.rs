//! Coverage of memory of this process.

use std::{io, ops::Range, path::Path};

use hugewise_linux::{
    hugepages::page_sizes::PageSizes,
    pages::coverage::Coverage,
    proc::smaps::{self, Vma},
    reading::{Reading, Reason},
    root::Root,
    sys::{file, pagemap},
    units::{Bytes, PageSize},
};

/// Addresses, and the size of the huge pages possible there; `None` for base pages only.
pub(crate) type Part = (Range<u64>, Option<PageSize>);

/// The coverage of all pages that hold a byte of `addresses`, in memory of this process.
#[must_use]
pub fn of(addresses: Range<u64>, sizes: &PageSizes) -> Reading<Coverage> {
    match mappings(&addresses) {
        Ok(vmas) if vmas.is_empty() => Reading::unknown("nothing is mapped there"),
        Ok(vmas) => of_parts(&addresses, &parts(&addresses, &vmas, sizes)),
        Err(why) => Reading::unknown(why),
    }
}

/// Divides `addresses` at the boundaries of mappings.
pub(crate) fn parts(addresses: &Range<u64>, vmas: &[Vma], sizes: &PageSizes) -> Vec<Part> {
    let all = whole_pages(addresses, sizes.base);
    let part = |vma: &Vma| {
        let pooled = PageSize::new(vma.kernel_page_size).ok().filter(|_| vma.is_hugetlb);
        (vma.addresses.start.max(all.start)..vma.addresses.end.min(all.end), pooled.or(sizes.thp))
    };
    vmas.iter().map(part).collect()
}

/// Like [`of`], for memory whose parts are known.
pub(crate) fn of_parts(addresses: &Range<u64>, parts: &[Part]) -> Reading<Coverage> {
    let mut seen = Coverage::none(SCAN);
    for (part, size) in parts {
        match scan(part.clone(), *size) {
            Ok(read) => seen.add(&read),
            // Fallback to smaps: exact only if the kernel did not merge the memory with a neighbour.
            Err(_) => {
                let size = parts.iter().find_map(|(_, size)| *size);
                return Reading::from(of_mappings(addresses.clone(), size));
            }
        }
    }
    Reading::Known(seen)
}

/// `addresses` extended to whole pages.
pub(crate) fn whole_pages(addresses: &Range<u64>, size: PageSize) -> Range<u64> {
    let page = size.bytes().0;
    let last = u64::MAX / page * page;
    addresses.start / page * page..addresses.end.checked_next_multiple_of(page).unwrap_or(last)
}

/// The source of readings by [`scan`].
const SCAN: &str = "PAGEMAP_SCAN of /proc/self/pagemap";

/// Reads the page table; `size` is that of the possible huge pages. An error before Linux 6.7.
fn scan(addresses: Range<u64>, size: Option<PageSize>) -> io::Result<Coverage> {
    let scan = pagemap::scan(&file::open(Path::new("/proc/self/pagemap"))?, addresses)?;
    let mut seen = Coverage::none(SCAN);
    seen.resident = scan.present;
    if let (Some(size), true) = (size, scan.huge > Bytes::ZERO) {
        seen.huge.insert(size, scan.huge);
    }
    Ok(seen)
}

/// The coverage from smaps, which has sums of whole mappings only.
fn of_mappings(addresses: Range<u64>, thp_size: Option<PageSize>) -> Result<Coverage, Reason> {
    let vmas = mappings(&addresses)?;
    if vmas.iter().any(|vma| vma.addresses.start < addresses.start || addresses.end < vma.addresses.end) {
        return Reason::err(
            "the kernel merged the region with a neighbour, and is too old (before Linux 6.7) to scan a part of \
             a mapping",
        );
    }
    Ok(smaps::coverage(&vmas, thp_size))
}

/// The mappings that overlap these addresses.
pub(crate) fn mappings(addresses: &Range<u64>) -> Result<Vec<Vma>, Reason> {
    let vmas = smaps::read(&Root::live(), "self")?;
    let inside = |vma: &Vma| vma.addresses.start < addresses.end && addresses.start < vma.addresses.end;
    Ok(vmas.into_iter().filter(inside).collect())
}
