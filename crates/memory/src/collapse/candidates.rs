//! Selects the huge pages of a mapping to collapse.

use std::ops::Range;

use hugewise_linux::{
    pages::occupancy::Slot,
    units::{Bytes, PageSize, Pages},
};
use schemars::JsonSchema;
use serde::Serialize;

pub use hugewise_linux::pages::occupancy::MIN_RESIDENT_PERCENT;

/// The address range of one huge page to be collapsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Start and end address.
    pub addresses: Range<u64>,
    /// Resident bytes.
    pub present: Bytes,
}

/// Sum over aligned ranges of one huge page each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Sum {
    /// Number of ranges, in huge pages.
    pub pages: Pages,
    /// Resident bytes.
    #[serde(rename = "resident_bytes")]
    pub present_bytes: Bytes,
}

impl Sum {
    /// Adds a range with `present` resident bytes.
    pub fn add(&mut self, present: Bytes) {
        self.pages.0 += 1;
        self.present_bytes += present;
    }

    /// Memory needed to make the ranges fully resident.
    #[must_use]
    pub fn holes(&self, size: PageSize) -> Bytes {
        (self.pages * size).saturating_sub(self.present_bytes)
    }
}

/// The ranges of a mapping: to collapse, on huge pages already, or too sparse.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectedRanges {
    /// Ranges to collapse.
    pub candidates: Vec<Candidate>,
    /// Ranges on huge pages already.
    pub huge: Sum,
    /// Ranges with too few resident bytes.
    pub sparse: Sum,
}

/// Selects the `slots` of which at least `min_present` percent are resident and that are not on huge pages.
#[must_use]
pub fn choose(slots: &[Slot], size: PageSize, min_present: u8) -> SelectedRanges {
    let page = size.bytes().0;
    let least = page / 100 * u64::from(min_present) + page % 100 * u64::from(min_present) / 100;
    let mut chosen = SelectedRanges::default();
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
