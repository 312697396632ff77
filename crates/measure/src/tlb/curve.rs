//! Curves: nanoseconds per load over the number of pages, and the share that the TLB adds.

use hugewise_linux::json;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One step, in octaves: the factor 2^(1/4), or 19 %. Page counts that differ by no more than one step agree.
pub const STEP_IN_OCTAVES: f64 = 0.25;

/// Largest count up to which every count is measured, because small TLBs need page-exact results.
const MAX_CONSECUTIVE_COUNT: usize = 16;
/// Counts per octave beyond that, evenly spaced: 64, 72, 80 …, 128, 144 … Real TLBs have such sizes (96,
/// 1536, 3072), and neighbouring counts differ by at most an eighth.
const COUNTS_PER_OCTAVE: usize = 8;

/// The page counts to measure, from 1 to at most `most`, ascending.
pub fn grid(most: usize) -> Vec<usize> {
    let coarse = (0..usize::BITS).flat_map(|octave| {
        (COUNTS_PER_OCTAVE..2 * COUNTS_PER_OCTAVE).filter_map(move |eighth| eighth.checked_mul(1 << octave))
    });
    (1..=MAX_CONSECUTIVE_COUNT)
        .chain(coarse.filter(|count| *count > MAX_CONSECUTIVE_COUNT))
        .take_while(|count| *count <= most)
        .collect()
}

/// The doublings of `most`, up to `last`.
pub fn octaves(most: usize, last: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(most.max(1).checked_mul(2), |count| count.checked_mul(2))
        .take_while(move |count| *count <= last)
}

/// The measured time of one page count.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Point {
    /// Number of pages, or of packed lines, visited in one lap.
    pub pages: u64,
    /// Time of a load: the lower quartile over all passes, in nanoseconds (JSON: seconds).
    #[serde(rename = "seconds", serialize_with = "json::ns_in_seconds")]
    pub ns: f64,
    /// Distance of the median of the passes above `ns`, in nanoseconds (JSON: seconds).
    #[serde(rename = "spread_seconds", serialize_with = "json::ns_in_seconds")]
    pub spread: f64,
}

/// The point for `pages` from the times of all passes, in nanoseconds; `None` without finite times.
pub fn point(pages: usize, passes: &[f64]) -> Option<Point> {
    let mut sorted: Vec<f64> = passes.iter().copied().filter(|ns| ns.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let quartile = *sorted.get(sorted.len().saturating_sub(1) / 4)?;
    let median = *sorted.get(sorted.len().saturating_sub(1) / 2)?;
    Some(Point { pages: pages as u64, ns: quartile, spread: median - quartile })
}

/// The time that the TLB adds to a load: `paged` minus `packed` at equal counts. Both must ascend; counts
/// that only one of them has are dropped.
pub fn extra(paged: &[Point], packed: &[Point]) -> Vec<Point> {
    let of_packed = |pages| packed.iter().find(|point| point.pages == pages);
    let pairs = paged.iter().filter_map(|point| Some((point, of_packed(point.pages)?)));
    pairs
        .map(|(paged, packed)| Point {
            pages: paged.pages,
            ns: paged.ns - packed.ns,
            spread: paged.spread.hypot(packed.spread),
        })
        .collect()
}

/// Whether two page counts differ by at most one step.
pub fn within_a_step(a: u64, b: u64) -> bool {
    a > 0 && b > 0 && (a as f64 / b as f64).log2().abs() <= STEP_IN_OCTAVES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grid_ascends_in_less_than_half_a_step() {
        let grid = grid(20_000);
        assert_eq!((grid[0], grid.len() > 90), (1, true));
        assert!([96, 512, 1024, 1536, 2048, 3072, 4096].iter().all(|size| grid.contains(size)));
        for pair in grid.windows(2).filter(|pair| pair[0] >= 8) {
            let ratio = pair[1] as f64 / pair[0] as f64;
            assert!(ratio > 1.0 && ratio.log2() <= STEP_IN_OCTAVES * 0.7, "{pair:?}");
        }
        assert_eq!(super::grid(0), [0; 0]);
        assert_eq!(super::grid(17), (1..=16).collect::<Vec<_>>());
    }

    #[test]
    fn octaves_go_on_where_the_grid_ends() {
        assert_eq!(octaves(8192, 40_000).collect::<Vec<_>>(), [16_384, 32_768]);
        assert_eq!(octaves(0, 0).count() + octaves(8192, 100).count(), 0);
    }

    #[test]
    fn a_point_is_the_lower_quartile() {
        let passes = [9.0, 1.0, 2.0, 3.0, f64::INFINITY, 100.0];
        assert_eq!(point(7, &passes), Some(Point { pages: 7, ns: 2.0, spread: 1.0 }));
        assert_eq!(point(7, &[]), None);
    }

    #[test]
    fn what_the_caches_cost_is_taken_off() {
        let at = |pages, ns| Point { pages, ns, spread: 0.0 };
        let extra = extra(&[at(8, 3.0), at(9, 5.0), at(10, 7.0)], &[at(8, 1.0), at(10, 2.0)]);
        assert_eq!(extra, [at(8, 2.0), at(10, 5.0)]);
    }

    #[test]
    fn a_step_is_a_quarter_of_an_octave() {
        assert!(within_a_step(2048, 2304) && within_a_step(2304, 2048) && within_a_step(96, 112));
        assert!(!within_a_step(2048, 2560) && !within_a_step(0, 0));
    }
}
