//! Which huge pages of a mapping are worth it.

use std::ops::Range;

use hugewise_linux::{
    pages::occupancy::Slot,
    units::{Bytes, PageSize, Pages},
};
use schemars::JsonSchema;
use serde::Serialize;

/// Of a huge page's worth of addresses, so many percent must be present.
///
/// The rest becomes memory that nobody asked for: at 75, a third more than was there at most. What is
/// denser than that is nearly all of a heap that is in use; what is sparser is mostly the end of an
/// arena, which grows into its huge page by itself or never.
pub const MIN_PRESENT: u8 = 75;

/// One huge page to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its addresses.
    pub addresses: Range<u64>,
    /// What of it is present.
    pub present: Bytes,
}

/// The sum over some huge pages' worth of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Sum {
    /// How many.
    pub pages: Pages,
    /// What of them is present.
    pub present_bytes: Bytes,
}

impl Sum {
    /// Adds one of them.
    pub fn add(&mut self, present: Bytes) {
        self.pages.0 += 1;
        self.present_bytes += present;
    }

    /// The memory it takes to make all of it present.
    #[must_use]
    pub fn holes(&self, size: PageSize) -> Bytes {
        (self.pages * size).saturating_sub(self.present_bytes)
    }
}

/// What lies in some addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// To be converted.
    pub candidates: Vec<Candidate>,
    /// Huge already.
    pub huge: Sum,
    /// Too little of them is present.
    pub sparse: Sum,
}

/// Chooses among what is present.
#[must_use]
pub fn choose(slots: &[Slot], size: PageSize, min_present: u8) -> Chosen {
    let page = size.bytes().0;
    let least = page / 100 * u64::from(min_present) + page % 100 * u64::from(min_present) / 100;
    let mut chosen = Chosen::default();
    for slot in slots {
        if slot.huge {
            chosen.huge.add(slot.present);
        } else if slot.present.0 < least {
            chosen.sparse.add(slot.present);
        } else {
            let addresses = slot.start..slot.start.saturating_add(page);
            chosen.candidates.push(Candidate { addresses, present: slot.present });
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn what_is_dense_and_not_yet_huge_is_chosen() -> Result<(), Box<dyn Error>> {
        let size: PageSize = "2m".parse()?;
        let slot = |n: u64, kib, huge| Slot { start: n << 21, present: Bytes::from_kib(kib), huge };
        let slots = [slot(1, 2048, false), slot(2, 2048, true), slot(3, 1536, false), slot(5, 1535, false)];
        let chosen = choose(&slots, size, 75);
        let starts: Vec<u64> = chosen.candidates.iter().map(|one| one.addresses.start >> 21).collect();
        assert_eq!(starts, [1, 3]);
        assert_eq!((chosen.huge.pages, chosen.sparse.pages), (Pages(1), Pages(1)));
        assert_eq!(chosen.sparse.holes(size), Bytes::from_kib(513));
        let (all, whole) = (choose(&slots, size, 1), choose(&slots, size, 100));
        assert_eq!((all.candidates.len(), whole.candidates.len()), (3, 1));
        Ok(())
    }
}
