//! Readings of a process that may never end, because its memory and its files may be on a file system that hangs.

use std::{io, time::Duration};

use hugewise_linux::{
    reading::Reason,
    sys::aside::{self, Deadline},
};
use serde::{Serialize, de::DeserializeOwned};

/// Longest reading of the memory of a process; its tables take milliseconds.
pub(super) const READING_LIMIT: Duration = Duration::from_secs(3);
/// Largest answer, in bytes: a process has at most 65,530 mappings, with a few names each.
const MAX_BYTES: usize = 64 << 20;

/// What `work` finds in a process aside; the error is the reason why there is no answer.
pub(super) fn answer<T: Serialize + DeserializeOwned>(
    limit: Duration,
    work: impl FnOnce() -> T,
) -> Result<T, Reason> {
    let asked = aside::ask(&[], &Deadline::of_reading(limit), MAX_BYTES, || {
        serde_json::to_vec(&work()).map_err(io::Error::other)
    });
    Ok(serde_json::from_slice(&asked.map_err(|error| Reason::new(error.to_string()))?)?)
}
