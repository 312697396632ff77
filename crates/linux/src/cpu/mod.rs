//! Readings of the CPU: its TLB and its hardware counters.

pub mod counters;
pub mod pmu;
pub mod tlb;
