//! The journal: the values of settings before their first change, written and synced before that change.
//!
//! Every command that changes a setting of the machine holds the journal: a file in a private folder, with a
//! lock that the kernel releases when the holder dies. Closing or dropping the [`Journal`] restores every
//! setting; after a SIGKILL, [`restore`] does the same from the file and may be repeated. Settings do not
//! survive a reboot, so a journal of an earlier boot restores nothing.
//!
//! [`Journal::keep`] moves the changes that are to stay from the journal to a second file; [`restore`] undoes
//! these, too. The move is one rename: a kill before it leaves the journal, a kill after it the second file,
//! and no change is lost.
//!
//! A recording may take hours, and changes only one setting that other commands read
//! ([`Setting::TaskDelayacct`]). Recordings therefore have a journal and a lock of their own, and do not
//! block other commands: [`Journal::open_recording`].

mod applied;
#[cfg(test)]
mod damaged_tests;
mod elsewhere;
mod error;
#[cfg(test)]
mod foreign_tests;
mod jvm_log;
mod process_memory;
mod processes;
mod record;
#[cfg(test)]
mod recording_tests;
mod restore;
mod restored;
mod store;
#[cfg(test)]
mod tests;
mod unit;

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use hugewise_linux::{
    root::{ReadError, Root},
    settings::Setting,
    sys::file,
    tracefs::machine_lock::Protected,
};
use serde::{Deserialize, Serialize};

use applied::AppliedSettings;
use elsewhere::Place;
use restore::Unfinished;
use store::{Store, machine_lock, recordings};

use crate::write::write;

pub use applied::{ChangedSetting, ChangedSince};
pub use error::JournalError;
pub use jvm_log::{JvmLog, SwitchOff};
pub use process_memory::{ProcessMemory, ProcessUndo, PutBack, RemainingMemory};
pub use processes::{RunProcesses, end_processes_of};
pub use record::{Entry, Record};
pub use restore::{RestoreOptions, restore, restore_with};
pub use restored::{DamagedFile, DamagedFiles, ForeignChanges, NotRestored, RemainingJvmLog, Restored};
pub use store::STATE_DIR;
pub use unit::{RemainingUnit, UnitChange};

/// Environment variable that carries the run id to every process started by the journal's holder.
pub const RUN_VARIABLE: &str = "HUGEWISE_RUN";

/// An open journal. Closing or dropping it restores every setting.
#[derive(Debug)]
pub struct Journal {
    root: Root,
    store: Store,
    /// The lock that processes with another /run share.
    _machine: Option<File>,
    record: Record,
    closed: bool,
}

impl Journal {
    /// Opens the journal of recordings in a subfolder of `dir`. The journal in `dir` itself may be held by
    /// another process.
    pub fn open_recording(root: &Root, dir: &Path, purpose: &str) -> Result<Journal, JournalError> {
        file::private_dir(dir).map_err(|source| JournalError::File { path: dir.to_owned(), source })?;
        Journal::open_protecting(Protected::Recordings, root, &recordings(dir), purpose)
    }

    /// Opens the journal in `dir`. `purpose` is the text shown to a second process that wants to open it.
    pub fn open(root: &Root, dir: &Path, purpose: &str) -> Result<Journal, JournalError> {
        Journal::open_protecting(Protected::Settings, root, dir, purpose)
    }

