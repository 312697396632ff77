//! Occupancy of aligned ranges of the size of a huge page.

use std::{io, ops::Range, os::unix::fs::FileExt};

use super::frames::PRESENT;
use crate::{
    root::Root,
    sys::{file::patient::PatientFile, pagemap},
    units::{Bytes, PageSize},
};

/// Minimum resident share of a candidate, in percent.
///
/// The holes become resident: at 75 %, the resident size of a range grows by at most a third. A heap in use
/// has few sparser ranges; most of them are ends of malloc's arenas.
pub const MIN_RESIDENT_PERCENT: u8 = 75;

/// An aligned address range of the size of a huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// First address.
    pub start: u64,
    /// Present bytes.
    pub present: Bytes,
    /// True if one huge page table entry maps the range; always false before Linux 6.7.
    pub huge: bool,
}

/// The page table of a process, open for scans.
#[derive(Debug)]
pub struct Occupancy {
    pagemap: PatientFile,
    base: PageSize,
    size: PageSize,
}

impl Occupancy {
    /// Opens the page table of process `pid`, for huge pages of `size`. EACCES without the privilege to trace
    /// it.
    pub fn open(root: &Root, pid: u32, base: PageSize, size: PageSize) -> io::Result<Occupancy> {
        let pagemap = root.open_patiently(format!("proc/{pid}/pagemap"))?;
        Ok(Occupancy { pagemap, base, size })
    }

    /// The page table that `pagemap` shows.
    pub(super) fn of(pagemap: PatientFile, base: PageSize, size: PageSize) -> Occupancy {
        Occupancy { pagemap, base, size }
    }

    /// The whole slots in `addresses` that have present pages, sorted by address.
    pub fn slots(&self, addresses: &Range<u64>) -> io::Result<Vec<Slot>> {
        let whole = whole(addresses, self.size);
        if whole.is_empty() {
            return Ok(Vec::new());
        }
        let addresses = whole.clone();
        match self.pagemap.with(move |file| pagemap::present(file, addresses)) {
            Ok(mapped) => {
                let mut slots = Slots::new(self.size);
                mapped.into_iter().for_each(|mapped| slots.add(&mapped.addresses, mapped.huge));
                Ok(slots.found)
            }
            // An unknown ioctl: `PAGEMAP_SCAN` before Linux 6.7.
            Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => self.by_words(&whole),
            Err(error) => Err(error),
        }
    }

    /// The bytes in `addresses` on base pages that are the kernel's zero page. ENOTTY before Linux 6.7.
    pub fn on_zero_page(&self, addresses: &Range<u64>) -> io::Result<Bytes> {
        let addresses = addresses.clone();
        self.pagemap.with(move |file| pagemap::on_zero_page(file, addresses))
    }

    /// Reads a word per base page, for kernels before 6.7.
    fn by_words(&self, whole: &Range<u64>) -> io::Result<Vec<Slot>> {
        let (page, base) = (self.size.bytes().0, self.base.bytes().0);
        let mut slots = Slots::new(self.size);
        let mut bytes = vec![0u8; (page / base) as usize * 8];
        for start in (whole.start..whole.end).step_by(page as usize) {
            bytes = self.pagemap.with(move |file| {
                file.read_exact_at(&mut bytes, start / base * 8)?;
                Ok(bytes)
            })?;
            for (n, word) in bytes.chunks_exact(8).enumerate() {
                let word = word.try_into().map_or(0, u64::from_ne_bytes);
                if word & PRESENT != 0 {
                    let at = start + n as u64 * base;
                    slots.add(&(at..at + base), false);
                }
            }
        }
        Ok(slots.found)
    }
}

/// The largest part of `addresses` that consists of whole, aligned pages of `size`.
pub fn whole(addresses: &Range<u64>, size: PageSize) -> Range<u64> {
    let page = size.bytes().0;
    let start = addresses.start.checked_next_multiple_of(page).unwrap_or(addresses.end);
    start..(addresses.end / page * page).max(start)
}

