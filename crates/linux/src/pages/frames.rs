//! Page frames of a process's memory, from /proc/PID/pagemap.

use std::{fs::File, io, ops::Range, os::unix::fs::FileExt};

use crate::units::PageSize;

// Bits of `Documentation/admin-guide/mm/pagemap.rst`.
pub(super) const PRESENT: u64 = 1 << 63;
pub(super) const FRAME: u64 = (1 << 55) - 1;

/// Words of 8 bytes read at once.
const WINDOW_WORDS: usize = 1 << 15;

/// A base page that is present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Virtual address.
    pub address: u64,
    /// Page frame number; `None` without CAP_SYS_ADMIN, without which the kernel reports 0.
    pub frame: Option<u64>,
}

/// Visits the present pages in `addresses`, sorted by address. `pagemap` is the /proc/PID/pagemap of the
/// process.
pub fn visit(
    pagemap: &File,
    addresses: Range<u64>,
    base: PageSize,
    mut visit: impl FnMut(Page),
) -> io::Result<()> {
    let size = base.bytes().0;
    let mut buffer = vec![0; WINDOW_WORDS * 8];
    let (mut at, end) = (addresses.start / size, addresses.end.div_ceil(size));
    while at < end {
        let wanted = (end - at).min(WINDOW_WORDS as u64) as usize * 8;
        let read = pagemap.read_at(&mut buffer[..wanted], at * 8)?;
        if read < 8 {
            break; // The end of the address space.
        }
        for word in buffer[..read].chunks_exact(8) {
            let word = word.try_into().map_or(0, u64::from_ne_bytes);
            if word & PRESENT != 0 {
                let frame = Some(word & FRAME).filter(|frame| *frame != 0);
                visit(Page { address: at * size, frame });
            }
            at += 1;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{hugepages::base_page, root::Root, sys::memory::Mapping, units::Bytes};

    #[test]
    fn pages_that_are_present_are_visited() -> io::Result<()> {
        let Some(base) = base_page::read(&Root::live()).known().copied() else { return Ok(()) };
        let size = base.bytes().0;
        let mut memory = Mapping::anonymous(Bytes(100_000 * size))?;
        memory.advise(0..memory.len(), crate::sys::memory::Advice::NoHugePage)?;
        let touched = [0, 7, 40_000, 99_999].map(|page: u64| page * size);
        for at in touched {
            memory.bytes_mut()[at as usize] = 1;
        }
        let mut seen = Vec::new();
        let all = memory.addresses(&(0..memory.len()));
        visit(&File::open("/proc/self/pagemap")?, all.clone(), base, |page| seen.push(page))?;
        assert_eq!(seen.iter().map(|page| page.address - all.start).collect::<Vec<_>>(), touched);
        let frames: Vec<u64> = seen.iter().filter_map(|page| page.frame).collect();
        assert!(frames.is_empty() || frames.len() == touched.len());
        Ok(())
    }
}
