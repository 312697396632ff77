//! The TLB by timing alone: how many pages of each size it holds, and what a miss costs.
//!
//! [`memory`] provides pages, [`chase`] times loads on them, [`mod@bench`] makes curves of it, [`knees`]
//! finds their steps and [`finding`] says what they mean.

pub mod bench;
pub mod chase;
pub mod curve;
pub mod finding;
pub mod knees;
pub mod memory;
#[cfg(test)]
mod simulated_tests;
