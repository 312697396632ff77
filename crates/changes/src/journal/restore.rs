//! Restoring the settings of a journal.

use std::path::Path;

use hugewise_linux::{root::Root, sys::process};

use super::{
    JournalError, RUN_VARIABLE, Record, SwitchOff,
    applied::{AppliedSetting, AppliedSettings, ChangedSince},
    boot_id, jvm_log, recordings,
    restored::{ForeignChanges, NotRestored, RemainingJvmLog, Restored, restore_entry},
    store::Store,
};

/// Restores the settings of a run that died, then those changed by `apply`, each in reverse order. Does
/// nothing if there is no journal. JVM logs stay on: see [`restore_with`].
pub fn restore(root: &Root, dir: &Path, others: ForeignChanges) -> Result<Restored, JournalError> {
    restore_with(root, dir, others, &jvm_log::leave_log_on)
}

/// Like [`restore`], and switches JVM logs off with `switch_off`.
pub fn restore_with(
    root: &Root,
    dir: &Path,
    others: ForeignChanges,
    switch_off: &SwitchOff<'_>,
) -> Result<Restored, JournalError> {
    if !dir.exists() {
        return Ok(Restored::default());
    }
    // Both journals are locked before the first write: of two concurrent calls, one reports everything.
    let store = Store::lock(dir)?;
    let mut done = restore_recording(root, &recordings(dir), switch_off)?;
    if let Some(record) = store.load()? {
        done.add(restore_record(root, &store, &record, switch_off));
    }
    // The values kept by apply are older than those of the journal, which must be restored first.
    if done.failed.is_empty() {
        if let Some(applied) = store.applied()? {
            undo(root, &store, applied, others, &mut done)?;
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
    Ok(left.map(|record| restore_record(root, &store, &record, switch_off)).unwrap_or_default())
}

/// Undoes the changes of `apply`; those that fail stay in the file.
fn undo(
    root: &Root,
    store: &Store,
    mut applied: AppliedSettings,
    others: ForeignChanges,
    done: &mut Restored,
) -> Result<(), JournalError> {
    if boot_id(root).is_ok_and(|now| now != applied.boot_id) {
        done.rebooted = true;
        store.clear_applied();
        return Ok(());
    }
    for kept in &mut applied.entries {
        let reads = kept.entry.setting.read(root);
        let is_ours = |reads: &String| *reads == kept.now || *reads == kept.entry.was;
        kept.undoing |= others == ForeignChanges::Overwrite || reads.as_ref().map_or(true, is_ours);
        if !kept.undoing {
            let reads = reads.unwrap_or_default();
            done.changed_since.push(ChangedSince { kept: kept.clone(), reads });
        }
    }
    // Saved first: undoing takes time and may be killed halfway.
    store.save_applied(&applied)?;
    let (undo, mut left): (Vec<AppliedSetting>, Vec<AppliedSetting>) =
        applied.entries.into_iter().partition(|kept| kept.undoing);
    for kept in undo.into_iter().rev() {
        match restore_entry(root, &kept.entry) {
            Ok(()) => done.undone.push(kept.entry),
            Err(reason) => {
                done.failed.push(NotRestored { entry: kept.entry.clone(), reason: reason.into() });
                left.push(kept);
            }
        }
    }
    if left.is_empty() {
        store.clear_applied();
        return Ok(());
    }
    applied.entries = left;
    store.save_applied(&applied)
}

pub(super) fn restore_record(
    root: &Root,
    store: &Store,
    record: &Record,
    switch_off: &SwitchOff<'_>,
) -> Restored {
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
                Err(reason) => {
                    done.jvm_logs_left.push(RemainingJvmLog { log: log.clone(), reason: reason.into() });
                }
            }
        }
        for entry in record.entries.iter().rev() {
            match restore_entry(root, entry) {
                Ok(()) => done.settings.push(entry.clone()),
                Err(why) => done.failed.push(NotRestored { entry: entry.clone(), reason: why.into() }),
            }
        }
    }
    if done.failed.is_empty() && done.jvm_logs_left.is_empty() {
        store.clear(record);
    }
    done
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
        .filter(|pid| process::kill_process(*pid, || carries_it(*pid)).is_ok())
        .collect()
}
