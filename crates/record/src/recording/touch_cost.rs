//! Measures the cost of first touch, as recordings contain only the number of page faults.

use hugewise_linux::{
    hugepages::{base_page, headroom, thp},
    reading::Reading,
    root::Root,
    sys::{
        memory::{Advice, Mapping},
        process::thread_cpu,
    },
    units::{Bytes, PageSize},
};

use super::model::{FirstTouch, PageCost};

/// Number of blocks of the PMD size that are touched, for each page size.
const BLOCKS: u64 = 4;
/// Fewest free huge pages at which huge pages are touched, so that the recorder never waits for one.
const MIN_FREE_HUGE_PAGES: u64 = 16 * BLOCKS;

/// Touches a few pages and measures their CPU time.
pub fn measure(root: &Root) -> Reading<FirstTouch> {
    let (base, huge) = (base_page::read(root), thp::pmd_size(root));
    let (Some(base), Some(huge)) = (base.known(), huge.known()) else {
        return Reading::unknown("the page sizes are unknown");
    };
    let cost = touch(*huge, Advice::NoHugePage, *base);
    let at_once = headroom::read(root, *base, *huge).map_or(0, |room| room.at_once.0);
    cost.map(|base_cost| FirstTouch {
        base: base_cost,
        huge: (at_once >= MIN_FREE_HUGE_PAGES).then(|| touch(*huge, Advice::HugePage, *huge).ok()).flatten(),
    })
    .into()
}

/// Cost of touching one byte in every `step` of [`BLOCKS`] blocks.
fn touch(block: PageSize, advice: Advice, step: PageSize) -> std::io::Result<PageCost> {
    let size = block.bytes().0;
    let mut memory = Mapping::anonymous(Bytes((BLOCKS + 1) * size))?;
    let aligned = memory.address().next_multiple_of(size) - memory.address();
    let begin = usize::try_from(aligned).map_err(std::io::Error::other)?;
    let len = memory.len();
    memory.advise(0..len, advice)?;
    let (size, step) = (size as usize, step.bytes().0 as usize);
    let (mut total, mut most, mut least) = (0, 0, u64::MAX);
    for block in memory.bytes_mut()[begin..].chunks_exact_mut(size).take(BLOCKS as usize) {
        let before = thread_cpu();
        for page in block.chunks_mut(step) {
            page[0] = 1;
        }
        let took = u64::try_from((thread_cpu() - before).as_nanos()).unwrap_or(u64::MAX);
        (total, most, least) = (total + took, most.max(took), least.min(took));
    }
    let pages = (size / step) as u64;
    Ok(PageCost { mean_ns: total / (pages * BLOCKS), most_ns: most / pages, least_ns: Some(least / pages) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_cost_is_at_least_the_mean() {
        let Reading::Known(costs) = measure(&Root::live()) else { return };
        for cost in [Some(costs.base), costs.huge].into_iter().flatten() {
            assert!(cost.mean_ns > 0 && cost.most_ns >= cost.mean_ns, "{costs:?}");
            assert!(cost.least_ns.is_some_and(|least| least > 0 && least <= cost.mean_ns), "{costs:?}");
        }
    }
}
