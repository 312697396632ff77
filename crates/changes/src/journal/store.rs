//! The files of the journal's folder, and their lock.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use hugewise_linux::{
    root::Root,
    sys::file,
    tracefs::machine_lock::{self, Attempt, Protected},
};
use serde::{Serialize, de::DeserializeOwned};

use super::{AppliedSettings, JournalError, Record, elsewhere};

/// The default folder of the journal.
pub const STATE_DIR: &str = "/run/hugewise";

/// The folder of the journal of recordings.
pub(super) fn recordings(dir: &Path) -> PathBuf {
    dir.join("recording")
}

/// Takes the lock that processes with another /run share; take that of the folder first, which names its holder.
/// `None` without the right to mount tracefs: then there is only the lock of the folder.
pub(super) fn machine_lock(root: &Root, protected: Protected) -> Result<Option<File>, JournalError> {
    match root.is_live().then(|| machine_lock::attempt(protected)) {
        Some(Ok(Attempt::Held(lock))) => Ok(Some(lock)),
        Some(Ok(Attempt::Busy(pid))) => Err(JournalError::Busy(elsewhere::holder(pid))),
        Some(Err(_)) | None => Ok(None),
    }
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
    pub(super) const RECORDING: &str = "recording/journal.json";
    pub(super) const APPLIED: &str = "applied.json";
    pub(super) const DRAFT: &str = "journal.draft";

    pub(super) fn lock(path: &Path) -> Result<Store, JournalError> {
        let dir =
            file::private_dir(path).map_err(|source| JournalError::File { path: path.to_owned(), source })?;
        let lock_path = path.join("lock");
        let opened = lock_file(&dir, &lock_path).and_then(|lock| Ok((file::try_lock(&lock)?, lock)));
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
            // On a read-only file system it remains, and is found finished again.
            let _ = self.clear(&record);
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

    pub(super) fn clear_applied(&self) -> Result<(), JournalError> {
        self.remove(Store::APPLIED)
    }

    fn remove(&self, name: &str) -> Result<(), JournalError> {
        let path = self.path.join(name);
        match fs::remove_file(&path).and_then(|()| self.dir.sync_all()) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(JournalError::File { path, source })
            }
            _ => Ok(()),
        }
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
        write().map_err(|source| {
            let _ = fs::remove_file(&draft);
            JournalError::File { path: path.clone(), source }
        })
    }

    /// Removes the journal and its folder.
    pub(super) fn clear(&self, record: &Record) -> Result<(), JournalError> {
        let _ = fs::remove_dir_all(self.scratch(record));
        self.remove(Store::RECORD)
    }

    pub(super) fn scratch(&self, record: &Record) -> PathBuf {
        let name: String = record.run_id.chars().filter(char::is_ascii_alphanumeric).collect();
        self.path.join(format!("run-{name}"))
    }
}

/// The file of the lock. Where it cannot be written or created, an existing one is locked, or else the folder.
fn lock_file(dir: &File, path: &Path) -> io::Result<File> {
    private_file(path, OpenOptions::new().create(true).truncate(false)).or_else(|error| {
        let cannot_write =
            matches!(error.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::StorageFull);
        if !cannot_write {
            return Err(error);
        }
        let existing = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path);
        existing.or_else(|_| dir.try_clone())
    })
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
