//! Readings of the CPU: its caches, its TLB and its hardware counters.

pub mod cache;
pub mod counters;
pub mod pmu;
pub mod process_counters;
pub mod tlb;
