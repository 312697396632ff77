//! Restoring the settings of a journal.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use hugewise_linux::{root::Root, sys::process};
use schemars::JsonSchema;
use serde::Serialize;

use crate::write::write;

use super::{
    Entry, JournalError, JvmLog, Kept, RUN_VARIABLE, Record, SwitchOff, applied, boot_id, jvm_log,
    recordings, store::Store,
};

/// How long a pool may take to release pages of a dying process.
const SETTLING: Duration = Duration::from_secs(20);

/// The result of a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Restored {
    /// The command whose settings were restored; `null` if there was no journal.
    pub purpose: Option<String>,
    /// Settings that have their value from before the command again.
    pub settings: Vec<Entry>,
    /// Settings that could not be restored, with the reason.
    pub failed: Vec<(Entry, String)>,
    /// Settings changed by `apply` that have their value from before it again.
    pub undone: Vec<Entry>,
    /// Settings skipped because another program changed them after `apply`.
    pub changed_since: Vec<ChangedSince>,
    /// Process ids of the killed run's remaining children, which were ended.
    pub ended_processes: Vec<u32>,
    /// JVM logs that were switched off.
    pub jvm_logs: Vec<JvmLog>,
    /// JVM logs that are still on, with the reason.
    pub jvm_logs_left: Vec<(JvmLog, String)>,
    /// True if the machine was rebooted since, so that there was nothing to restore.
    pub rebooted: bool,
    /// The pid and command of a running recording, which restores its own settings when it ends; `null` if
    /// there is none.
    pub recording: Option<String>,
}

impl Restored {
    /// Adds the result of a second journal.
    fn add(&mut self, other: Restored) {
        self.purpose = match (self.purpose.take(), other.purpose) {
            (Some(one), Some(another)) => Some(format!("{one}, and {another}")),
            (one, another) => one.or(another),
        };
        self.settings.extend(other.settings);
        self.failed.extend(other.failed);
        self.ended_processes.extend(other.ended_processes);
        self.jvm_logs.extend(other.jvm_logs);
        self.jvm_logs_left.extend(other.jvm_logs_left);
        self.rebooted |= other.rebooted;
    }
}

/// A setting that changed after `apply`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ChangedSince {
    /// The setting, with its values before and after `apply`.
    #[serde(flatten)]
    pub kept: Kept,
    /// The current value.
    pub reads: String,
}

/// How [`restore`] treats settings that another program changed after `apply`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// Skip and report the setting.
    Leave,
    /// Restore the value from before `apply`.
    Overwrite,
}

/// Restores the settings of a run that died, then those changed by `apply`, each in reverse order. Does
/// nothing if there is no journal. JVM logs stay on: see [`restore_with`].
pub fn restore(root: &Root, dir: &Path, others: Others) -> Result<Restored, JournalError> {
    restore_with(root, dir, others, &jvm_log::left_to_restore)
}

/// Like [`restore`], and switches JVM logs off with `switch_off`.
pub fn restore_with(
    root: &Root,
    dir: &Path,
    others: Others,
    switch_off: &SwitchOff<'_>,
) -> Result<Restored, JournalError> {
    if !dir.exists() {
        return Ok(Restored::default());
    }
    // Both journals are locked before the first write: of two concurrent calls, one reports everything.
    let store = Store::lock(dir)?;
    let mut done = restore_recording(root, &recordings(dir), switch_off)?;
    if let Some(record) = store.load()? {
        done.add(put_back(root, &store, &record, switch_off));
    }
    // The values kept by apply are older than those of the journal, which must be restored first.
    if done.failed.is_empty() {
        if let Some(applied) = store.applied()? {
            applied::undo(root, &store, applied, others, &mut done)?;
        }
    }
    Ok(done)
}

/// Restores the settings of a killed recording.
fn restore_recording(root: &Root, dir: &Path, switch_off: &SwitchOff<'_>) -> Result<Restored, JournalError> {
    if !dir.exists() {
        return Ok(Restored::default());
    }
    let store = match Store::lock(dir) {
        Err(JournalError::Busy(who)) => return Ok(Restored { recording: Some(who), ..Restored::default() }),
        store => store?,
    };
    let left = store.load()?;
    Ok(left.map(|record| put_back(root, &store, &record, switch_off)).unwrap_or_default())
}

pub(super) fn put_back(root: &Root, store: &Store, record: &Record, switch_off: &SwitchOff<'_>) -> Restored {
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

/// Writes the old value and reads it back, until dying processes have released their pages.
///
/// A setting that has its old value is not written: the change may have failed, and /sys may be read-only.
pub(super) fn put_back_one(root: &Root, entry: &Entry) -> Result<(), String> {
    let begin = Instant::now();
    let now = || entry.setting.read(root).map_err(|error| error.to_string());
    let surplus_gone = || entry.setting.surplus(root).is_ok_and(|surplus| surplus <= entry.surplus);
    loop {
        if now()? != entry.was {
            write(entry.setting, root, &entry.was).map_err(|error| error.to_string())?;
        }
        let now = now()?;
        let late = begin.elapsed() > SETTLING;
        // Surplus pages that remain are in use by another process.
        if now == entry.was && (surplus_gone() || late) {
            return Ok(());
        }
        if late {
            return Err(format!("wrote {}, the kernel still reports {now}", entry.was));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Ends the processes of a run that died; they carry its run id in their environment.
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
