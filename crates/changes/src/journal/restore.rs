//! Restoring what journals contain, in this order: the settings of all journals; services; processes of a killed run,
//! and pools that had to wait for their end; pages of processes; JVM logs; journals in other mount namespaces. No step
//! before the last setting of this machine is restored depends on another process.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use hugewise_linux::{root::Root, sys::aside::Deadline, tracefs::machine_lock::Protected};

use super::{
    JournalError, ProcessUndo, Record, RemainingMemory, RemainingUnit,
    applied::{AppliedSettings, ChangedSetting, ChangedSince},
    boot_id,
    elsewhere::{self, Place},
    processes::end_processes_of,
    record::{salvaged, shown},
    restored::{
        DamagedFile, DamagedFiles, ForeignChanges, NotRestored, RemainingJvmLog, Restored, put_back, settle,
        wait_for_release,
    },
    store::{Store, machine_lock, recordings},
};

/// Longest search for the processes of a killed run.
const SEARCH_TIME_LIMIT: Duration = Duration::from_secs(5);

/// How journals are restored.
#[derive(Clone, Copy)]
pub struct RestoreOptions<'a> {
    pub others: ForeignChanges,
    pub damaged: DamagedFiles,
    pub undo: ProcessUndo<'a>,
}

impl RestoreOptions<'_> {
    /// Leaves what was changed in other processes.
    pub fn of_settings(others: ForeignChanges) -> RestoreOptions<'static> {
        RestoreOptions { others, damaged: DamagedFiles::Keep, undo: ProcessUndo::default() }
    }
}

/// Restores the settings of a run that died, then those changed by `apply`, each in reverse order.
/// Without a journal it does nothing. It does not undo changes in other processes; [`restore_with`] does.
pub fn restore(root: &Root, dir: &Path, others: ForeignChanges) -> Result<Restored, JournalError> {
    restore_with(root, dir, &RestoreOptions::of_settings(others))
}

/// Like [`restore`], and undoes changes in other processes.
pub fn restore_with(root: &Root, dir: &Path, options: &RestoreOptions<'_>) -> Result<Restored, JournalError> {
    let mut done = Restored::default();
    // Both journals are locked before the first write: of two concurrent calls, one reports everything.
    let here = dir.exists().then(|| Store::lock(dir)).transpose()?;
    let _machine = machine_lock(root, Protected::Settings)?;
    let recordings = recordings(dir);
    let mut places = vec![Place { folder: dir.to_owned(), names: &[Store::RECORD, Store::APPLIED] }];
    let mut _recording_lock = None;
    let mut recording = None;
    match recordings.exists().then(|| Store::lock(&recordings)).transpose() {
        Err(JournalError::Busy(who)) => done.recording = Some(who),
        // The settings are restored all the same.
        Err(error) => done.damaged.push(DamagedFile::of_folder(recordings, &error)),
        Ok(store) => match machine_lock(root, Protected::Recordings) {
            Err(JournalError::Busy(who)) => done.recording = Some(who),
            lock => {
                _recording_lock = lock.ok();
                recording = store;
                places.push(Place { folder: recordings, names: &[Store::RECORD] });
            }
        },
    }
    let stores = here.iter().chain(&recording);
    let mut journals: Vec<Unfinished<'_>> =
        stores.filter_map(|store| Unfinished::load(root, store, &mut done)).collect();
    for journal in &mut journals {
        journal.restore_settings(options.others, &mut done);
    }
    // The values before `apply` are older than those of the journals, whose settings are restored by now.
    if let Some(store) = &here {
        let waiting = pending(&journals);
        undo_applied(root, store, options.others, &waiting, Last::No, &mut done);
    }
    for journal in &mut journals {
        journal.put_units_back(&mut done);
    }
    for journal in &mut journals {
        journal.end_processes(&mut done);
    }
    for journal in &mut journals {
        journal.settle(&mut done);
    }
    if let Some(store) = &here {
        let failed = pending(&journals);
        undo_applied(root, store, options.others, &failed, Last::Yes, &mut done);
    }
    let pools: Vec<_> = done.settings.iter().chain(&done.undone).collect();
    wait_for_release(root, &pools);
    for journal in &mut journals {
        journal.undo_in_processes(&options.undo, &mut done);
    }
    for journal in journals {
        journal.close(&mut done);
    }
    for store in here.iter().chain(&recording) {
        report_damaged(store, options.damaged, &mut done);
    }
    elsewhere::find(root, &places).restore(root, options.damaged, &mut done);
    Ok(done)
}

