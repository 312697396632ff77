//! Collapses memory of a running process into huge pages, in place, from outside: `MADV_COLLAPSE` through
//! process_madvise(2).
//!
//! [`suitable`] selects the mappings, [`candidates`] the huge pages to collapse, [`admission`]
//! checks free memory; [`engine`] collapses one huge page after the other at a [`rate_limit`], and pauses on
//! [`pressure_pauses`]. These are pure; [`live`] holds the system calls and readings.

pub mod admission;
pub mod candidates;
pub mod engine;
pub mod live;
pub mod pressure_pauses;
pub mod rate_limit;
pub mod refusals;
pub mod suitable;

/// Free huge pages that a collapse leaves to other programs, which would otherwise have to reclaim or
/// compact.
pub const RESERVED_HUGE_PAGES: u64 = 8;
