//! Errors of the journal.

use std::{io, path::PathBuf};

use hugewise_linux::{root::ReadError, settings::Setting, sys::process::is_root};

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Another process holds the journal.
    #[error("another hugewise process has locked the settings of this machine ({0}): wait until it ends")]
    Busy(String),
    /// The holder died before it restored its settings.
    #[error("{0}: run 'hugewise restore' first")]
    Unfinished(String),
    /// A file of the journal cannot be read: it is cut off, malformed, too long, or not a private file.
    #[error(
        "the journal {}: {reason}; the values of settings before an earlier change may be in it, so no setting is \
         changed: look at the file, then restore what can be read and move it away with \
         'sudo hugewise restore --set-aside'", path.display()
    )]
    Damaged { path: PathBuf, reason: String },
    /// A system call on the journal's folder or file failed.
    #[error("the journal {}: {source}; no setting is changed", path.display())]
    File { path: PathBuf, source: io::Error },
    /// Another program, which does not lock the journal, changed the setting after this command had.
    #[error("the {setting} changed from {from} to {now} since this command set it: another program sets it")]
    Foreign {
        setting: Setting,
        /// The value that this command left.
        from: String,
        now: String,
    },
    /// The value before the change could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The kernel refused the value.
    #[error("writing '{value}' to {}: {source}", path.display())]
    Write {
        /// The file of the setting.
        path: PathBuf,
        value: String,
        source: io::Error,
    },
}

impl JournalError {
    /// The cause without its consequence for a command that changes settings.
    pub(super) fn cause(&self) -> String {
        match self {
            JournalError::File { path, source } => format!("{}: {source}", path.display()),
            JournalError::Damaged { path, reason } => format!("{}: {reason}", path.display()),
            other => other.to_string(),
        }
    }

    /// True if another command holds the settings or has not restored them: they are not those of a machine at
    /// rest.
    pub fn is_of_another(&self) -> bool {
        matches!(self, JournalError::Busy(_) | JournalError::Unfinished(_) | JournalError::Damaged { .. })
    }

    /// The next step if a file could not be written, starting with a separator; empty if there is none.
    pub fn next_step(&self) -> &'static str {
        let (JournalError::File { source, .. } | JournalError::Write { source, .. }) = self else {
            return "";
        };
        match source.kind() {
            io::ErrorKind::PermissionDenied if is_root() => "",
            io::ErrorKind::PermissionDenied => "; run as root (CAP_DAC_OVERRIDE)",
            io::ErrorKind::ReadOnlyFilesystem => "; in a container, change it on the host",
            _ => "",
        }
    }
}
