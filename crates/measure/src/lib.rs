//! How numbers about huge pages are made: experiments, statistics, evidence.

pub mod analysis;
pub mod comparison;
pub mod execution;
pub mod experiment;
pub mod fragmenting;
pub mod machine;
pub mod observation;
pub mod pauses;
pub mod pretouch;
pub mod proof;
pub mod recording;
pub mod schedule;
pub mod statistics;
pub mod tlb;
pub mod touch;
pub mod touch_bench;
pub mod workload;
