//! The files of the journal's folder, and their lock.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use hugewise_linux::{
    root::Root,
    sys::{
        file::{self, inside},
        process,
    },
    tracefs::machine_lock::{self, Attempt, Protected},
};
use serde::Serialize;

use super::{
    AppliedSettings, JournalError, Record,
    record::{Journalled, parse, shown},
};

/// The default folder of the journal.
pub const STATE_DIR: &str = "/run/hugewise";
/// Longest file of a journal, in bytes. A process whose memory is moved has two addresses in it for each range.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// Longest time in which a process that is being started holds a copy of the descriptor of the lock. The threads of a
/// test start many.
const LOCK_TIME_LIMIT: Duration = Duration::from_millis(if cfg!(test) { 1000 } else { 50 });
/// Time between two attempts to take the lock.
const LOCK_INTERVAL: Duration = Duration::from_millis(5);
/// Largest number of damaged files that are kept beside each other.
const MAX_SET_ASIDE: u32 = 1000;

/// The folder of the journal of recordings.
pub(super) fn recordings(dir: &Path) -> PathBuf {
    dir.join("recording")
}

/// Takes the lock that processes with another /run share; take that of the folder first, which names its holder.
/// `None` without the right to mount tracefs: then there is only the lock of the folder.
pub(super) fn machine_lock(root: &Root, protected: Protected) -> Result<Option<File>, JournalError> {
    match root.is_live().then(|| machine_lock::attempt(protected)) {
        Some(Ok(Attempt::Held(lock))) => Ok(Some(lock)),
        Some(Ok(Attempt::Busy(pid))) => Err(JournalError::Busy(holder(pid))),
        Some(Err(_)) | None => Ok(None),
    }
}

