//! The pauses of a log: as text, as a page, as JSON, as metrics.

use hugewise_jvm::gc_log::summary::Summary;

/// What was read.
#[derive(Debug, Default)]
pub struct Log {
    /// The files, in the order in which they were read.
    pub files: Vec<String>,
    /// Files of the same rotation that were not named.
    pub unnamed: Vec<String>,
    /// What could not be read to its end, and why.
    pub ended_early: Vec<String>,
    /// How many JVMs told a pause or a safepoint.
    pub jvms: u32,
    /// What it adds up to.
    pub summary: Summary,
}
