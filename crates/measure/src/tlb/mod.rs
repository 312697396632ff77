//! The TLB measured by timing alone: its entries for each page size and the cost of a miss.
//!
//! [`memory`] maps the pages, [`chase`] times loads on them, [`mod@bench`] measures the curves, [`knees`]
//! finds their steps and [`finding`] derives the levels of the TLB.

pub mod bench;
pub mod chase;
pub mod curve;
pub mod finding;
pub mod knees;
pub mod memory;
#[cfg(test)]
mod simulated_tests;
