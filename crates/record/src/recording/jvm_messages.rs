//! The messages between a recording and the process aside that works for one JVM.

use hugewise_jvm::regions::Heap;
use serde::{Deserialize, Serialize};

/// The requests of the recording.
pub const JOURNALLED: u8 = b'j';
pub const NOT_JOURNALLED: u8 = b'n';
pub const END: u8 = b'e';

/// A message to the recording.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    Heap(Heap),
    /// A log is to be switched on: it must be in the journal first.
    ToJournal,
    /// A log is read.
    Log {
        source: String,
        monotonic: bool,
    },
    /// There is no log; `may_be_on` if the JVM was asked for one and did not answer.
    NoLog {
        reason: String,
        may_be_on: bool,
    },
    Lines(Vec<String>),
    /// The log cannot be read any more.
    Lost(String),
    /// The last message, if no log of ours is on.
    Off,
    /// The last message, if the log stays on.
    StaysOn(String),
}
