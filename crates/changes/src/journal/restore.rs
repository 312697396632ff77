//! Putting back what stands in a journal.

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

/// How long a pool may take to give back pages that a dying process held.
const SETTLING: Duration = Duration::from_secs(20);

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
    /// A recording that runs, and puts back by itself what it switched on.
    pub recording: Option<String>,
}

impl Restored {
    /// Adds what became of another journal.
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
    // Nothing before both are ours: what was done would be told by none of two calls.
    let store = Store::lock(dir)?;
    let mut done = restore_recording(root, &recordings(dir), switch_off)?;
    if let Some(record) = store.load()? {
        done.add(put_back(root, &store, &record, switch_off));
    }
    // What apply left is below what could not be put back.
    if done.failed.is_empty() {
        if let Some(applied) = store.applied()? {
            applied::undo(root, &store, applied, others, &mut done)?;
        }
    }
    Ok(done)
}

/// Puts back what a recording left that was killed.
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

/// Writes the old value until it is read back, and waits for what dying processes still hold.
///
/// What reads as it was is not written: its change may have been refused, as where /sys is read-only.
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
