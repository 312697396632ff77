//! The files of the journal's folder, and their lock.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use hugewise_linux::sys::file;
use serde::{Serialize, de::DeserializeOwned};

use super::{AppliedSettings, JournalError, Record};

/// The default folder of the journal.
pub const STATE_DIR: &str = "/run/hugewise";

/// The folder of the journal of recordings.
pub(super) fn recordings(dir: &Path) -> PathBuf {
    dir.join("recording")
}

#[derive(Debug)]
pub(super) struct Store {
    path: PathBuf,
    dir: File,
    /// Closing this file releases the lock.
    _lock: File,
}

impl Store {
    pub(super) const RECORD: &str = "journal.json";
    pub(super) const APPLIED: &str = "applied.json";
    pub(super) const DRAFT: &str = "journal.draft";

    pub(super) fn lock(path: &Path) -> Result<Store, JournalError> {
        let dir =
            file::private_dir(path).map_err(|source| JournalError::File { path: path.to_owned(), source })?;
        let lock_path = path.join("lock");
        let opened = private_file(&lock_path, OpenOptions::new().create(true).truncate(false))
            .and_then(|lock| Ok((file::try_lock(&lock)?, lock)));
        let (locked, lock) = opened.map_err(|source| JournalError::File { path: lock_path, source })?;
        if !locked {
            let holder = read_record::<Record>(&path.join(Store::RECORD)).ok().flatten();
            let who = holder.map_or_else(
                || "pid unknown".to_owned(),
                |record| format!("pid {}, {}", record.owner, record.purpose),
            );
            return Err(JournalError::Busy(who));
        }
        // A draft is left by a holder killed while writing; no setting was changed after it.
        let _ = fs::remove_file(path.join(Store::DRAFT));
        Ok(Store { path: path.to_owned(), dir, _lock: lock })
    }

    /// The record of an unfinished journal.
    ///
    /// A journal whose changes are in the file of applied settings is finished: its holder was killed between
    /// the two steps, and the leftover is removed.
    pub(super) fn load(&self) -> Result<Option<Record>, JournalError> {
        let Some(record) = self.read::<Record>(Store::RECORD)? else { return Ok(None) };
        if self.applied()?.is_some_and(|applied| applied.run_id == record.run_id) {
            self.clear(&record);
            return Ok(None);
        }
        Ok(Some(record))
    }

    pub(super) fn applied(&self) -> Result<Option<AppliedSettings>, JournalError> {
        self.read(Store::APPLIED)
    }

    pub(super) fn save(&self, record: &Record) -> Result<(), JournalError> {
        self.replace(Store::RECORD, record)
    }

    pub(super) fn save_applied(&self, applied: &AppliedSettings) -> Result<(), JournalError> {
        self.replace(Store::APPLIED, applied)
    }

    pub(super) fn clear_applied(&self) {
        let _ = fs::remove_file(self.path.join(Store::APPLIED));
        let _ = self.dir.sync_all();
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, JournalError> {
        let path = self.path.join(name);
        read_record(&path).map_err(|source| JournalError::File { path, source })
    }

    /// Replaces a file atomically and syncs it to disk.
    fn replace<T: Serialize>(&self, name: &str, record: &T) -> Result<(), JournalError> {
        let path = self.path.join(name);
        let draft = self.path.join(Store::DRAFT);
        let write = || {
            let mut file = private_file(&draft, OpenOptions::new().create(true).truncate(true))?;
            file.write_all(&serde_json::to_vec_pretty(record)?)?;
            file.sync_all()?;
            fs::rename(&draft, &path)?;
            self.dir.sync_all()
        };
        write().map_err(|source| JournalError::File { path: path.clone(), source })
    }

    pub(super) fn clear(&self, record: &Record) {
        // A file that cannot be removed here is found by the next call.
        let _ = fs::remove_dir_all(self.scratch(record));
        let _ = fs::remove_file(self.path.join(Store::RECORD));
        let _ = self.dir.sync_all();
    }

    pub(super) fn scratch(&self, record: &Record) -> PathBuf {
        let name: String = record.run_id.chars().filter(char::is_ascii_alphanumeric).collect();
        self.path.join(format!("run-{name}"))
    }
}

fn private_file(path: &Path, how: &mut OpenOptions) -> io::Result<File> {
    how.write(true).mode(0o600).custom_flags(libc::O_NOFOLLOW).open(path)
}

fn read_record<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(io::Error::from),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
