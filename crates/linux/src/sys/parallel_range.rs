//! Memory of this process that several threads make present, or give back, at once.

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

// Not in every C library that we build for; the number is the kernel's (include/uapi).
pub(super) const MADV_POPULATE_WRITE: c_int = 23;

/// A stretch of writable memory. Everything here that keeps contents may be done by any number of
/// threads at once, while others use the memory.
#[derive(Debug)]
pub struct Span<'a> {
    addresses: Range<u64>,
    memory: PhantomData<&'a [AtomicU8]>,
}

impl<'a> Span<'a> {
    /// Memory that nobody else uses meanwhile.
    #[must_use]
    pub fn new(memory: &'a mut [u8]) -> Span<'a> {
        let range = memory.as_mut_ptr_range();
        Span {
            addresses: range.start.expose_provenance() as u64..range.end.expose_provenance() as u64,
            memory: PhantomData,
        }
    }

    /// Memory that others may read and write meanwhile.
    ///
    /// # Safety
    ///
    /// All of `addresses` is mapped, readable and writable, and stays so as long as the span lives.
    /// Whoever gives back pages of it answers for what was in them.
    #[must_use]
    pub unsafe fn in_use(addresses: Range<u64>) -> Span<'a> {
        Span { addresses, memory: PhantomData }
    }

    /// Where it lies.
    #[must_use]
    pub fn addresses(&self) -> Range<u64> {
        self.addresses.clone()
    }

    /// Makes every page of `pages` present and writable, contents kept (`MADV_POPULATE_WRITE`, Linux
    /// 5.14). The addresses are those of whole pages, which may reach beyond the span.
    ///
    /// Where memory or a limit runs out this is an error, not a SIGBUS: EFAULT for a pool or a limit
    /// of the hugetlb cgroup, ENOMEM for memory. EINVAL where the kernel has no such call.
    pub fn populate(&self, pages: Range<u64>) -> io::Result<()> {
        advise(pages, MADV_POPULATE_WRITE)
    }

    /// Makes pages present by writing to one byte every `step` what it held, atomically: at the
    /// beginning of `pages`, so far as it lies in the span, and at each multiple of the step.
    ///
    /// Where no page can be had the kernel kills the process (SIGBUS, or the OOM killer).
    pub fn touch(&self, pages: Range<u64>, step: Bytes) {
        let mut at = pages.start.max(self.addresses.start);
        let end = pages.end.min(self.addresses.end);
        while at < end {
            let byte: *mut u8 = std::ptr::with_exposed_provenance_mut(at as usize);
            // SAFETY: the address lies in the span, which is writable for as long as it lives; others
            // may write there meanwhile, and so do we only in one atomic step. Of memory borrowed as
            // `&mut`, nobody else has a reference.
            let byte = unsafe { AtomicU8::from_ptr(byte) };
            // Adding a known zero would become a mere read, which makes nothing present for writing.
            byte.fetch_add(black_box(0), Ordering::Relaxed);
            at = (at / step.0.max(1)).saturating_add(1).saturating_mul(step.0.max(1));
        }
    }

    /// Gives pages of private memory back to the kernel or the pool: what was in them is lost, and they
    /// read as zero (`MADV_DONTNEED`). EINVAL outside of the span, for a part of a huge page of a pool,
    /// and for a pool before Linux 5.18.
    pub fn discard(&self, pages: Range<u64>) -> io::Result<()> {
        self.give_back(pages, libc::MADV_DONTNEED)
    }

    /// The same for shared memory (`MADV_REMOVE`).
    pub fn discard_shared(&self, pages: Range<u64>) -> io::Result<()> {
        self.give_back(pages, libc::MADV_REMOVE)
    }

    /// Makes base pages of a huge page of which `pages` is a part (`MADV_COLD`, Linux 5.4). What of it was
    /// given back before is free then, and what holds only zeros, too; whether the kernel really did it,
    /// it does not tell.
    pub fn split(&self, pages: Range<u64>) -> io::Result<()> {
        self.give_back(pages, libc::MADV_COLD)
    }

    fn give_back(&self, pages: Range<u64>, advice: c_int) -> io::Result<()> {
        if pages.start < self.addresses.start || self.addresses.end < pages.end {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        advise(pages, advice)
    }
}

/// Can this kernel populate at all (Linux 5.14)?
#[must_use]
pub fn can_populate() -> bool {
    // Nothing to be done, which only a kernel that knows the advice accepts.
    advise(0..0, MADV_POPULATE_WRITE).is_ok()
}

fn advise(pages: Range<u64>, advice: c_int) -> io::Result<()> {
    let start: *mut c_void = std::ptr::with_exposed_provenance_mut(pages.start as usize);
    let length = pages.end.saturating_sub(pages.start) as usize;
    // SAFETY: populating keeps contents, wherever it is; what is given back lies in a span, whose maker
    // answered for it.
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
            // SAFETY: the first byte of the mapping, which everybody uses atomically.
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
        // The page of the first byte, and one byte of the page behind it.
        let Some(present) = resident(all.clone()) else { return Ok(()) };
        assert!(present >= Bytes(PAGE) && present < Bytes(3 * PAGE), "{present}");
        assert!(span.discard(all.start..all.end + PAGE).is_err());
        span.discard(all.clone())?;
        assert_eq!(resident(all), Some(Bytes::ZERO));
        Ok(())
    }
}
