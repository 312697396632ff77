//! Scans a log of any size for messages, in constant memory.

use std::{
    collections::HashMap,
    io::{self, Read},
};

use schemars::JsonSchema;
use serde::Serialize;

use super::{Message, read};
use crate::gc_log::lines;

/// Longer lines are cut at this many bytes; messages are at the beginning.
const LONGEST_LINE: usize = 16 << 10;
/// Different messages kept; a log with more is not about large pages.
const MOST_MESSAGES: usize = 1000;
/// Characters of a line that are kept.
const MAX_TEXT_CHARS: usize = 300;

/// A message and its position in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FoundMessage {
    #[serde(flatten)]
    pub message: Message,
    /// First line with the message, from 1.
    pub line: u64,
    /// Number of lines with the message, addresses aside.
    pub count: u64,
    /// Text of the first line, at most 300 characters.
    pub text: String,
}

/// Messages of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScannedLog {
    /// In the order of their first lines.
    pub found: Vec<FoundMessage>,
    /// Number of lines read.
    pub lines: u64,
    /// Messages not kept, because there were too many different ones.
    pub left_out: u64,
}

/// Reads a log to its end; bytes that are not UTF-8 are replaced.
pub fn scan(log: impl Read) -> io::Result<ScannedLog> {
    let mut scanned = ScannedLog::default();
    let mut places: HashMap<Message, usize> = HashMap::new();
    lines::each(log, |line, _| {
        scanned.lines += 1;
        let text = String::from_utf8_lossy(&line[..line.len().min(LONGEST_LINE)]);
        let Some(message) = read(&text) else { return };
        if let Some(found) = places.get(&message).and_then(|at| scanned.found.get_mut(*at)) {
            found.count += 1;
        } else if scanned.found.len() < MOST_MESSAGES {
            places.insert(message.clone(), scanned.found.len());
            let text = text.trim().chars().take(MAX_TEXT_CHARS).collect();
            scanned.found.push(FoundMessage { message, line: scanned.lines, count: 1, text });
        } else {
            scanned.left_out += 1;
        }
    })?;
    Ok(scanned)
}
