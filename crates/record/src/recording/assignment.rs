//! The process to record, and the errors of a recording.

use std::{ffi::OsString, io, path::Path, time::Duration};

use hugewise_linux::proc::process::ProcessError;

#[derive(Clone, Debug)]
pub enum Target {
    /// A running process, by PID.
    Process(u32),
    /// A program to start, with its arguments.
    Command(Vec<OsString>),
}

/// The process to record, and the file of the recording.
#[derive(Debug)]
pub struct Assignment<'a> {
    pub target: Target,
    /// File of the recording.
    pub output: &'a Path,
    /// Time limit; `None` to record until the process exits.
    pub limit: Option<Duration>,
    /// Whether a JVM may be asked to log its pauses.
    pub jvm_log: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("{0}")]
    Process(#[from] ProcessError),
    #[error("{program} could not be started: {source}")]
    Start { program: String, source: io::Error },
    #[error("the recording {file}: {source}")]
    File { file: String, source: io::Error },
    #[error("{0}")]
    Kernel(String),
}
