//! The attributed pauses of a recording, which the renderers share.

use std::path::Path;

use hugewise_linux::action::Action;
use hugewise_record::attribution::Attribution;

pub struct AttributedRecording<'a> {
    /// Path of the recording.
    pub file: &'a Path,
    pub explanation: Attribution,
    /// Changes that avoid the cause, the smallest first.
    pub actions: Vec<Action>,
}
