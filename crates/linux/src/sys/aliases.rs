//! The same memory mapped at many addresses, to use more TLB entries than the memory has pages.

use std::{
    fs::File,
    io,
    ops::Range,
    os::fd::AsRawFd,
    ptr::{self, NonNull},
    slice,
    sync::atomic::AtomicU64,
};

use libc::{c_int, c_void};

use super::{checked, no_memory, owned, pidfd::MADV_COLLAPSE};
use crate::units::{PageSize, Pages};

/// A file in memory, mapped repeatedly, one copy behind the other; unmapped on drop.
///
/// A TLB entry belongs to a virtual address: every copy of a page takes an entry, while all copies use the
/// memory of one.
#[derive(Debug)]
pub struct AliasedMapping {
    /// The reserved addresses: one page more than `len`, so that an aligned start exists.
    reserved: NonNull<c_void>,
    reserved_len: usize,
    /// The offset of the first page in the reserved addresses.
    start: usize,
    len: usize,
    /// Bytes per copy.
    copy: usize,
}

// SAFETY: the mapping is owned memory and not tied to the thread that created it.
unsafe impl Send for AliasedMapping {}
// SAFETY: it is accessed through atomics only.
unsafe impl Sync for AliasedMapping {}

impl AliasedMapping {
    /// Maps `pages` pages onto the memory of `distinct` pages; both are at least 1.
    ///
    /// With `pool`, the memory is from the hugetlb pool of `size`: ENOMEM if the pool is too small, ENOENT or
    /// EINVAL for a size without a pool. Otherwise the pages are base pages until [`AliasedMapping::advise_huge`]
    /// and [`AliasedMapping::collapse`].
    pub fn new(size: PageSize, pool: bool, distinct: Pages, pages: Pages) -> io::Result<AliasedMapping> {
        let page = to_usize(size.bytes().0)?;
        let copy = to_usize((distinct * size).0)?;
        let len = to_usize((pages * size).0)?;
        let reserved_len = len.checked_add(page).ok_or_else(no_memory)?;
        if copy == 0 || len == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let file = memory(size, pool)?;
        file.set_len(copy as u64)?;
        let reserving = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
        let start = unsafe { libc::mmap(ptr::null_mut(), reserved_len, libc::PROT_NONE, reserving, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let reserved = NonNull::new(start).ok_or_else(no_memory)?;
        let start = (start as usize).next_multiple_of(page) - start as usize;
        let repeated = AliasedMapping { reserved, reserved_len, start, len, copy };
        for at in (0..len).step_by(copy) {
            repeated.place(&file, at)?;
        }
        Ok(repeated)
    }

    /// Maps the file at the offset `at`.
    fn place(&self, file: &File, at: usize) -> io::Result<()> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let len = self.copy.min(self.len - at);
        // SAFETY: replaces a part of our reservation, which has no references yet.
        let mapped = unsafe { libc::mmap(self.at(at), len, access, flags, file.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn at(&self, offset: usize) -> *mut c_void {
        // SAFETY: `start` + `len` is within the reservation, and every offset is at most `len`.
        unsafe { self.reserved.as_ptr().byte_add(self.start + offset.min(self.len)) }
    }

    /// The memory as words, which are atomic because several addresses may map the same word.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: readable, writable, `len` long, aligned to a page, zeroed by the kernel, and valid as long
        // as self; atomics permit that a write to one word changes others.
        unsafe { slice::from_raw_parts(self.at(0).cast(), self.len / size_of::<AtomicU64>()) }
    }

    pub fn addresses(&self) -> Range<u64> {
        let start = self.at(0) as u64;
        start..start + self.len as u64
    }

    /// Requests (`MADV_HUGEPAGE`) or prevents (`MADV_NOHUGEPAGE`) huge pages.
    pub fn advise_huge(&self, huge: bool) -> io::Result<()> {
        self.advise(self.len, if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE })
    }

    /// Collapses the memory into huge pages (`MADV_COLLAPSE`, Linux 6.1), regardless of the machine's THP
    /// mode.
    pub fn collapse(&self) -> io::Result<()> {
        self.advise(self.copy.min(self.len), MADV_COLLAPSE)
    }

    /// Populates every page (`MADV_POPULATE_WRITE`, Linux 5.14).
    ///
    /// An error, not a SIGBUS, if memory or a cgroup limit is exhausted.
    pub fn populate(&self) -> io::Result<()> {
        self.advise(self.len, libc::MADV_POPULATE_WRITE)
    }

    /// Populates the first copy only.
    pub fn populate_once(&self) -> io::Result<()> {
        self.advise(self.copy.min(self.len), libc::MADV_POPULATE_WRITE)
    }

    fn advise(&self, len: usize, advice: c_int) -> io::Result<()> {
        // SAFETY: the range is within our mapping, and none of these kinds of advice changes contents.
        checked(unsafe { libc::madvise(self.at(0), len, advice) }).map(drop)
    }
}

impl Drop for AliasedMapping {
    fn drop(&mut self) {
        // SAFETY: the values that mmap returned; no reference outlives self.
        unsafe { libc::munmap(self.reserved.as_ptr(), self.reserved_len) };
    }
}

/// An empty file in memory, of base pages or from the pool of `size`.
fn memory(size: PageSize, pool: bool) -> io::Result<File> {
    let huge = if pool { libc::MFD_HUGETLB | (size.log2() << libc::MFD_HUGE_SHIFT) } else { 0 };
    let name = c"hugewise";
    // SAFETY: reads a live string and returns a new descriptor.
    owned(unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | huge) })
}

fn to_usize(bytes: u64) -> io::Result<usize> {
    usize::try_from(bytes).map_err(|_| no_memory())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::units::Bytes;

    #[test]
    fn what_is_written_to_one_copy_is_read_in_all() -> io::Result<()> {
        let size = PageSize::new(Bytes(1 << 16)).map_err(io::Error::other)?;
        let words = (1 << 16) / 8;
        let repeated = AliasedMapping::new(size, false, Pages(2), Pages(5))?;
        repeated.words()[7].store(42, Relaxed);
        let seen: Vec<u64> = (0..5).map(|page| repeated.words()[page * words + 7].load(Relaxed)).collect();
        assert_eq!(seen, [42, 0, 42, 0, 42], "every second page is the first again");
        assert_eq!(repeated.words().len(), 5 * words);
        assert_eq!(repeated.addresses().start % (1 << 16), 0);
        Ok(())
    }

    #[test]
    fn an_impossible_one_is_an_error() -> io::Result<()> {
        let size = PageSize::new(Bytes(1 << 16)).map_err(io::Error::other)?;
        for (distinct, pages) in [(0, 1), (1, 0), (1, 1 << 44), (1, u64::MAX)] {
            assert!(AliasedMapping::new(size, false, Pages(distinct), Pages(pages)).is_err());
        }
        Ok(())
    }
}
