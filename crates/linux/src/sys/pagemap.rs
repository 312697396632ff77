//! The contents of page tables, by the `PAGEMAP_SCAN` ioctl (Linux 6.7).

use std::{fs::File, io, ops::Range, os::fd::AsRawFd};

use super::checked;
use crate::units::Bytes;

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: u64 = 0xc060_6610;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_ZERO: u64 = 1 << 5;
const PAGE_IS_HUGE: u64 = 1 << 6;

/// The mapped memory in a range of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PresentBytes {
    /// Present bytes.
    pub present: Bytes,
    /// Present bytes mapped by PMD or PUD entries: THP of that size, or hugetlb. Smaller THPs (mTHP) are not
    /// included.
    pub huge: Bytes,
}

/// Adjacent addresses mapped by entries of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedRange {
    /// Start and end address.
    pub addresses: Range<u64>,
    /// True for PMD and PUD entries.
    pub huge: bool,
}

/// Scans `addresses` of the process to which the open /proc/PID/pagemap belongs.
///
/// ENOTTY before Linux 6.7; EPERM for a process that we may not trace.
pub fn scan(pagemap: &File, addresses: Range<u64>) -> io::Result<PresentBytes> {
    let mut seen = PresentBytes::default();
    walk(pagemap, addresses, PAGE_IS_PRESENT, 0, |region| {
        let bytes = Bytes(region.end.saturating_sub(region.start));
        seen.present += bytes;
        if region.categories & PAGE_IS_HUGE != 0 {
            seen.huge += bytes;
        }
    })?;
    Ok(seen)
}

/// The present ranges in `addresses`, in order, without the kernel's zero page, which uses no memory. Fails
/// like [`scan`].
pub fn present(pagemap: &File, addresses: Range<u64>) -> io::Result<Vec<MappedRange>> {
    mapped(pagemap, addresses, PAGE_IS_ZERO)
}

/// Like [`present`], for ranges mapped by base page table entries.
pub fn present_by_base_entries(pagemap: &File, addresses: Range<u64>) -> io::Result<Vec<MappedRange>> {
    mapped(pagemap, addresses, PAGE_IS_ZERO | PAGE_IS_HUGE)
}

/// The bytes in `addresses` that base page table entries map to the kernel's zero page. Fails like [`scan`].
pub fn on_zero_page(pagemap: &File, addresses: Range<u64>) -> io::Result<Bytes> {
    let mut bytes = Bytes::ZERO;
    walk(pagemap, addresses, PAGE_IS_PRESENT | PAGE_IS_ZERO, PAGE_IS_HUGE, |region| {
        bytes += Bytes(region.end.saturating_sub(region.start));
    })?;
    Ok(bytes)
}

fn mapped(pagemap: &File, addresses: Range<u64>, excluded: u64) -> io::Result<Vec<MappedRange>> {
    let mut found = Vec::new();
    walk(pagemap, addresses, PAGE_IS_PRESENT, excluded, |region| {
        found.push(MappedRange {
            addresses: region.start..region.end,
            huge: region.categories & PAGE_IS_HUGE != 0,
        });
    })?;
    Ok(found)
}

/// Visits the pages with all `required` categories and without any of the `excluded` ones, given as bits.
fn walk(
    pagemap: &File,
    addresses: Range<u64>,
    required: u64,
    excluded: u64,
    mut visit: impl FnMut(&PageRegion),
) -> io::Result<()> {
    const REGIONS: usize = 1024;
    let mut regions = Vec::new();
    // A program without memory gets an error: a failed allocation would end it.
    regions.try_reserve_exact(REGIONS).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    regions.resize(REGIONS, PageRegion::default());
    let mut next = addresses.start;
    while next < addresses.end {
        let mut arg = PmScanArg {
            size: size_of::<PmScanArg>() as u64,
            start: next,
            end: addresses.end,
            vec: regions.as_mut_ptr() as u64,
            vec_len: regions.len() as u64,
            category_inverted: excluded,
            category_mask: required | excluded,
            return_mask: PAGE_IS_PRESENT | PAGE_IS_HUGE,
            ..PmScanArg::default()
        };
        // SAFETY: `arg` has the documented layout and size, and `vec` points to `vec_len` regions.
        let found = checked(unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN as _, &raw mut arg) })?;
        let found = usize::try_from(found).unwrap_or(0).min(regions.len());
        regions[..found].iter().for_each(&mut visit);
        // The kernel may report regions beyond `walk_end` (whenever its own buffer of 512 regions is full);
        // they must not be requested again.
        let reached = regions[..found].last().map_or(0, |region| region.end).max(arg.walk_end);
        if reached <= next {
            break; // No progress: the range is complete.
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
    fn many_regions_are_reported_once_each() -> io::Result<()> {
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
