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

mod applied;
mod jvm_log;
mod store;
#[cfg(test)]
mod tests;

use std::{
    io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    root::{ReadError, Root},
    settings::Setting,
    sys::{file, process},
};

use store::Store;

use applied::Applied;
pub use applied::Kept;
pub use jvm_log::{JvmLog, SwitchOff};

/// Where the journal of this machine lies.
pub const STATE_DIR: &str = "/run/hugewise";
/// Set in the environment of every process started for the holder of a journal, to its run id.
pub const RUN_VARIABLE: &str = "HUGEWISE_RUN";
/// How long a pool may take to give back pages that a dying process held.
const SETTLING: Duration = Duration::from_secs(20);

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

/// What putting back did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Restored {
    /// What was being done when it broke off; nothing where there was no journal.
    pub purpose: Option<String>,
    /// The settings that are now as they were.
    pub settings: Vec<Entry>,
    /// The settings that are not, with the reason.
    pub failed: Vec<(Entry, String)>,
    /// The settings that `apply` had made and that are now as they were before it.
    pub undone: Vec<Entry>,
    /// The settings that somebody else changed after `apply`, and that were left alone.
    pub changed_since: Vec<ChangedSince>,
    /// Processes of the broken-off run that were still there, and were ended.
    pub ended_processes: Vec<u32>,
    /// Logs of JVMs that are off again.
    pub jvm_logs: Vec<JvmLog>,
    /// Logs that are not, with the reason.
    pub jvm_logs_left: Vec<(JvmLog, String)>,
    /// Was the machine rebooted since, so that there was nothing to put back?
    pub rebooted: bool,
}

/// A setting that is not what `apply` left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ChangedSince {
    /// What `apply` made of it, and what it was before.
    #[serde(flatten)]
    pub kept: Kept,
    /// What it reads.
    pub reads: String,
}

/// May [`restore`] overwrite what somebody else set after `apply`?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// It is left alone, and said so.
    Leave,
    /// It is put back to what it was before `apply`, too.
    Overwrite,
}

impl Journal {
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
        setting.write(&self.root, value).map_err(|source| JournalError::Write {
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
    if !dir.join(Store::RECORD).exists() {
        return None;
    }
    Store::lock(dir).ok()?.load().ok()?
}

/// Puts back what a dead holder left, then what `apply` made and left, the last change first; does
/// nothing where there is nothing to do.
pub fn restore(root: &Root, dir: &Path, others: Others) -> Result<Restored, JournalError> {
    restore_with(root, dir, others, &jvm_log::left_to_restore)
}

/// The same, and `switch_off` takes back what was switched on in a JVM.
pub fn restore_with(
    root: &Root,
    dir: &Path,
    others: Others,
    switch_off: &SwitchOff<'_>,
) -> Result<Restored, JournalError> {
    if !dir.exists() {
        return Ok(Restored::default());
    }
    let store = Store::lock(dir)?;
    let mut done = match store.load()? {
        Some(record) => put_back(root, &store, &record, switch_off),
        None => Restored::default(),
    };
    // What apply left is below what could not be put back.
    if done.failed.is_empty() {
        if let Some(applied) = store.applied()? {
            applied::undo(root, &store, applied, others, &mut done)?;
        }
    }
    Ok(done)
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

fn put_back(root: &Root, store: &Store, record: &Record, switch_off: &SwitchOff<'_>) -> Restored {
    let mut done = Restored { purpose: Some(record.purpose.clone()), ..Restored::default() };
    if boot_id(root).is_ok_and(|now| now != record.boot_id) {
        done.rebooted = true;
    } else {
        if record.owner != std::process::id() {
            done.ended_processes = end_processes_of(root, &record.run_id);
        }
        for log in &record.jvm_logs {
            match log.end(root, switch_off) {
                Ok(()) => done.jvm_logs.push(log.clone()),
                Err(reason) => done.jvm_logs_left.push((log.clone(), reason)),
            }
        }
        for entry in record.entries.iter().rev() {
            match put_back_one(root, entry) {
                Ok(()) => done.settings.push(entry.clone()),
                Err(reason) => done.failed.push((entry.clone(), reason)),
            }
        }
    }
    if done.failed.is_empty() && done.jvm_logs_left.is_empty() {
        store.clear(record);
    }
    done
}

/// Writes the old value until it is read back, and waits for what dying processes still hold.
///
/// What reads as it was is not written: its change may have been refused, as where /sys is read-only.
fn put_back_one(root: &Root, entry: &Entry) -> Result<(), String> {
    let begin = Instant::now();
    let now = || entry.setting.read(root).map_err(|error| error.to_string());
    let surplus_gone = || entry.setting.surplus(root).is_ok_and(|surplus| surplus <= entry.surplus);
    loop {
        if now()? != entry.was {
            entry.setting.write(root, &entry.was).map_err(|error| error.to_string())?;
        }
        let now = now()?;
        let late = begin.elapsed() > SETTLING;
        // Surplus pages that do not go are in somebody else's use.
        if now == entry.was && (surplus_gone() || late) {
            return Ok(());
        }
        if late {
            return Err(format!("wrote {}, and it still reads {now}", entry.was));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Ends what still runs of a holder that died: the processes that carry its run id.
fn end_processes_of(root: &Root, run_id: &str) -> Vec<u32> {
    let marker = format!("{RUN_VARIABLE}={run_id}");
    let carries_it = |pid: u32| {
        root.read_bytes(format!("proc/{pid}/environ"))
            .is_ok_and(|environ| environ.split(|b| *b == 0).any(|v| v == marker.as_bytes()))
    };
    let pids = root.list("proc").unwrap_or_default();
    pids.iter()
        .filter_map(|name| name.parse().ok())
        .filter(|pid| *pid != std::process::id() && carries_it(*pid))
        .filter(|pid| process::end_process(*pid, || carries_it(*pid)).is_ok())
        .collect()
}

fn boot_id(root: &Root) -> Result<String, ReadError> {
    root.value("proc/sys/kernel/random/boot_id", "a UUID")
}
