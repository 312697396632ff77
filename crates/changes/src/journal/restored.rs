//! The result of a restore, and the restoring of one setting.

use std::{
    thread,
    time::{Duration, Instant},
};

use hugewise_linux::{reading::Reason, root::Root};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Entry, JvmLog, ProcessMemory, RemainingMemory, applied::ChangedSince};
use crate::write::write;

/// Maximum time in which a pool releases the pages of a dying process.
const RELEASE_TIME_LIMIT: Duration = Duration::from_secs(20);

/// The result of a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Restored {
    /// The command whose settings were restored; `null` if there was no journal.
    pub purpose: Option<String>,
    /// Settings restored to their value before the command.
    pub settings: Vec<Entry>,
    /// Settings that could not be restored, with the reason.
    pub failed: Vec<NotRestored>,
    /// Settings changed by `apply` and restored to their value before it.
    pub undone: Vec<Entry>,
    /// Settings skipped because another program changed them after Hugewise did.
    pub changed_since: Vec<ChangedSince>,
    /// Process ids of the killed run's remaining children, which were ended.
    pub ended_processes: Vec<u32>,
    /// JVM logs that were switched off.
    pub jvm_logs: Vec<JvmLog>,
    /// JVM logs that are still on, with the reason.
    pub jvm_logs_left: Vec<RemainingJvmLog>,
    /// Memory of processes that is on its pages again, or whose process has ended.
    pub memory: Vec<ProcessMemory>,
    /// Memory of processes that could not be put back, with the reason.
    pub memory_left: Vec<RemainingMemory>,
    /// Why the journal or the list of applied settings remains although its settings are restored, for example
    /// on a read-only /run; `null` if it is removed.
    pub journal_left: Option<String>,
    /// True if the machine was rebooted since, so that there was nothing to restore.
    pub rebooted: bool,
    /// The command and process of a journal in another mount namespace, which `restore` must be run in; `null` if
    /// there is none.
    pub elsewhere: Option<String>,
    /// The pid and command of a running recording, which restores its own settings when it ends; `null` if
    /// there is none.
    pub recording: Option<String>,
}

/// A setting that could not be restored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NotRestored {
    #[serde(flatten)]
    pub entry: Entry,
    /// Why it could not be restored.
    pub reason: String,
}

/// A JVM log that is still on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RemainingJvmLog {
    #[serde(flatten)]
    pub log: JvmLog,
    /// Why it could not be switched off.
    pub reason: String,
}

impl Restored {
    /// Adds the result of a second journal.
    pub(super) fn add(&mut self, other: Restored) {
        self.purpose = match (self.purpose.take(), other.purpose) {
            (Some(one), Some(another)) => Some(format!("{one}, and {another}")),
            (one, another) => one.or(another),
        };
        self.settings.extend(other.settings);
        self.failed.extend(other.failed);
        self.ended_processes.extend(other.ended_processes);
        self.jvm_logs.extend(other.jvm_logs);
        self.jvm_logs_left.extend(other.jvm_logs_left);
        self.memory.extend(other.memory);
        self.memory_left.extend(other.memory_left);
        self.changed_since.extend(other.changed_since);
        self.journal_left = self.journal_left.take().or(other.journal_left);
        self.rebooted |= other.rebooted;
    }
}

/// How a restore treats settings that another program changed after Hugewise did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignChanges {
    /// Skip and report the setting.
    Leave,
    /// Restore the value from before the change.
    Overwrite,
}

/// Writes the old value and reads it back, until dying processes have released their pages.
///
/// A setting that has its old value is not written: the change may have failed, and /sys may be read-only.
pub(super) fn restore_entry(root: &Root, entry: &Entry) -> Result<(), Reason> {
    let begin = Instant::now();
    let surplus_gone = || entry.setting.surplus(root).is_ok_and(|surplus| surplus <= entry.surplus);
    loop {
        if entry.setting.read(root)? != entry.was {
            write(entry.setting, root, &entry.was)?;
        }
        let now = entry.setting.read(root)?;
        let late = begin.elapsed() > RELEASE_TIME_LIMIT;
        // Surplus pages that remain are in use by another process.
        if now == entry.was && (surplus_gone() || late) {
            return Ok(());
        }
        if late {
            return Reason::err(format!("wrote {}, the kernel still reports {now}", entry.was));
        }
        thread::sleep(Duration::from_millis(20));
    }
}
