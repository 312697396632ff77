//! The journal: settings as they were, written and synced before the first change.
//!
//! Whoever changes a machine-wide setting holds the journal. It is a file in a private folder,
//! with a lock beside it that the kernel takes back when its holder dies. Closing or dropping the
//! [`Journal`] puts everything back; after a SIGKILL, [`restore`] does the same from the file, as
//! often as it is called. Settings do not outlive a boot, so a journal of an earlier boot restores
//! nothing.
//!
//! Settings that are to stay are moved from the journal into a second file by [`Journal::keep`];
//! [`restore`] undoes these, too. One rename is the moment at which they move: before it the journal
//! counts, after it the second file, and whoever is killed in between loses nothing.
//!
//! Recordings may take hours, and change no setting that others do but one ([`Setting::TaskDelayacct`],
//! which they watch). They have a journal of their own beside that of the settings, with its own lock, so
//! that nobody waits for them: [`Journal::open_recording`].

mod applied;
mod jvm_log;
#[cfg(test)]
mod recording_tests;
mod restore;
mod store;
#[cfg(test)]
mod tests;

use std::{
    io,
    path::{Path, PathBuf},
};

use hugewise_linux::{
    root::{ReadError, Root},
    settings::Setting,
    sys::file,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use applied::Applied;
use restore::put_back;
use store::Store;

use crate::write::write;

pub use applied::Kept;
pub use jvm_log::{JvmLog, SwitchOff};
pub use restore::{ChangedSince, Others, Restored, restore, restore_with};

/// Where the journal of this machine lies.
pub const STATE_DIR: &str = "/run/hugewise";
/// Set in the environment of every process started for the holder of a journal, to its run id.
pub const RUN_VARIABLE: &str = "HUGEWISE_RUN";
/// What stands in the journal's file.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// The boot that the settings belong to.
    pub boot_id: String,
    /// Names this use of the journal; children carry it in [`RUN_VARIABLE`].
    pub run_id: String,
    /// Process id of the holder.
    pub owner: u32,
    /// What it was doing, for people.
    pub purpose: String,
    /// What was changed, in that order.
    pub entries: Vec<Entry>,
    /// Logs of JVMs that were switched on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jvm_logs: Vec<JvmLog>,
}

/// One setting before its first change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    /// The setting.
    pub setting: Setting,
    /// Its value before.
    pub was: String,
    /// Of a pool: the surplus pages that were in use before.
    #[serde(default)]
    pub surplus: u64,
}

/// Why the journal could not be opened, or a setting not changed.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Another process holds it.
    #[error("another hugewise holds the settings of this machine ({0}): wait until it has ended")]
    Busy(String),
    /// A holder died before it put its settings back.
    #[error("{0}: run 'hugewise restore' first")]
    Unfinished(String),
    /// The journal's folder or file.
    #[error("the journal {}: {source}; without it nothing is changed", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// The value before the change could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The kernel refused the value.
    #[error("writing '{value}' to {}: {source}", path.display())]
    Write {
        /// The setting's file.
        path: PathBuf,
        /// The value.
        value: String,
        /// What the kernel answered.
        source: io::Error,
    },
}

impl JournalError {
    /// What would help, where the system refused to write a file; with a leading separator.
    #[must_use]
    pub fn what_helps(&self) -> &'static str {
        let source = match self {
            JournalError::File { source, .. } | JournalError::Write { source, .. } => Some(source.kind()),
            _ => None,
        };
        match source {
            Some(io::ErrorKind::PermissionDenied) => "; that needs root (CAP_DAC_OVERRIDE)",
            Some(io::ErrorKind::ReadOnlyFilesystem) => "; in a container, change it on the host",
            _ => "",
        }
    }
}

/// Settings being changed, and put back when this is closed or dropped.
#[derive(Debug)]
pub struct Journal {
    root: Root,
    store: Store,
    record: Record,
    closed: bool,
}

/// Where recordings have their journal, beside the one in `dir`.
fn recordings(dir: &Path) -> PathBuf {
    dir.join("recording")
}

impl Journal {
    /// Takes the journal of recordings beside the one in `dir`, whoever holds that.
    pub fn open_recording(root: &Root, dir: &Path, purpose: &str) -> Result<Journal, JournalError> {
        file::private_dir(dir).map_err(|source| JournalError::File { path: dir.to_owned(), source })?;
        Journal::open(root, &recordings(dir), purpose)
    }