    fn open_protecting(
        protected: Protected,
        root: &Root,
        dir: &Path,
        purpose: &str,
    ) -> Result<Journal, JournalError> {
        let store = Store::lock(dir)?;
        let machine = machine_lock(root, protected)?;
        let earlier = match store.load()? {
            Some(record) if matches!(protected, Protected::Recordings) && record.has_only_logs() => {
                Some(record)
            }
            Some(record) => return Err(JournalError::Unfinished(record.unfinished())),
            None => None,
        };
        // Its older values are needed at the end.
        store.applied()?;
        let place = Place { folder: dir.to_owned(), names: &[Store::RECORD] };
        if let Some(refusal) = elsewhere::refusal(root, place) {
            return Err(refusal);
        }
        let record = Record {
            boot_id: boot_id(root)?,
            run_id: root.value("proc/sys/kernel/random/uuid", "a UUID")?,
            owner: std::process::id(),
            purpose: purpose.to_owned(),
            entries: Vec::new(),
            // A JVM that keeps its log on delays no other recording; the log stays in the journal.
            jvm_logs: earlier.as_ref().map(|earlier| earlier.jvm_logs.clone()).unwrap_or_default(),
            memory: Vec::new(),
            units: Vec::new(),
            unreadable: Vec::new(),
        };
        store.save(&record)?;
        if let Some(earlier) = earlier {
            store.remove_scratch(&earlier);
        }
        let scratch = store.scratch(&record);
        file::private_dir(&scratch).map_err(|source| JournalError::File { path: scratch, source })?;
        Ok(Journal { root: root.clone(), store, _machine: machine, record, closed: false })
    }

    /// The value of [`RUN_VARIABLE`] for every child process.
    pub fn run_id(&self) -> &str {
        &self.record.run_id
    }

    /// A private folder that is removed with the journal.
    pub fn scratch(&self) -> PathBuf {
        self.store.scratch(&self.record)
    }

    /// Where another process finds this journal.
    pub fn place(&self) -> JournalPlace {
        JournalPlace { folder: self.store.file(""), run_id: self.record.run_id.clone() }
    }

    /// The settings changed so far, with the values before.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.record.entries.iter().map(|change| &change.entry)
    }

    /// Saves the current value to the journal, then changes the setting. Returns the value read back, which
    /// may differ from `value`.
    pub fn set(&mut self, setting: Setting, value: &str) -> Result<String, JournalError> {
        let parts = setting.parts(&self.root);
        self.note_change(setting, &parts, value)?;
        self.store.save(&self.record)?;
        write(setting, &self.root, value).map_err(|source| JournalError::Write {
            path: self.root.path(setting.path()),
            value: value.to_owned(),
            source,
        })?;
        for change in self.record.entries.iter_mut().filter(|change| parts.contains(&change.entry.setting)) {
            (change.now, change.from) = (Some(change.entry.setting.read(&self.root)?), None);
        }
        // Without it, the journal still holds the values before and the requested ones.
        let _ = self.store.save(&self.record);
        Ok(setting.read(&self.root)?)
    }

    /// Adds the change of `setting` to `value`, to be made in `parts`, to the record.
    fn note_change(&mut self, setting: Setting, parts: &[Setting], value: &str) -> Result<(), JournalError> {
        let whole = setting.read(&self.root)?;
        for &part in parts {
            let reads = part.read(&self.root)?;
            let to = if parts.len() == 1 { value.to_owned() } else { moved(&reads, &whole, value) };
            let change = match self.record.entries.iter_mut().find(|change| change.entry.setting == part) {
                Some(change) if change.can_have_left(&reads) => change,
                Some(change) => {
                    let from = change.now.clone().unwrap_or_default();
                    return Err(JournalError::Foreign { setting: part, from, now: reads });
                }
                None => {
                    let surplus = part.surplus(&self.root)?;
                    let entry = Entry { setting: part, was: reads.clone(), surplus };
                    self.record.entries.push(ChangedSetting { entry, now: None, from: None });
                    let Some(change) = self.record.entries.last_mut() else { continue };
                    change
                }
            };
            (change.now, change.from) = (Some(to), Some(reads));
        }
        Ok(())
    }

    /// The logs in the journal. Those of a new journal could not be switched off by earlier recordings.
    pub fn jvm_logs(&self) -> &[JvmLog] {
        &self.record.jvm_logs
    }

    /// Saves the log to the journal; call it before the log is switched on.
    pub fn note_jvm_log(&mut self, log: JvmLog) -> Result<(), JournalError> {
        self.record.jvm_logs.push(log);
        self.store.save(&self.record)
    }

    /// Removes a log that is off from the journal.
    pub fn forget_jvm_log(&mut self, log: &JvmLog) -> Result<(), JournalError> {
        self.record.jvm_logs.retain(|noted| noted != log);
        self.store.save(&self.record)
    }

    /// Saves the pages of a process to the journal; call it before its memory is moved.
    pub fn note_memory(&mut self, memory: ProcessMemory) -> Result<(), JournalError> {
        self.record.memory.push(memory);
        self.store.save(&self.record)
    }

    /// Removes memory that is as it is to stay from the journal.
    pub fn forget_memory(&mut self, memory: &ProcessMemory) -> Result<(), JournalError> {
        self.record.memory.retain(|noted| noted != memory);
        self.store.save(&self.record)
    }

    /// Saves a service to the journal; call it before it is stopped, or gets a drop-in.
    pub fn note_unit(&mut self, change: UnitChange) -> Result<(), JournalError> {
        self.record.units.push(change);
        self.store.save(&self.record)
    }

    /// Removes a service that is as it is to stay from the journal.
    pub fn forget_unit(&mut self, change: &UnitChange) -> Result<(), JournalError> {
        self.record.units.retain(|noted| noted != change);
        self.store.save(&self.record)
    }

    /// Closes the journal and keeps the new values; [`restore`] undoes them later. If the values cannot be
    /// saved, every setting is restored.
    pub fn keep(mut self) -> Result<(), JournalError> {
        let changes = self.record.entries.iter().cloned();
        let applied = AppliedSettings::with(self.store.applied()?, &self.record, changes);
        self.store.save_applied(&applied)?;
        self.closed = true;
        // A journal that remains is found finished by the next command.
        let _ = self.store.clear(&self.record);
        if applied.is_empty() { self.store.clear_applied() } else { Ok(()) }
    }

    /// Restores every setting and closes the journal.
    pub fn close(self) -> Restored {
        self.close_with(&ProcessUndo::default())
    }

    /// Like [`Journal::close`], and undoes with `undo` what is still changed in other processes.
    pub fn close_with(mut self, undo: &ProcessUndo<'_>) -> Restored {
        self.closed = true;
        self.restore(undo)
    }

    fn restore(&self, undo: &ProcessUndo<'_>) -> Restored {
        let unfinished = Unfinished::of(&self.root, &self.store, self.record.clone(), true);
        unfinished.restore(ForeignChanges::Leave, undo)
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if !self.closed {
            self.restore(&ProcessUndo::default());
        }
    }
}