/// Slots with present pages.
struct Slots {
    page: u64,
    found: Vec<Slot>,
}

impl Slots {
    fn new(size: PageSize) -> Slots {
        Slots { page: size.bytes().0, found: Vec::new() }
    }

    /// Adds present addresses, which must be sorted.
    fn add(&mut self, addresses: &Range<u64>, huge: bool) {
        let mut at = addresses.start;
        while at < addresses.end {
            let start = at / self.page * self.page;
            let end = start.saturating_add(self.page).min(addresses.end);
            let bytes = Bytes(end - at);
            match self.found.last_mut() {
                Some(slot) if slot.start == start => slot.present += bytes,
                _ => self.found.push(Slot { start, present: bytes, huge }),
            }
            at = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        reading::Reading,
        sys::{
            memory::{Advice, Mapping},
            remote_memory,
        },
    };

    #[test]
    fn pages_are_put_into_their_slots() -> Result<(), Box<dyn Error>> {
        let mut slots = Slots::new("64k".parse()?);
        slots.add(&(0x1_0000..0x1_1000), false);
        slots.add(&(0x1_2000..0x2_1000), false);
        slots.add(&(0x4_0000..0x6_0000), true);
        let found: Vec<_> = slots.found.iter().map(|slot| (slot.start, slot.present.0, slot.huge)).collect();
        let expected = [
            (0x1_0000, 0xf000, false),
            (0x2_0000, 0x1000, false),
            (0x4_0000, 0x1_0000, true),
            (0x5_0000, 0x1_0000, true),
        ];
        assert_eq!(found, expected);
        Ok(())
    }

    #[test]
    fn pagemap_scan_and_pagemap_words_agree() -> Result<(), Box<dyn Error>> {
        let Reading::Known(base) = crate::hugepages::base_page::read(&Root::live()) else { return Ok(()) };
        let size: PageSize = "2m".parse()?;
        let mapping = Mapping::anonymous(Bytes(8 << 20))?;
        mapping.advise(0..8 << 20, Advice::NoHugePage)?;
        mapping.advise(1 << 20..5 << 20, Advice::PopulateWrite)?;
        let seen = Occupancy::open(&Root::live(), std::process::id(), base, size)?;
        let all = mapping.addresses(&(0..mapping.len()));
        let slots = seen.slots(&all)?;
        assert_eq!(slots, seen.by_words(&whole(&all, size))?);
        assert!((1..=3).contains(&slots.len()), "{slots:?}");
        Ok(())
    }

    #[test]
    fn pages_that_are_only_read_are_the_zero_page() -> Result<(), Box<dyn Error>> {
        let Reading::Known(base) = crate::hugepages::base_page::read(&Root::live()) else { return Ok(()) };
        let mapping = Mapping::anonymous(Bytes(8 << 20))?;
        mapping.advise(0..8 << 20, Advice::NoHugePage)?;
        let mut page = [0];
        let all = mapping.addresses(&(0..mapping.len()));
        let occupancy = Occupancy::open(&Root::live(), std::process::id(), base, "2m".parse()?)?;
        for n in [1, 2, 5] {
            remote_memory::read(std::process::id(), all.start + n * base.bytes().0, &mut page)?;
        }
        mapping.advise(1 << 20..5 << 20, Advice::PopulateWrite)?;
        // ENOTTY before Linux 6.7.
        if let Ok(bytes) = occupancy.on_zero_page(&all) {
            assert_eq!(bytes, Bytes(3 * base.bytes().0));
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn whole_slots_lie_inside(start in any::<u64>(), length in any::<u64>(), bits in 12u32..40) {
            let Ok(size) = PageSize::new(Bytes(1 << bits)) else { return Ok(()) };
            let addresses = start..start.saturating_add(length);
            let whole = whole(&addresses, size);
            prop_assert!(whole.is_empty() || (addresses.start <= whole.start && whole.end <= addresses.end));
            prop_assert!(whole.is_empty() || (whole.start % size.bytes().0 == 0 && whole.end % size.bytes().0 == 0));
        }
    }
}
