//! The pointer chase: dependent loads in random order.
//!
//! The time of a load depends on the caches and on the TLB. The same number of cache lines is chased in two
//! layouts that load the caches alike, so that the difference is due to the TLB.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Instant,
};

/// Size of the index of the next line, which each line holds, in bytes.
const WORD: usize = size_of::<u64>();

/// Placement of the cache lines that are chased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// One line on each page of this size, in bytes; `None`: lines adjacent to each other.
    pub page: Option<usize>,
    /// Length of a cache line, in bytes.
    pub line: usize,
}

impl Layout {
    /// Byte offset of line `index`.
    ///
    /// Lines at the same offset of every page would compete for a few cache sets and, where the host uses
    /// smaller pages, for a few TLB sets. Each line is therefore placed 65 lines further into its page than
    /// the line of the previous page: 65 is odd, so every offset is used before one repeats. Each full round
    /// shifts the offset by one more line: where pages are physically contiguous, page number and offset
    /// together select the set and must not advance in step.
    pub fn offset(self, index: usize) -> usize {
        match self.page {
            None => index * self.line,
            Some(page) => {
                let lines = (page / self.line).max(1);
                index * page + (index * 65 + index / lines) % lines * self.line
            }
        }
    }
}

/// Writes a single cycle through `count` lines into `memory`, in an order drawn from `random`.
///
/// Sattolo's algorithm (1986): a shuffle that yields every cycle through all lines with equal probability, so
/// that every line is visited.
pub fn lay(memory: &[AtomicU64], layout: Layout, count: usize, random: &mut fastrand::Rng) {
    let mut next: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        next.swap(last, random.usize(0..last));
    }
    for (index, next) in next.into_iter().enumerate() {
        if let Some(word) = memory.get(layout.offset(index) / WORD) {
            word.store((layout.offset(next) / WORD) as u64, Relaxed);
        }
    }
}

/// Follows the cycle for `steps` loads from the word `start`; returns the index of the last word.
#[inline(never)]
pub fn follow(memory: &[AtomicU64], start: usize, steps: usize) -> usize {
    let mut at = start;
    for _ in 0..steps {
        // The bounds check is not part of the chain of dependent loads: the next load is already issued.
        let Some(word) = memory.get(at) else { return 0 };
        at = word.load(Relaxed) as usize;
    }
    at
}

/// Nanoseconds per load: the fastest of `runs` runs of `steps` loads, after one uncounted lap.
///
/// Disturbances only lengthen a run, and runs are short enough that most are undisturbed.
pub fn time(memory: &[AtomicU64], layout: Layout, count: usize, steps: usize, runs: usize) -> f64 {
    let mut at = follow(memory, layout.offset(0) / WORD, count);
    let mut best = f64::INFINITY;
    for _ in 0..runs {
        let begin = Instant::now();
        at = std::hint::black_box(follow(memory, at, steps));
        best = best.min(begin.elapsed().as_nanos() as f64 / steps.max(1) as f64);
    }
    best
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn zeroed(bytes: usize) -> Vec<AtomicU64> {
        (0..bytes / WORD).map(|_| AtomicU64::new(0)).collect()
    }

    proptest! {
        #[test]
        fn every_line_is_visited_once_a_lap(count in 1usize..300, page_log in 6u32..13, seed: u64) {
            for page in [None, Some(1 << page_log)] {
                let layout = Layout { page, line: 64 };
                let memory = zeroed(count << page_log);
                lay(&memory, layout, count, &mut fastrand::Rng::with_seed(seed));
                let mut seen = BTreeSet::new();
                let first = layout.offset(0) / WORD;
                let mut at = first;
                for _ in 0..count {
                    prop_assert!(seen.insert(at), "a shorter cycle");
                    at = follow(&memory, at, 1);
                }
                prop_assert_eq!(at, first);
                prop_assert_eq!(follow(&memory, at, 3 * count), at);
            }
        }

        #[test]
        fn each_page_holds_one_line(page_log in 7u32..22, index in 0usize..100_000) {
            let page = 1 << page_log;
            for line in [64, 128] {
                let at = Layout { page: Some(page), line }.offset(index);
                prop_assert_eq!(at % line, 0);
                prop_assert_eq!(at / page, index);
            }
        }
    }

    /// Number of lines in the fullest of `sets` sets, for physically contiguous memory.
    fn fullest(page: Option<usize>, count: usize, sets: usize) -> usize {
        let mut filled = vec![0; sets];
        for index in 0..count {
            filled[Layout { page, line: 64 }.offset(index) / 64 % sets] += 1;
        }
        filled.into_iter().max().unwrap_or(0)
    }

    #[test]
    fn cache_sets_are_used_as_evenly_as_by_packed_lines() {
        for page in [4 << 10, 16 << 10, 64 << 10, 2 << 20, 1 << 30] {
            // First-level caches have 64 sets, second-level caches 1024 or 2048.
            for sets in [64, 1024, 2048] {
                for count in [4096, 8192] {
                    let (paged, packed) = (fullest(Some(page), count, sets), fullest(None, count, sets));
                    assert!(paged <= packed, "{page} {sets} {count}: {paged} > {packed}");
                }
            }
        }
    }

    #[test]
    fn a_place_outside_ends_the_chase() {
        assert_eq!(follow(&[AtomicU64::new(u64::MAX)], 0, 10), 0);
        assert_eq!(follow(&[], 5, 10), 0);
    }
}