/// The settings that are not restored yet.
fn pending(journals: &[Unfinished<'_>]) -> Vec<ChangedSetting> {
    journals.iter().flat_map(|journal| &journal.pending).cloned().collect()
}

/// Whether more follows in the same restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    No,
    Yes,
}

/// Undoes the changes of `apply`, but for the settings `waiting`, whose later values are not restored yet. Those that
/// fail stay in the file, and are reported the last time.
fn undo_applied(
    root: &Root,
    store: &Store,
    others: ForeignChanges,
    waiting: &[ChangedSetting],
    last: Last,
    done: &mut Restored,
) {
    // A damaged file is reported at the end.
    let Ok(Some(mut applied)) = store.applied() else { return };
    if boot_id(root).is_ok_and(|now| now != applied.boot_id) {
        done.rebooted = true;
        done.journal_left = store.clear_applied().err().map(|error| error.cause());
        return;
    }
    let waits = |kept: &ChangedSetting| waiting.iter().any(|other| other.entry.setting == kept.entry.setting);
    let (mut left, entries): (Vec<_>, Vec<_>) = applied.entries.into_iter().partition(waits);
    let (undo, foreign) = ChangedSetting::divide(root, entries, &[], others);
    left.extend(foreign.iter().map(|since| since.kept.clone()));
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
        let restored = match (put_back(root, &kept.entry), last) {
            (Ok(true), _) => Ok(()),
            (_, Last::Yes) => settle(root, &kept.entry),
            (_, Last::No) => {
                left.push(kept);
                continue;
            }
        };
        match restored {
            Ok(()) => done.undone.push(kept.entry),
            Err(reason) => {
                done.failed.push(NotRestored { entry: kept.entry.clone(), reason: reason.into() });
                left.push(kept);
            }
        }
    }
    applied.entries = left;
    let rest = if applied.is_empty() { store.clear_applied() } else { store.save_applied(&applied) };
    done.journal_left = done.journal_left.take().or_else(|| rest.err().map(|error| error.cause()));
}

/// The journal of a run that is being restored.
pub(super) struct Unfinished<'a> {
    root: &'a Root,
    store: &'a Store,
    /// What is left of it.
    record: Record,
    /// Whether this process is its holder.
    is_own: bool,
    /// Settings that another program has changed.
    foreign: Vec<ChangedSince>,
    /// Settings that are not restored yet.
    pending: Vec<ChangedSetting>,
}

