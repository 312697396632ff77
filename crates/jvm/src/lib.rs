//! What a JVM asks of huge pages, and what it got.

mod asking;
pub mod attach;
pub mod choice;
pub mod demand;
pub mod flags;
pub mod gc_log;
pub mod jdks;
pub mod launch;
pub mod log_control;
pub mod malloc;
pub mod messages;
pub mod page_flags;
pub mod page_log;
pub mod plan;
pub mod planner;
pub mod planning;
pub mod regions;
pub mod rehearsed;
pub mod threads;
