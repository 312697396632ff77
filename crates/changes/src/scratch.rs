//! A private folder for the files of one command.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::journal::Journal;

/// A private folder for logs and output.
#[derive(Debug)]
pub enum Scratch {
    /// That of a journal: it vanishes with that, after a SIGKILL, too.
    OfJournal(PathBuf),
    /// Removed when dropped.
    Own(tempfile::TempDir),
}

impl Scratch {
    /// That of the journal, where there is one.
    pub fn of(journal: Option<&Journal>) -> io::Result<Scratch> {
        match journal {
            Some(journal) => Ok(Scratch::OfJournal(journal.scratch())),
            None => scratch_dir().map(Scratch::Own),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Scratch::OfJournal(path) => path,
            Scratch::Own(dir) => dir.path(),
        }
    }
}

/// A private folder for the files of a run, removed when dropped.
pub fn scratch_dir() -> io::Result<tempfile::TempDir> {
    // The folder is 0700 from the start; a lax umask changes nothing.
    tempfile::Builder::new().prefix("hugewise-").tempdir()
}
