//! What a page table really holds, by the `PAGEMAP_SCAN` ioctl (Linux 6.7).

use std::{fs::File, io, ops::Range, os::fd::AsRawFd};

use super::checked;
use crate::units::Bytes;

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: u64 = 0xc060_6610;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_ZERO: u64 = 1 << 5;
const PAGE_IS_HUGE: u64 = 1 << 6;

/// What a scan of the page table saw in a range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Bytes that are present.
    pub present: Bytes,
    /// Bytes of those that are mapped by huge page table entries (PMD or PUD): THP of that size,
    /// or hugetlb. Smaller THPs (mTHP) are not in it.
    pub huge: Bytes,
}

/// Addresses that are mapped alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// From and to.
    pub addresses: Range<u64>,
    /// By huge page table entries (PMD or PUD).
    pub huge: bool,
}

/// Scans `addresses` of the process whose /proc/PID/pagemap this is.
///
/// ENOTTY on a kernel before 6.7; EPERM for a process that we may not trace.
pub fn scan(pagemap: &File, addresses: Range<u64>) -> io::Result<Scan> {
    let mut seen = Scan { present: Bytes::ZERO, huge: Bytes::ZERO };
    let query = Query { all_of: PAGE_IS_PRESENT, none_of: 0 };
    walk(pagemap, addresses, query, |region| {
        let bytes = Bytes(region.end.saturating_sub(region.start));
        seen.present += bytes;
        if region.categories & PAGE_IS_HUGE != 0 {
            seen.huge += bytes;
        }
    })?;
    Ok(seen)
}

/// What is present in `addresses`, in their order; the kernel's page of zeros is left out, for nobody
/// has memory for it. Fails like [`scan`].
pub fn present(pagemap: &File, addresses: Range<u64>) -> io::Result<Vec<Mapped>> {
    mapped(pagemap, addresses, Query { all_of: PAGE_IS_PRESENT, none_of: PAGE_IS_ZERO })
}

/// The same, of that what base page table entries map. Fails like [`scan`].
pub fn present_by_base_entries(pagemap: &File, addresses: Range<u64>) -> io::Result<Vec<Mapped>> {
    mapped(pagemap, addresses, Query { all_of: PAGE_IS_PRESENT, none_of: PAGE_IS_ZERO | PAGE_IS_HUGE })
}

fn mapped(pagemap: &File, addresses: Range<u64>, query: Query) -> io::Result<Vec<Mapped>> {
    let mut found = Vec::new();
    walk(pagemap, addresses, query, |region| {
        found.push(Mapped {
            addresses: region.start..region.end,
            huge: region.categories & PAGE_IS_HUGE != 0,
        });
    })?;
    Ok(found)
}

/// Which pages are asked for.
#[derive(Clone, Copy)]
struct Query {
    all_of: u64,
    none_of: u64,
}

fn walk(
    pagemap: &File,
    addresses: Range<u64>,
    query: Query,
    mut visit: impl FnMut(&PageRegion),
) -> io::Result<()> {
    let mut regions = vec![PageRegion::default(); 1024];
    let mut next = addresses.start;
    while next < addresses.end {
        let mut arg = PmScanArg {
            size: size_of::<PmScanArg>() as u64,
            start: next,
            end: addresses.end,
            vec: regions.as_mut_ptr() as u64,
            vec_len: regions.len() as u64,
            category_inverted: query.none_of,
            category_mask: query.all_of | query.none_of,
            return_mask: PAGE_IS_PRESENT | PAGE_IS_HUGE,
            ..PmScanArg::default()
        };
        // SAFETY: `arg` has the documented layout and size, and `vec` points to `vec_len` regions.
        let found = checked(unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN as _, &raw mut arg) })?;
        let found = usize::try_from(found).unwrap_or(0).min(regions.len());
        regions[..found].iter().for_each(&mut visit);
        // The kernel may walk on after it has set `walk_end` (it does so each time that a buffer of its
        // own, of 512 regions, is full): what it gave must not be asked for again.
        let reached = regions[..found].last().map_or(0, |region| region.end).max(arg.walk_end);
        if reached <= next {
            break; // No progress: the kernel is done with the range.
        }
        next = reached;
    }
    Ok(())
}

/// `struct page_region` of include/uapi/linux/fs.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg` of include/uapi/linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct PmScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::memory::{Advice, Mapping};

    #[test]
    fn many_regions_are_told_once_each() -> io::Result<()> {
        const PAGE: usize = 1 << 16; // At least a base page, on every machine.
        let count = 3000;
        let memory = Mapping::anonymous(Bytes((2 * count * PAGE) as u64))?;
        memory.advise(0..memory.len(), Advice::NoHugePage)?;
        for n in 0..count {
            memory.advise(2 * n * PAGE..2 * n * PAGE + 1, Advice::PopulateWrite)?;
        }
        let pagemap = File::open("/proc/self/pagemap")?;
        // ENOTTY before Linux 6.7.
        if let Ok(mapped) = present(&pagemap, memory.addresses(&(0..memory.len()))) {
            assert_eq!(mapped.len(), count);
            assert!(mapped.windows(2).all(|two| two[0].addresses.end < two[1].addresses.start));
        }
        Ok(())
    }

    #[test]
    fn the_layout_is_the_kernels() {
        assert_eq!(size_of::<PmScanArg>(), 96);
        assert_eq!(size_of::<PageRegion>(), 24);
    }
}
