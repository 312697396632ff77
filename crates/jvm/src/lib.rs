//! What a JVM asks of huge pages, and what it got.

pub mod attach;
pub mod flags;
pub mod gc_log;
pub mod jdks;
pub mod launch;
pub mod regions;
