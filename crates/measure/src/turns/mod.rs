//! Turns: the processes of all arms are alive at once, and one at a time does a short slice of work.
//!
//! The noise of a shared host is mostly contention for memory, which changes within tenths of a second: runs
//! that follow each other differ by it, and turns of some 20 ms hardly do. docs/method.md has the
//! measurements and the simulation.

pub mod arm;
pub mod generation;

/// Smallest number of counted cycles of a generation; a cycle gives every arm one turn, in random order.
pub const CYCLES: usize = 40;

/// Largest number of cycles of a generation; between, turns take about as long as the starts.
pub const MAX_CYCLES: usize = 120;

/// Time of a turn on base pages, in seconds.
pub const TURN_SECONDS: f64 = 0.020;
