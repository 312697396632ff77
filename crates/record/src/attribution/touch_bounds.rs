//! Bounds of the time of first touch in a pause, from its pages and the costs per page that the recorder
//! measured.

use hugewise_linux::{reading::Reading, units::PageSize};

use super::gathered::RecordingData;

/// Factor from the highest cost per page that the recorder measured to the upper bound: parallel threads take
/// longer, and so does memory that a host has to provide first.
const COST_FACTOR: u64 = 4;

/// Bounds of the time of first touch per page, in nanoseconds; `None` if unknown.
pub(super) struct Costs {
    pub base_ns: Option<u64>,
    pub huge_ns: Option<u64>,
    pub least_base_ns: Option<u64>,
    pub least_huge_ns: Option<u64>,
    /// Base pages per huge page; `None` if a page size is unknown.
    pub base_in_huge: Option<u64>,
}

impl Costs {
    pub fn of(gathered: &RecordingData) -> Costs {
        let size = |reading: &Reading<PageSize>| reading.known().map(|size| size.bytes().0);
        let machine = &gathered.header.machine;
        let sizes = size(&machine.base_page).zip(size(&machine.thp.pmd_size));
        let base_in_huge = sizes.and_then(|(base, huge)| huge.checked_div(base));
        let Reading::Known(measured) = &gathered.header.first_touch else {
            return Costs {
                base_ns: None,
                huge_ns: None,
                least_base_ns: None,
                least_huge_ns: None,
                base_in_huge,
            };
        };
        let base_ns = measured.base.most_ns.saturating_mul(COST_FACTOR);
        // A huge page takes no longer than the base pages that it replaces.
        let of_base = base_in_huge.map(|pages| base_ns.saturating_mul(pages));
        let of_huge = measured.huge.map(|cost| cost.most_ns.saturating_mul(COST_FACTOR));
        Costs {
            base_ns: Some(base_ns),
            huge_ns: of_huge.max(of_base),
            least_base_ns: measured.base.least_ns,
            least_huge_ns: measured.huge.and_then(|cost| cost.least_ns),
            base_in_huge,
        }
    }
}

/// Divides `left` into zeroing and touch: up to their upper bounds, or in proportion to these if it is less.
pub(super) fn share_out(left: u64, zeroing: Option<u64>, touch: Option<u64>) -> (Option<u64>, Option<u64>) {
    if left == 0 {
        return (Some(0), Some(0));
    }
    let (Some(most_zeroing), Some(most_touch)) = (zeroing, touch) else { return (None, None) };
    let most = most_zeroing.saturating_add(most_touch);
    if most <= left {
        return (zeroing, touch);
    }
    let zeroing = (u128::from(left) * u128::from(most_zeroing) / u128::from(most)) as u64;
    (Some(zeroing), Some(left - zeroing))
}
