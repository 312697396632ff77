//! Turns: the processes of all arms are alive at once, and one at a time does a short slice of work.
//!
//! The noise of a shared host is mostly contention for memory, which changes within tenths of a second: runs
//! that follow each other differ by it, and turns of some 20 ms hardly do. docs/method.md has the
//! measurements and the simulation.

pub mod arm;
pub mod cycles;
pub mod generation;

/// Time of a turn on base pages, in seconds.
pub const TURN_SECONDS: f64 = 0.020;
