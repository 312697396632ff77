//! The result of reading logs, which the renderers share.

use hugewise_jvm::gc_log::summary::Summary;

#[derive(Debug, Default)]
pub struct Log {
    /// Files in the order in which they were read.
    pub files: Vec<String>,
    /// Files of the same rotation that were not given, and not read.
    pub unnamed: Vec<String>,
    /// Files that could not be read to their end, with the reason.
    pub ended_early: Vec<String>,
    /// What was taken off the lines, such as `JSON`.
    pub decoded: Vec<&'static str>,
    /// Number of JVMs that logged a pause or a safepoint.
    pub jvms: u32,
    pub summary: Summary,
}
