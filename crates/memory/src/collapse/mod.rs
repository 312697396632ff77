//! Collapses memory of a running process into huge pages, in place, from outside: `MADV_COLLAPSE` through
//! process_madvise(2).
//!
//! [`suitable`] selects the mappings, [`candidates`] the huge pages of them that are worth it, [`admission`]
//! checks free memory; [`engine`] collapses one huge page after the other at a [`pace`], and pauses on
//! [`interference`]. These are pure; [`live`] holds the system calls and readings.

pub mod admission;
pub mod candidates;
pub mod engine;
pub mod interference;
pub mod live;
pub mod pace;
pub mod refusals;
pub mod suitable;

/// Free huge pages that a collapse leaves to other programs, which would otherwise have to reclaim or
/// compact.
pub const RESERVED_HUGE_PAGES: u64 = 8;
