//! When a comparison has enough blocks.
//!
//! Looking at the results after every block and stopping at a claim makes false claims more frequent than one
//! look does. Looks before the last one therefore need far more confidence (Haybittle 1971, Peto 1976), and
//! an interval that is still wide goes on. The simulation measures the rates.

#[cfg(test)]
mod simulation_tests;

use std::time::{Duration, Instant};

use crate::statistics::{INTERVAL_CONFIDENCE, PairedRatio};

/// Number of blocks; a block is one start of every arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// A fixed number.
    Exactly(usize),
    /// At least [`MIN_BLOCKS`], until every arm is decided or the time is over: the given limit, or one that
    /// suits the time of a block.
    UntilDecided(Option<Duration>),
}

impl Blocks {
    /// Smallest and largest number of blocks.
    pub(crate) fn bounds(self) -> (usize, usize) {
        match self {
            Blocks::Exactly(blocks) => (blocks, blocks),
            Blocks::UntilDecided(_) => (MIN_BLOCKS, MAX_BLOCKS),
        }
    }
}

/// Default limit of an experiment; longer if `DEFAULT_BLOCKS` take longer, at most `MAX_DEFAULT_LIMIT`.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(180);
const MAX_DEFAULT_LIMIT: Duration = Duration::from_secs(600);
const DEFAULT_BLOCKS: u32 = 8;

/// The time that the blocks may take.
#[derive(Debug)]
pub struct TimeLimit {
    begin: Instant,
    blocks: Blocks,
    longest_block: Duration,
}

impl TimeLimit {
    pub fn new(begin: Instant, blocks: Blocks) -> TimeLimit {
        TimeLimit { begin, blocks, longest_block: Duration::ZERO }
    }

    pub fn block_took(&mut self, elapsed: Duration) {
        self.longest_block = self.longest_block.max(elapsed);
    }

    /// Whether a block that takes as long as the longest so far ends in time.
    pub fn permits_block(&self) -> bool {
        self.left().is_none_or(|left| left > self.longest_block)
    }

    /// Time until the limit; `None` without a limit.
    pub fn left(&self) -> Option<Duration> {
        Some(self.limit()?.saturating_sub(self.begin.elapsed()))
    }

    fn limit(&self) -> Option<Duration> {
        let by_default = || (self.longest_block * DEFAULT_BLOCKS).clamp(DEFAULT_LIMIT, MAX_DEFAULT_LIMIT);
        match self.blocks {
            Blocks::Exactly(_) => None,
            Blocks::UntilDecided(limit) => Some(limit.unwrap_or_else(by_default)),
        }
    }

    /// `a block of 3 runs takes about 12 s; at least 5 blocks run if they end within 180 s, set by
    /// --max-time`, after the first block. `run` is `run` or `start`.
    pub fn estimate(&self, run: &str, count: usize) -> String {
        let s = if count == 1 { "" } else { "s" };
        let block = self.longest_block.as_secs_f64();
        let rest = match self.blocks {
            Blocks::Exactly(blocks) => {
                let (s, take) = if blocks == 1 { ("", "takes") } else { ("s", "take") };
                format!("{blocks} block{s} {take} about {:.0} s", block * blocks as f64)
            }
            Blocks::UntilDecided(_) => {
                let limit = self.limit().unwrap_or_default().as_secs_f64();
                format!("at least {MIN_BLOCKS} blocks run if they end within {limit:.0} s, set by --max-time")
            }
        };
        format!("a block of {count} {run}{s} takes about {block:.0} s; {rest}")
    }
}

/// Blocks before the first look.
pub const MIN_BLOCKS: usize = 5;
/// Blocks beyond which precision hardly improves.
pub const MAX_BLOCKS: usize = 200;

/// Probability of a false claim anywhere in the table, from one look before the last.
const LOOK_PROBABILITY: f64 = 0.0005;
/// Largest half-width of a 95 % interval, as a logarithm, with which a decided arm suffices.
const MAX_HALF_WIDTH: f64 = 0.04;
/// Smallest visible difference, as a share, with which an arm suffices although nothing is claimed.
const PRECISE_DIFFERENCE: f64 = 0.03;

/// Whether every arm is decided and narrow, or precise; `claims` is the number of arms in the whole table.
pub fn suffices(arms: &[PairedRatio], claims: usize) -> bool {
    let is_decided = |arm: &PairedRatio| {
        let is_claimed = arm.claim_at(LOOK_PROBABILITY / claims.max(1) as f64).is_some();
        is_claimed && arm.half_width(INTERVAL_CONFIDENCE).is_some_and(|half| half <= MAX_HALF_WIDTH)
    };
    let is_precise =
        |arm: &PairedRatio| arm.smallest_difference(claims).is_some_and(|seen| seen <= PRECISE_DIFFERENCE);
    arms.iter().all(|arm| arm.pairs >= MIN_BLOCKS && (is_decided(arm) || is_precise(arm)))
}
