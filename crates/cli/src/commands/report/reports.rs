//! The pauses of a recording and their causes: as text, as a page, as JSON.

use std::path::Path;

use hugewise_record::attribution::{Explanation, actions::Change};

/// A recording, what was found in it, and what would have avoided it.
pub struct Explained<'a> {
    /// The recording.
    pub file: &'a Path,
    /// What was found.
    pub explanation: Explanation,
    /// What would have avoided it, the smallest change first.
    pub changes: Vec<Change>,
}
