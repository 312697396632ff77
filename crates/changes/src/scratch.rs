use std::{
    io,
    path::{Path, PathBuf},
};

use crate::journal::Journal;

/// A private folder for the files of one command.
#[derive(Debug)]
pub enum Scratch {
    /// The folder of a journal: removed with it, even after a SIGKILL.
    OfJournal(PathBuf),
    /// Removed when dropped.
    Own(tempfile::TempDir),
}

impl Scratch {
    /// The folder of the journal; a new one without a journal.
    pub fn of(journal: Option<&Journal>) -> io::Result<Scratch> {
        match journal {
            Some(journal) => Ok(Scratch::OfJournal(journal.scratch())),
            None => scratch_dir().map(Scratch::Own),
        }
    }

    pub fn path(&self) -> &Path {
        match self {
            Scratch::OfJournal(path) => path,
            Scratch::Own(dir) => dir.path(),
        }
    }
}

/// A private folder, removed when dropped.
pub fn scratch_dir() -> io::Result<tempfile::TempDir> {
    // mkdtemp(3) creates it with mode 0700, whatever the umask.
    tempfile::Builder::new().prefix("hugewise-").tempdir()
}
