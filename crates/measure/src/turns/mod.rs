//! Turns: the processes of all arms are alive at once, and one at a time does a short slice of work.
//!
//! The noise of a shared host is mostly contention for memory, which changes within tenths of a second: runs
//! that follow each other differ by it, and turns of some 20 ms hardly do; [`sliced`] has longer ones.
//! docs/method.md has the measurements and the simulation.

pub mod arm;
pub mod cycles;
pub mod generation;
pub mod obstacle;
pub mod sliced;

use std::collections::BTreeSet;

use hugewise_linux::units::Bytes;

use crate::touch::Turn;

/// Tenths of the available memory that processes which take turns may need together.
pub const MAX_MEMORY_TENTHS: u64 = 7;

/// Bytes of a line of the cache.
const CACHE_LINE: u64 = 64;
/// Largest buffer, in sizes of the last-level cache, that the turns of other arms evict noticeably.
const CACHED_BUFFER: u64 = 8;

/// Time of a turn of the embedded workload on the reference, in seconds.
pub const TURN_SECONDS: f64 = 0.020;

/// Share of the blocks, 0 to 1, that do not count because the host was busiest then: the ratio depends more
/// on the host's other guests than on the pages, and differs from block to block.
const BUSIEST_SHARE: f64 = 0.15;
/// Smallest number of blocks of which the busiest do not count. Without them, the interval of fewer blocks
/// would often be narrow by chance, and the comparison would stop.
const MIN_BLOCKS_TO_CHOOSE: usize = 10;

/// The busiest blocks, which do not count. `levels`: of each block the mean logarithm of the turns of all
/// arms, so that no arm is favoured.
pub fn busiest(levels: &[f64]) -> BTreeSet<usize> {
    if levels.len() < MIN_BLOCKS_TO_CHOOSE {
        return BTreeSet::new();
    }
    let mut blocks: Vec<usize> = (0..levels.len()).collect();
    blocks.sort_by(|a, b| levels[*b].total_cmp(&levels[*a]));
    blocks.truncate((levels.len() as f64 * BUSIEST_SHARE) as usize);
    blocks.into_iter().collect()
}

/// A turn of `reads` counted reads in a buffer of `bytes`. `cache`: size of the last-level cache; `None` if it is
/// not reported.
///
/// The reads before them refill the cache after the turns of other arms. A turn evicts at most one line for each
/// of its reads, so as many uncounted reads suffice: a cache that is larger hardly changes during a turn. And
/// what a guest's sysfs reports is the host's cache, of which it may have a small part.
pub fn turn(cache: Option<Bytes>, bytes: Bytes, reads: u64) -> Turn {
    let cache = cache.unwrap_or_default().0;
    let lines = if bytes.0 < CACHED_BUFFER.saturating_mul(cache) { cache / CACHE_LINE } else { 0 };
    Turn { reads, uncounted: lines.min(reads) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_refills_the_cache_but_at_most_doubles() {
        let uncounted = |cache, buffer| turn(cache, Bytes(buffer), 1_200_000).uncounted;
        let cache = Some(Bytes(32 << 20));
        assert_eq!(uncounted(cache, 96_000_000), 524_288, "a read for each line of the cache");
        assert_eq!(uncounted(cache, 1_000_000_000), 0, "the buffer is much larger than the cache");
        assert_eq!(uncounted(Some(Bytes(480 << 20)), 1_000_000_000), 1_200_000, "7,864,320 lines");
        assert_eq!(uncounted(None, 96_000_000), 0, "an unknown size");
        assert_eq!(turn(Some(Bytes(u64::MAX)), Bytes(1), 5), Turn { reads: 5, uncounted: 5 });
    }
}