impl<'a> Unfinished<'a> {
    /// The unfinished journal of a folder; `None` if there is none, or one that cannot be read, or of an earlier boot.
    fn load(root: &'a Root, store: &'a Store, done: &mut Restored) -> Option<Unfinished<'a>> {
        // A damaged one is reported at the end.
        let record = store.load().ok()??;
        done.add_purpose(&shown(&record.purpose));
        if boot_id(root).is_ok_and(|now| now != record.boot_id) {
            done.rebooted = true;
            done.journal_left = store.clear(&record).err().map(|error| error.cause());
            return None;
        }
        Some(Unfinished::of(root, store, record, false))
    }

    pub(super) fn of(root: &'a Root, store: &'a Store, record: Record, is_own: bool) -> Unfinished<'a> {
        Unfinished { root, store, record, is_own, foreign: Vec::new(), pending: Vec::new() }
    }

    /// Restores all of it; the settings first.
    pub(super) fn restore(mut self, others: ForeignChanges, undo: &ProcessUndo<'_>) -> Restored {
        let mut done = Restored { purpose: Some(self.record.purpose.clone()), ..Restored::default() };
        self.restore_settings(others, &mut done);
        self.put_units_back(&mut done);
        self.settle(&mut done);
        wait_for_release(self.root, &done.settings.iter().collect::<Vec<_>>());
        self.undo_in_processes(undo, &mut done);
        self.close(&mut done);
        done
    }

    /// Restores the settings that can be restored at once.
    fn restore_settings(&mut self, others: ForeignChanges, done: &mut Restored) {
        let earlier = self.store.applied().ok().flatten();
        let earlier = earlier.filter(|applied| applied.boot_id == self.record.boot_id);
        let earlier = earlier.map_or_else(Vec::new, |applied| applied.entries);
        let entries = std::mem::take(&mut self.record.entries);
        let (ours, foreign) = ChangedSetting::divide(self.root, entries, &earlier, others);
        (self.pending, self.foreign) = (ours, foreign);
        done.changed_since.extend(self.foreign.iter().cloned());
        // Before the first write, as in `undo_applied`.
        self.save();
        for change in std::mem::take(&mut self.pending).into_iter().rev() {
            match put_back(self.root, &change.entry) {
                Ok(true) => done.settings.push(change.entry),
                Ok(false) | Err(_) => self.pending.push(change),
            }
        }
        // The file of `apply` is removed next. Then this journal must not restore values that are younger again.
        self.save();
    }

    fn save(&mut self) {
        let foreign = self.foreign.iter().map(|since| since.kept.clone());
        self.record.entries = foreign.chain(self.pending.iter().rev().cloned()).collect();
        // Without space for it, the settings are restored anyway.
        let _ = self.store.save(&self.record);
    }

    fn put_units_back(&mut self, done: &mut Restored) {
        for change in std::mem::take(&mut self.record.units) {
            match change.undo() {
                Ok(()) => done.units.push(change),
                Err(reason) => {
                    self.record.units.push(change.clone());
                    done.units_left.push(RemainingUnit { change, reason: reason.into() });
                }
            }
        }
    }

    fn end_processes(&mut self, done: &mut Restored) {
        if self.is_own {
            return;
        }
        let deadline = Deadline::after(SEARCH_TIME_LIMIT, None);
        let found = end_processes_of(self.root, &self.record.run_id, &deadline);
        done.ended_processes.extend(found.ended);
        done.unread_processes = done.unread_processes.max(found.unread);
    }

    /// Restores the settings that had to wait for the end of processes.
    fn settle(&mut self, done: &mut Restored) {
        for change in std::mem::take(&mut self.pending) {
            match settle(self.root, &change.entry) {
                Ok(()) => done.settings.push(change.entry),
                Err(reason) => {
                    done.failed.push(NotRestored { entry: change.entry.clone(), reason: reason.into() });
                    self.pending.push(change);
                }
            }
        }
    }

    /// Undoes changes in other processes: their pages, then their logs, which need their answers.
    fn undo_in_processes(&mut self, undo: &ProcessUndo<'_>, done: &mut Restored) {
        for memory in std::mem::take(&mut self.record.memory) {
            match memory.end(self.root, undo.put_back) {
                Ok(()) => done.memory.push(memory),
                Err(reason) => {
                    self.record.memory.push(memory.clone());
                    done.memory_left.push(RemainingMemory { memory, reason: reason.into() });
                }
            }
        }
        for log in std::mem::take(&mut self.record.jvm_logs) {
            match log.end(self.root, undo.switch_off) {
                Ok(()) => done.jvm_logs.push(log),
                Err(reason) => {
                    self.record.jvm_logs.push(log.clone());
                    done.jvm_logs_left.push(RemainingJvmLog { log, reason: reason.into() });
                }
            }
        }
    }

    /// Removes the journal, or what is restored of it.
    fn close(mut self, done: &mut Restored) {
        let record = &self.record;
        let is_left = !self.pending.is_empty()
            || !record.units.is_empty()
            || !record.memory.is_empty()
            || !record.jvm_logs.is_empty()
            || !record.unreadable.is_empty();
        if is_left {
            self.save();
        } else {
            let finished = finish(self.store, record, &self.foreign);
            done.journal_left =
                done.journal_left.take().or_else(|| finished.err().map(|error| error.cause()));
        }
    }
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

/// Reports the files of a folder that are damaged, and moves them away.
fn report_damaged(store: &Store, damaged: DamagedFiles, done: &mut Restored) {
    for name in [Store::RECORD, Store::APPLIED] {
        let unreadable = match name {
            Store::RECORD => store.load().map(|record| record.map_or(0, |record| record.unreadable.len())),
            _ => store.applied().map(|applied| applied.map_or(0, |applied| applied.unreadable.len())),
        };
        let is_whole_damaged = unreadable.is_err();
        let reason = match unreadable {
            Ok(0) => continue,
            Ok(1) => "an entry in it cannot be read; all others are restored".to_owned(),
            Ok(entries) => format!("{entries} entries in it cannot be read; all others are restored"),
            Err(JournalError::Damaged { reason, .. }) => reason,
            Err(error) => error.cause(),
        };
        let bytes = if is_whole_damaged { store.bytes(name).unwrap_or_default() } else { Vec::new() };
        let readable = salvaged(&bytes);
        let mut found = DamagedFile { file: store.file(name), reason, readable, set_aside: None };
        if damaged == DamagedFiles::SetAside {
            match store.set_aside(name) {
                Ok(to) => found.set_aside = Some(to),
                Err(error) => found.reason = format!("{}; it cannot be moved: {error}", found.reason),
            }
        }
        done.damaged.push(found);
    }
}

impl DamagedFile {
    fn of_folder(folder: PathBuf, error: &JournalError) -> DamagedFile {
        DamagedFile { file: folder, reason: error.cause(), readable: Vec::new(), set_aside: None }
    }
}