/// The holder of the machine's lock, as text.
fn holder(pid: Option<u32>) -> String {
    match pid {
        Some(pid) => format!("pid {pid}, in another mount namespace"),
        None => "in another mount and PID namespace".to_owned(),
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
    #[cfg(test)]
    pub(super) const RECORDING: &str = "recording/journal.json";
    pub(super) const APPLIED: &str = "applied.json";
    pub(super) const DRAFT: &str = "journal.draft";
    pub(super) const LOCK: &str = "lock";

    pub(super) fn lock(path: &Path) -> Result<Store, JournalError> {
        let dir =
            file::private_dir(path).map_err(|source| JournalError::File { path: path.to_owned(), source })?;
        let lock_path = path.join(Store::LOCK);
        let opened = lock_file(&dir, &lock_path).and_then(|lock| Ok((take_lock(&lock)?, lock)));
        let (locked, lock) = opened.map_err(|source| JournalError::File { path: lock_path, source })?;
        let store = Store { path: path.to_owned(), dir, _lock: lock };
        if !locked {
            let holder = store.read::<Record>(Store::RECORD).ok().flatten();
            let who = holder.map_or_else(
                || "pid unknown".to_owned(),
                |record| format!("pid {}, {}", record.owner, shown(&record.purpose)),
            );
            return Err(JournalError::Busy(who));
        }
        // A draft is left by a holder killed while writing; no setting was changed after it.
        let _ = fs::remove_file(path.join(Store::DRAFT));
        Ok(store)
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The record of an unfinished journal.
    ///
    /// A journal whose changes are in the file of applied settings is finished: its holder was killed between
    /// the two steps, and the leftover is removed.
    pub(super) fn load(&self) -> Result<Option<Record>, JournalError> {
        let Some(record) = self.read::<Record>(Store::RECORD)? else { return Ok(None) };
        let applied = self.applied().ok().flatten();
        if applied.is_some_and(|applied| applied.run_id == record.run_id) {
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

    fn read<T: Journalled>(&self, name: &str) -> Result<Option<T>, JournalError> {
        let damaged = |reason| JournalError::Damaged { path: self.path.join(name), reason };
        match self.bytes(name) {
            Ok(bytes) => parse(&bytes).map(Some).map_err(damaged),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(damaged(in_words(&error))),
        }
    }

    pub(super) fn bytes(&self, name: &str) -> io::Result<Vec<u8>> {
        bytes(&file::path_of(&self.dir), name)
    }

    /// Replaces a file atomically and syncs it to disk.
    fn replace<T: Serialize>(&self, name: &str, record: &T) -> Result<(), JournalError> {
        let path = self.path.join(name);
        let draft = self.path.join(Store::DRAFT);
        let write = || {
            let _ = fs::remove_file(&draft);
            let mut file = file::create_new(&draft, 0o600)?;
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

    /// Moves a damaged file away, whatever it is, and returns its new path.
    pub(super) fn set_aside(&self, name: &str) -> io::Result<PathBuf> {
        let to = (0..MAX_SET_ASIDE).map(|more| self.path.join(set_aside_name(more)));
        // The lock is held, so that no other hugewise creates the file meanwhile.
        let free = to.into_iter().find(|to| fs::symlink_metadata(to).is_err());
        let to = free.ok_or_else(|| io::Error::from(io::ErrorKind::AlreadyExists))?;
        let from = self.path.join(name);
        let found = fs::symlink_metadata(&from)?;
        fs::rename(&from, &to)?;
        if found.is_file() {
            // It may have been made by hand.
            let _ = fs::set_permissions(&to, fs::Permissions::from_mode(0o600));
        }
        self.dir.sync_all()?;
        Ok(to)
    }

    /// Removes the journal and its folder.
    pub(super) fn clear(&self, record: &Record) -> Result<(), JournalError> {
        self.remove_scratch(record);
        self.remove(Store::RECORD)
    }

    /// Removes the private folder of a run.
    pub(super) fn remove_scratch(&self, record: &Record) {
        let _ = fs::remove_dir_all(self.scratch(record));
    }

    pub(super) fn scratch(&self, record: &Record) -> PathBuf {
        let name: String = record.run_id.chars().filter(char::is_ascii_alphanumeric).collect();
        self.path.join(format!("run-{name}"))
    }
}

/// The content of a file that this user has written. Fails for a link, and for what is no regular file.
fn bytes(folder: &Path, name: &str) -> io::Result<Vec<u8>> {
    let file = inside::open_of(folder, Path::new(name), process::effective_uid())?;
    file::content(file, MAX_FILE_BYTES)
}

/// The record of a folder that another process has locked.
pub(super) fn peek(folder: &Path) -> Option<Record> {
    parse(&bytes(folder, Store::RECORD).ok()?).ok()
}

/// The name of a damaged file that is moved away now; `more` distinguishes those of one second.
pub(super) fn set_aside_name(more: u32) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    match more {
        0 => format!("journal.damaged-{now}"),
        more => format!("journal.damaged-{now}-{more}"),
    }
}

/// Takes the lock; false if another process holds it, and not only a copy of its descriptor at its own start.
fn take_lock(lock: &File) -> io::Result<bool> {
    let begin = Instant::now();
    while !file::try_lock(lock)? {
        if begin.elapsed() > LOCK_TIME_LIMIT {
            return Ok(false);
        }
        thread::sleep(LOCK_INTERVAL);
    }
    Ok(true)
}

/// The file of the lock. Where it cannot be written or created, an existing one is locked, or else the folder.
fn lock_file(dir: &File, path: &Path) -> io::Result<File> {
    file::open_private(path).or_else(|error| {
        let is_file = fs::symlink_metadata(path).map(|found| found.is_file()).ok();
        let cannot_write =
            matches!(error.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::StorageFull);
        match is_file {
            Some(true) if cannot_write => {
                inside::open(&file::path_of(dir), Path::new(Store::LOCK)).or_else(|_| dir.try_clone())
            }
            // What is in its place is none of ours, for each process in the same way.
            Some(false) => dir.try_clone(),
            None if cannot_write => dir.try_clone(),
            Some(true) | None => Err(error),
        }
    })
}

fn in_words(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ELOOP) => "it is a link".to_owned(),
        _ => error.to_string(),
    }
}
