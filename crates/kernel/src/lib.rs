//! The only door to Linux.
//!
//! [`sys`] holds every system call and the only `unsafe` code. Readers of /proc and /sys take the
//! [`root::Root`] they read from, so that a captured tree of another machine, or one made for a
//! test, is read the same way. Writers go through the journal.

pub mod backing;
pub mod counters;
pub mod coverage;
pub mod interrupt;
pub mod journal;
pub mod page_sizes;
pub mod pool_growth;
pub mod reading;
pub mod root;
pub mod settings;
pub mod smaps;
pub mod sys;
pub mod tape;
pub mod units;
pub mod vmstat;
