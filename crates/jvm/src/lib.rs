//! What a JVM asks of huge pages, and what it got.

pub mod jdks;
