//! Memory of this process that several threads populate or release at the same time.

use std::{
    hint::black_box,
    io,
    marker::PhantomData,
    ops::Range,
    sync::atomic::{AtomicU8, Ordering},
};

use libc::{c_int, c_void};

use super::checked;
use crate::units::Bytes;

/// A range of writable memory. Operations that keep the contents may run on any number of threads at once,
/// while others use the memory.
#[derive(Debug)]
pub struct Span<'a> {
    addresses: Range<u64>,
    memory: PhantomData<&'a [AtomicU8]>,
}

impl<'a> Span<'a> {
    /// Memory that no other thread uses at the same time.
    pub fn new(memory: &'a mut [u8]) -> Span<'a> {
        let range = memory.as_mut_ptr_range();
        Span {
            addresses: range.start.expose_provenance() as u64..range.end.expose_provenance() as u64,
            memory: PhantomData,
        }
    }

    /// Memory that other threads may read and write at the same time.
    ///
    /// # Safety
    ///
    /// All of `addresses` is mapped, readable and writable as long as the span lives. A caller that releases
    /// pages guarantees that their contents are not needed.
    pub unsafe fn in_use(addresses: Range<u64>) -> Span<'a> {
        Span { addresses, memory: PhantomData }
    }

    pub fn addresses(&self) -> Range<u64> {
        self.addresses.clone()
    }

    /// Populates every page of `pages` and keeps the contents (`MADV_POPULATE_WRITE`, Linux 5.14). `pages`
    /// are addresses of whole pages and may reach beyond the span.
    ///
    /// An error, not a SIGBUS, if memory or a limit is exhausted: EFAULT for a pool or a limit of the hugetlb
    /// cgroup, ENOMEM for memory. EINVAL if the kernel does not have this advice.
    pub fn populate(&self, pages: Range<u64>) -> io::Result<()> {
        advise(pages, libc::MADV_POPULATE_WRITE)
    }

    /// Populates pages by atomically writing one byte back every `step`: at the beginning of `pages`, as far
    /// as it is in the span, and at each multiple of the step.
    ///
    /// If no page is available the kernel kills the process (SIGBUS, or the OOM killer).
    pub fn touch(&self, pages: Range<u64>, step: Bytes) {
        let mut at = pages.start.max(self.addresses.start);
        let end = pages.end.min(self.addresses.end);
        while at < end {
            let byte: *mut u8 = std::ptr::with_exposed_provenance_mut(at as usize);
            // SAFETY: the address is in the span, which is writable as long as it lives; others may write
            // there at the same time, and we write in one atomic step only. Memory borrowed as `&mut` has no
            // other reference.
            let byte = unsafe { AtomicU8::from_ptr(byte) };
            // Adding a constant zero would be compiled to a read, which populates nothing for writing.
            byte.fetch_add(black_box(0), Ordering::Relaxed);
            at = (at / step.0.max(1)).saturating_add(1).saturating_mul(step.0.max(1));
        }
    }

    /// Releases pages of private memory to the kernel or the pool: their contents are lost, and they read as
    /// zero (`MADV_DONTNEED`). EINVAL outside of the span, for a part of a hugetlb page, and for hugetlb
    /// before Linux 5.18.
    pub fn discard(&self, pages: Range<u64>) -> io::Result<()> {
        self.advise_inside(pages, libc::MADV_DONTNEED)
    }

    /// Like [`Span::discard`], for shared memory (`MADV_REMOVE`).
    pub fn discard_shared(&self, pages: Range<u64>) -> io::Result<()> {
        self.advise_inside(pages, libc::MADV_REMOVE)
    }

    /// Splits the huge page that `pages` is a part of into base pages (`MADV_COLD`, Linux 5.4). Its base
    /// pages that were released before, or contain only zeros, become free. The kernel does not report
    /// whether it split the page.
    pub fn split(&self, pages: Range<u64>) -> io::Result<()> {
        self.advise_inside(pages, libc::MADV_COLD)
    }

    fn advise_inside(&self, pages: Range<u64>, advice: c_int) -> io::Result<()> {
        if pages.start < self.addresses.start || self.addresses.end < pages.end {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        advise(pages, advice)
    }
}

/// True if the kernel has `MADV_POPULATE_WRITE` (Linux 5.14).
pub fn can_populate() -> bool {
    // An empty range is accepted only by a kernel that has the advice.
    advise(0..0, libc::MADV_POPULATE_WRITE).is_ok()
}

fn advise(pages: Range<u64>, advice: c_int) -> io::Result<()> {
    let start: *mut c_void = std::ptr::with_exposed_provenance_mut(pages.start as usize);
    let length = pages.end.saturating_sub(pages.start) as usize;
    // SAFETY: populating keeps the contents of any memory; released memory is in a span, whose creator
    // guaranteed that its contents are not needed.
    checked(unsafe { libc::madvise(start, length, advice) }).map(drop)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::sys::memory::Mapping;

    const PAGE: u64 = 1 << 16; // At least a base page, on every machine.

    fn resident(addresses: Range<u64>) -> Option<Bytes> {
        let pagemap = std::fs::File::open("/proc/self/pagemap").ok()?;
        super::super::pagemap::scan(&pagemap, addresses).ok().map(|scan| scan.present)
    }

    #[test]
    fn what_others_write_meanwhile_is_never_lost() -> io::Result<()> {
        let mut memory = Mapping::anonymous(Bytes(PAGE))?;
        let span = Span::new(memory.bytes_mut());
        let counter = |address: u64| {
            let place: *mut u8 = std::ptr::with_exposed_provenance_mut(address as usize);
            // SAFETY: the first byte of the mapping, which all threads access atomically.
            unsafe { AtomicU8::from_ptr(place) }
        };
        let start = span.addresses().start;
        thread::scope(|scope| {
            let toucher =
                scope.spawn(|| (0..200_000).for_each(|_| span.touch(span.addresses(), Bytes(1 << 12))));
            scope.spawn(|| (0..200_000).map(|_| counter(start).fetch_add(1, Ordering::Relaxed)).max());
            toucher.join()
        })
        .map_err(|_| io::Error::other("panicked"))?;
        assert_eq!(memory.bytes()[0], (200_000 % 256) as u8);
        Ok(())
    }

    #[test]
    fn touching_makes_each_page_present_and_discarding_gives_it_back() -> io::Result<()> {
        let mut memory = Mapping::anonymous(Bytes(16 * PAGE))?;
        memory.advise(0..memory.len(), crate::sys::memory::Advice::NoHugePage)?;
        let span = Span::new(memory.bytes_mut());
        let all = span.addresses();
        span.touch(all.start + 1..all.start + PAGE + 1, Bytes(1 << 12));
        // The page of the first byte, and one byte of the next page.
        let Some(present) = resident(all.clone()) else { return Ok(()) };
        assert!(present >= Bytes(PAGE) && present < Bytes(3 * PAGE), "{present}");
        assert!(span.discard(all.start..all.end + PAGE).is_err());
        span.discard(all.clone())?;
        assert_eq!(resident(all), Some(Bytes::ZERO));
        Ok(())
    }
}