    /// Takes the journal in `dir`, to say what it is for.
    pub fn open(root: &Root, dir: &Path, purpose: &str) -> Result<Journal, JournalError> {
        let store = Store::lock(dir)?;
        if let Some(record) = store.load()? {
            return Err(JournalError::Unfinished(record.unfinished()));
        }
        let record = Record {
            boot_id: boot_id(root)?,
            run_id: root.value("proc/sys/kernel/random/uuid", "a UUID")?,
            owner: std::process::id(),
            purpose: purpose.to_owned(),
            entries: Vec::new(),
            jvm_logs: Vec::new(),
        };
        store.save(&record)?;
        file::private_dir(&store.scratch(&record))
            .map_err(|source| JournalError::File { path: store.scratch(&record), source })?;
        Ok(Journal { root: root.clone(), store, record, closed: false })
    }

    /// The id to put into [`RUN_VARIABLE`] of every child.
    #[must_use]
    pub fn run_id(&self) -> &str {
        &self.record.run_id
    }

    /// A private folder that vanishes with the journal.
    #[must_use]
    pub fn scratch(&self) -> PathBuf {
        self.store.scratch(&self.record)
    }

    /// What was changed so far, with the values before.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.record.entries
    }

    /// Writes the value before into the journal, then changes the setting; answers what the
    /// setting is afterwards, which may be less than was asked for.
    pub fn set(&mut self, setting: Setting, value: &str) -> Result<String, JournalError> {
        let parts = setting.parts(&self.root);
        let known = self.record.entries.len();
        for part in parts {
            if !self.record.entries.iter().any(|entry| entry.setting == part) {
                let (was, surplus) = (part.read(&self.root)?, part.surplus(&self.root)?);
                self.record.entries.push(Entry { setting: part, was, surplus });
            }
        }
        if self.record.entries.len() > known {
            self.store.save(&self.record)?;
        }
        write(setting, &self.root, value).map_err(|source| JournalError::Write {
            path: self.root.path(setting.path()),
            value: value.to_owned(),
            source,
        })?;
        Ok(setting.read(&self.root)?)
    }

    /// Notes down that the log of a JVM will be switched on.
    pub fn note_jvm_log(&mut self, log: JvmLog) -> Result<(), JournalError> {
        self.record.jvm_logs.push(log);
        self.store.save(&self.record)
    }

    /// Forgets the log of a JVM: it is off, or was never on.
    pub fn forget_jvm_log(&mut self, log: &JvmLog) -> Result<(), JournalError> {
        self.record.jvm_logs.retain(|noted| noted != log);
        self.store.save(&self.record)
    }

    /// Ends the journal and leaves the settings as they are now; [`restore`] still knows what they
    /// were. Where that cannot be written down, everything is put back.
    pub fn keep(mut self) -> Result<(), JournalError> {
        let applied = Applied::after(&self.root, self.store.applied()?, &self.record)?;
        self.store.save_applied(&applied)?;
        self.closed = true;
        self.store.clear(&self.record);
        if applied.entries.is_empty() {
            self.store.clear_applied();
        }
        Ok(())
    }

    /// Puts everything back and ends the journal.
    #[must_use]
    pub fn close(mut self) -> Restored {
        self.closed = true;
        put_back(&self.root, &self.store, &self.record, &jvm_log::left_to_restore)
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if !self.closed {
            put_back(&self.root, &self.store, &self.record, &jvm_log::left_to_restore);
        }
    }
}

/// What a dead holder left in the journal of `dir`, if any did; only its owner can tell.
#[must_use]
pub fn unfinished(dir: &Path) -> Option<Record> {
    let of = |dir: &Path| {
        if !dir.join(Store::RECORD).exists() {
            return None;
        }
        Store::lock(dir).ok()?.load().ok()?
    };
    of(dir).or_else(|| of(&recordings(dir)))
}

impl Record {
    /// In words, what is left to put back.
    #[must_use]
    pub fn unfinished(&self) -> String {
        let changed = match self.entries.len() + self.jvm_logs.len() {
            0 => "no setting was changed".to_owned(),
            1 => "1 setting is not as it was".to_owned(),
            n => format!("{n} settings are not as they were"),
        };
        format!(
            "an earlier hugewise (pid {}, {}) was ended before it could clean up; {changed}",
            self.owner, self.purpose
        )
    }
}

fn boot_id(root: &Root) -> Result<String, ReadError> {
    root.value("proc/sys/kernel/random/boot_id", "a UUID")
}
