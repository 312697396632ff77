//! Experiments with huge pages: design, statistics, workloads and benchmarks.

pub mod analysis;
pub mod comparison;
pub mod execution;
pub mod experiment;
pub mod fragmentation;
mod host_memory;
pub mod live;
pub mod machine;
pub mod pretouch;
pub mod random_read;
pub mod rounds;
pub mod schedule;
pub mod serving;
pub mod statistics;
pub mod stopping;
pub mod tlb;
pub mod touch;
pub mod touch_bench;
pub mod turns;
pub mod verdict;
pub mod workload;
