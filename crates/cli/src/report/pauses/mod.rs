//! The pauses of a recording and their causes: as text, as a page, as JSON.

mod html;
mod json;
mod text;
mod words;

use std::path::Path;

use hugewise_measure::pauses::{Explanation, advice::Change};

pub use self::{html::html, json::Report, text::text};

/// A recording, what was found in it, and what would have avoided it.
pub struct Explained<'a> {
    /// The recording.
    pub file: &'a Path,
    /// What was found.
    pub explanation: Explanation,
    /// What would have avoided it, the smallest change first.
    pub changes: Vec<Change>,
}
