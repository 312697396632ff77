//! Huge-page demand of a JVM before its start, its regions while it runs, and the logs it writes.

pub mod allocation;
pub mod attach;
pub mod collector;
pub mod demand;
pub mod environment;
pub mod flags;
pub mod gc_log;
pub mod jdks;
pub mod large_page_flags;
pub mod launch;
pub mod log_control;
pub mod page_size_log;
pub mod performance_counters;
pub mod regions;
pub mod rehearsal;
pub mod threads;
