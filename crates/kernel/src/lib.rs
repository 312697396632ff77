//! The only door to Linux.
//!
//! [`sys`] holds every system call and the only `unsafe` code. Readers of /proc and /sys take the
//! [`root::Root`] they read from, so that a captured tree of another machine, or one made for a
//! test, is read the same way. Writers go through the journal.

pub mod backing;
pub mod base_page;
pub mod c_library;
pub mod cgroup;
pub mod cgroup_processes;
pub mod contiguity;
pub mod counters;
pub mod coverage;
pub mod cpu_tlb;
pub mod difference;
pub mod facts;
mod fields;
pub mod folios;
pub mod frames;
pub mod interrupt;
pub mod journal;
pub mod limits;
pub mod meminfo;
mod native;
pub mod nodes;
pub mod occupancy;
pub mod page_flags;
pub mod page_sizes;
pub mod persisted;
pub mod pmu;
pub mod pool_growth;
pub mod pools;
pub mod pressure;
pub mod process;
pub mod ranges;
pub mod reading;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub mod rehearsal;
pub mod room;
pub mod root;
pub mod settings;
pub mod smaps;
pub mod sys;
pub mod tape;
pub mod task_stat;
pub mod taskstats;
#[cfg(test)]
mod testing;
pub mod thp;
pub mod threads;
pub mod tracefs;
pub mod units;
pub mod vmstat;
pub mod writer;
