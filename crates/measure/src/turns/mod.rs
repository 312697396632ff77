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

use hugewise_linux::{cpu::cache, root::Root, units::Bytes};

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

/// Reads at the beginning of a turn that do not count, because they refill the cache after the turns of other
/// arms, for a buffer of `bytes`.
pub fn uncounted_reads(root: &Root, bytes: Bytes) -> u64 {
    let cache = cache::last_level_size(root).unwrap_or_default();
    if bytes < Bytes(CACHED_BUFFER * cache.0) { cache.0 / CACHE_LINE } else { 0 }
}