/// The journal of a run, for another process that undoes a part of it after the death of the holder.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JournalPlace {
    folder: PathBuf,
    run_id: String,
}

impl JournalPlace {
    /// Removes a service that is as it was from the journal; fails while another process holds it.
    pub fn forget_unit(&self, change: &UnitChange) -> Result<(), JournalError> {
        let store = Store::lock(&self.folder)?;
        let Some(mut record) = store.load()?.filter(|record| record.run_id == self.run_id) else {
            return Ok(());
        };
        record.units.retain(|noted| noted != change);
        store.save(&record)
    }
}

/// The record of a holder that died. `None` if there is none or only its owner may read it.
pub fn unfinished(dir: &Path) -> Option<Record> {
    let of = |dir: &Path| {
        if !dir.join(Store::RECORD).exists() {
            return None;
        }
        Store::lock(dir).ok()?.load().ok()?
    };
    of(dir).or_else(|| of(&recordings(dir)))
}

/// The record of the running process that holds the journal in `dir`. `None` if there is none, or only its owner
/// may read it.
pub fn held(dir: &Path) -> Option<Record> {
    // Not without a record: locking creates the folder.
    let is_held = dir.join(Store::RECORD).exists() && matches!(Store::lock(dir), Err(JournalError::Busy(_)));
    is_held.then(|| store::peek(dir))?
}

/// The size of a node's pool that has `pages`, if the pool of the machine changes from `whole` to `to` on this
/// node only: the largest change possible.
fn moved(pages: &str, whole: &str, to: &str) -> String {
    let number = |text: &str| text.parse::<u64>().unwrap_or(0);
    let (pages, whole, to) = (number(pages), number(whole), number(to));
    (pages.saturating_add(to)).saturating_sub(whole).to_string()
}

fn boot_id(root: &Root) -> Result<String, ReadError> {
    root.value("proc/sys/kernel/random/boot_id", "a UUID")
}
