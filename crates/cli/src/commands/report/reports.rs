//! The attributed pauses of a recording, which the renderers share.

use std::path::Path;

use hugewise_record::attribution::{Explanation, actions::Change};

pub struct Explained<'a> {
    /// Path of the recording.
    pub file: &'a Path,
    pub explanation: Explanation,
    /// Actions, the smallest change first.
    pub changes: Vec<Change>,
}
