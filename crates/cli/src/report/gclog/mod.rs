//! The pauses of a log: as text, as a page, as JSON, as metrics.

mod html;
mod json;
mod metrics;
mod plot;
mod text;
pub mod words;

use hugewise_jvm::gc_log::summary::Summary;

pub use self::{html::html, json::Rows, metrics::openmetrics, text::text};

#[cfg(test)]
pub use self::json::Report;

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
