//! What a JVM asks of huge pages, and what it got.

pub mod attach;
mod bounded_run;
pub mod demand;
pub mod flags;
pub mod gc_log;
pub mod jdks;
pub mod large_page_flags;
pub mod launch;
pub mod log_control;
pub mod messages;
pub mod page_size_log;
pub mod regions;
pub mod rehearsal;
pub mod threads;
