//! Combines several parts of a process into one region.

use std::{collections::BTreeMap, ops::Range};

use hugewise_linux::{
    pages::count::PageCounts,
    units::{Bytes, PageSize},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{MachineState, Part, Reason, Survey};

/// A region and its pages. Memory that is mapped several times is counted once.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RegionPages {
    /// Name of the region: its purpose, file or thread.
    pub name: String,
    /// First address.
    pub start: u64,
    /// First address after the region.
    pub end: u64,
    /// Resident bytes, hugetlb pages included.
    pub resident_bytes: Bytes,
    /// Resident bytes by page size; their sum is `resident_bytes`. Base pages include those of mTHP unless the
    /// sizes of folios were read.
    pub bytes_by_page_size: BTreeMap<PageSize, Bytes>,
    /// Resident bytes on hugetlb pages.
    pub hugetlb_bytes: Bytes,
    /// Of the resident bytes, those that can be on huge pages: without files, kernel memory, stacks, and memory in no
    /// aligned range of a huge page, unless they are on huge pages.
    pub suitable_bytes: Bytes,
    /// Reason for most of the bytes on base pages; null if there are none.
    pub reason: Option<Reason>,
    /// Bytes on base pages, or swapped out, for which `reason` holds; null without a reason.
    pub reason_bytes: Option<Bytes>,
    #[serde(skip)]
    base: PageSize,
}

impl RegionPages {
    pub(super) fn new(
        name: String,
        addresses: Range<u64>,
        pages: &PageCounts,
        machine: &MachineState,
        reason: Option<(Reason, Bytes)>,
        unsuitable: Bytes,
    ) -> RegionPages {
        RegionPages {
            suitable_bytes: pages.resident().saturating_sub(unsuitable),
            name,
            start: addresses.start,
            end: addresses.end,
            resident_bytes: pages.resident(),
            bytes_by_page_size: pages.by_page_size(machine.sizes.base, machine.sizes.thp),
            hugetlb_bytes: pages.hugetlb.values().copied().sum(),
            reason: reason.map(|(reason, _)| reason),
            reason_bytes: reason.map(|(_, bytes)| bytes),
            base: machine.sizes.base,
        }
    }

    /// Bytes on pages larger than base pages.
    pub fn huge(&self) -> Bytes {
        super::huge(&self.bytes_by_page_size, self.base)
    }

    /// Share on pages larger than base pages, 0 to 1; `None` if nothing is resident.
    pub fn coverage(&self) -> Option<f64> {
        self.huge().share_of(self.resident_bytes)
    }

    /// Sizes of the huge pages in it.
    pub fn huge_page_sizes(&self) -> impl Iterator<Item = PageSize> + '_ {
        self.bytes_by_page_size.keys().copied().filter(|size| *size > self.base)
    }
}

impl Survey {
    /// Combines the parts that `belongs` accepts into one region; `None` if no byte of them is resident.
    pub fn region(
        &self,
        name: &str,
        machine: &MachineState,
        belongs: impl Fn(&Part) -> bool,
    ) -> Option<RegionPages> {
        let mut pages = PageCounts::default();
        let mut reasons: Vec<(Reason, Bytes)> = Vec::new();
        let (mut start, mut end) = (u64::MAX, 0);
        for (part, counts) in self.parts.iter().filter(|(part, _)| belongs(part)) {
            let once = counts.once();
            for (judged, bytes) in &counts.reasons {
                let bytes = (*bytes).min(once.base + once.swap);
                match reasons.iter_mut().find(|(reason, _)| *reason == judged.reason) {
                    Some((_, sum)) => *sum += bytes,
                    None => reasons.push((judged.reason, bytes)),
                }
            }
            (start, end) = (start.min(part.addresses.start), end.max(part.addresses.end));
            pages.add(&once);
        }
        let unsuitable =
            reasons.iter().filter(|(reason, _)| reason.is_of_place()).map(|(_, bytes)| *bytes).sum();
        let reason = reasons.into_iter().max_by_key(|(_, bytes)| *bytes);
        (pages.resident() > Bytes::ZERO)
            .then(|| RegionPages::new(name.to_owned(), start..end, &pages, machine, reason, unsuitable))
    }
}
