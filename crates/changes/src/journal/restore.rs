//! Restoring the settings of a journal.

use std::path::Path;

use hugewise_linux::{root::Root, sys::process, tracefs::machine_lock::Protected};

use super::{
    JournalError, ProcessUndo, RUN_VARIABLE, Record, RemainingMemory,
    applied::{AppliedSettings, ChangedSetting, ChangedSince},
    boot_id, elsewhere, recordings,
    restored::{ForeignChanges, NotRestored, RemainingJvmLog, Restored, restore_entry},
    store::{Store, machine_lock},
};

/// Restores the settings of a run that died, then those changed by `apply`, each in reverse order.
/// Without a journal it does nothing. It does not undo changes in other processes; [`restore_with`] does.
pub fn restore(root: &Root, dir: &Path, others: ForeignChanges) -> Result<Restored, JournalError> {
    restore_with(root, dir, others, &ProcessUndo::default())
}

/// Like [`restore`], and undoes changes in other processes with `undo`.
pub fn restore_with(
    root: &Root,
    dir: &Path,
    others: ForeignChanges,
    undo: &ProcessUndo<'_>,
) -> Result<Restored, JournalError> {
    let here = dir.exists().then(|| Store::lock(dir)).transpose()?;
    let _machine = machine_lock(root, Protected::Settings)?;
    let mut done = Restored::default();
    let mut names = vec![Store::RECORD, Store::APPLIED];
    // Both journals are locked before the first write: of two concurrent calls, one reports everything.
    match restore_recording(root, &recordings(dir), others, undo) {
        Err(JournalError::Busy(who)) => done.recording = Some(who),
        restored => {
            done = restored?;
            names.push(Store::RECORDING);
        }
    }
    done.elsewhere = elsewhere::find(root, dir, &names);
    let Some(store) = here else { return Ok(done) };
    if let Some(record) = store.load()? {
        done.add(restore_record(root, &store, &record, others, undo));
    }
    // The values kept by apply are older than those of the journal, which must be restored first.
    if done.failed.is_empty() {
        if let Some(applied) = store.applied()? {
            undo_applied(root, &store, applied, others, &mut done)?;
        }
    }
    Ok(done)
}

/// Restores the settings of a killed recording; [`JournalError::Busy`] while one is running.
fn restore_recording(
    root: &Root,
    dir: &Path,
    others: ForeignChanges,
    undo: &ProcessUndo<'_>,
) -> Result<Restored, JournalError> {
    let here = dir.exists().then(|| Store::lock(dir)).transpose()?;
    let _machine = machine_lock(root, Protected::Recordings)?;
    let Some(store) = here else { return Ok(Restored::default()) };
    let left = store.load()?;
    Ok(left.map(|record| restore_record(root, &store, &record, others, undo)).unwrap_or_default())
}

/// Undoes the changes of `apply`; those that fail stay in the file.
fn undo_applied(
    root: &Root,
    store: &Store,
    mut applied: AppliedSettings,
    others: ForeignChanges,
    done: &mut Restored,
) -> Result<(), JournalError> {
    if boot_id(root).is_ok_and(|now| now != applied.boot_id) {
        done.rebooted = true;
        done.journal_left = store.clear_applied().err().map(|error| error.cause());
        return Ok(());
    }
    let (undo, foreign) = ChangedSetting::divide(root, applied.entries, &[], others);
    let mut left: Vec<_> = foreign.iter().map(|since| since.kept.clone()).collect();
    for since in foreign {
        // The restore of the journal has reported it already, if it could not be moved here.
        if !done.changed_since.iter().any(|known| known.kept.entry.setting == since.kept.entry.setting) {
            done.changed_since.push(since);
        }
    }
    // Saved first: undoing takes time and may be killed halfway. Without space it is not saved; then `restore`
    // skips a pool that a killed `restore` changed only in part.
    applied.entries = left.iter().chain(&undo).cloned().collect();
    let _ = store.save_applied(&applied);
    for kept in undo.into_iter().rev() {
        match restore_entry(root, &kept.entry) {
            Ok(()) => done.undone.push(kept.entry),
            Err(reason) => {
                done.failed.push(NotRestored { entry: kept.entry.clone(), reason: reason.into() });
                left.push(kept);
            }
        }
    }
    applied.entries = left;
    let rest = if applied.entries.is_empty() { store.clear_applied() } else { store.save_applied(&applied) };
    done.journal_left = done.journal_left.take().or_else(|| rest.err().map(|error| error.cause()));
    Ok(())
}

pub(super) fn restore_record(
    root: &Root,
    store: &Store,
    record: &Record,
    others: ForeignChanges,
    undo: &ProcessUndo<'_>,
) -> Restored {
    let mut done = Restored { purpose: Some(record.purpose.clone()), ..Restored::default() };
    if boot_id(root).is_ok_and(|now| now != record.boot_id) {
        done.rebooted = true;
    } else {
        if record.owner != std::process::id() {
            done.ended_processes = end_processes_of(root, &record.run_id);
        }
        for log in &record.jvm_logs {
            match log.end(root, undo.switch_off) {
                Ok(()) => done.jvm_logs.push(log.clone()),
                Err(reason) => {
                    done.jvm_logs_left.push(RemainingJvmLog { log: log.clone(), reason: reason.into() });
                }
            }
        }
        for memory in &record.memory {
            match memory.end(root, undo.put_back) {
                Ok(()) => done.memory.push(memory.clone()),
                Err(reason) => {
                    done.memory_left.push(RemainingMemory { memory: memory.clone(), reason: reason.into() });
                }
            }
        }
        let earlier = store.applied().ok().flatten().filter(|applied| applied.boot_id == record.boot_id);
        let earlier = earlier.map_or_else(Vec::new, |applied| applied.entries);
        let (ours, foreign) = ChangedSetting::divide(root, record.entries.clone(), &earlier, others);
        let entries = foreign.iter().map(|since| since.kept.clone()).chain(ours.iter().cloned()).collect();
        // Before the first write, as in `undo_applied`. Without space for it, the settings are restored anyway.
        let _ = store.save(&Record { entries, ..record.clone() });
        done.changed_since = foreign;
        for ChangedSetting { entry, .. } in ours.into_iter().rev() {
            match restore_entry(root, &entry) {
                Ok(()) => done.settings.push(entry),
                Err(why) => done.failed.push(NotRestored { entry, reason: why.into() }),
            }
        }
    }
    if done.failed.is_empty() && done.jvm_logs_left.is_empty() && done.memory_left.is_empty() {
        done.journal_left = finish(store, record, &done.changed_since).err().map(|error| error.cause());
    }
    done
}

/// Removes the journal. Settings that another program changed move to the file of applied settings, from which
/// `restore --force` restores them.
fn finish(store: &Store, record: &Record, foreign: &[ChangedSince]) -> Result<(), JournalError> {
    if !foreign.is_empty() {
        let changes = foreign.iter().map(|since| since.kept.clone());
        store.save_applied(&AppliedSettings::with(store.applied()?, record, changes))?;
    }
    store.clear(record)
}

/// Ends the processes of a run that died; they carry its run id in their environment.
pub fn end_processes_of(root: &Root, run_id: &str) -> Vec<u32> {
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
