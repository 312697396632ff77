//! The number of rounds of each arm; a block is one round of every arm.

use std::time::Duration;

#[cfg(doc)]
use crate::verdict;

/// Number of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// A fixed number.
    Exactly(usize),
    /// [`MIN_BLOCKS`] to [`MAX_BLOCKS`], until a difference of [`verdict::TARGET_DIFFERENCE`] would be
    /// detected in every case, or until the time limit.
    UntilPrecise(Duration),
}

/// Fewest blocks that give a useful estimate of the noise.
pub const MIN_BLOCKS: usize = 5;
/// Blocks beyond which precision hardly improves.
pub const MAX_BLOCKS: usize = 30;
