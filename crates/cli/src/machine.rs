//! Shared by commands: the selected machine, journal, signals, restoring, exit status.

use std::{env, path::Path, process::ExitCode};

use anyhow::{Context, ensure};
use hugewise_changes::journal::{
    self, ChangedSince, JournalError, NotRestored, RemainingJvmLog, RemainingMemory, RemainingUnit, Restored,
    STATE_DIR,
};
use hugewise_linux::{
    interrupt::Interrupt,
    proc::{limits, meminfo},
    root::Root,
    shell,
    sys::process,
    units::Bytes,
};
use hugewise_measure::{experiment::ExperimentError, machine::Machine};

use crate::output::standard_error;

/// Memory that stays available when a pool grows, if a tenth of the available memory is less.
const MIN_FLOOR_BYTES: Bytes = Bytes(512 << 20);

/// Opens the journal for `purpose`. `floor`: memory that must stay available, `None` for the default.
pub fn open_machine(root: &Root, purpose: &str, floor: Option<Bytes>) -> anyhow::Result<Machine> {
    Ok(Machine::open(root, Path::new(STATE_DIR), purpose, self::floor(root, floor))?)
}

/// Memory that must stay available when a pool grows: `asked`, or a tenth of the available memory, at least
/// [`MIN_FLOOR_BYTES`].
pub fn floor(root: &Root, asked: Option<Bytes>) -> Bytes {
    // If the available memory is unknown, no pool is grown either.
    let tenth = || Bytes(meminfo::read(root).available.known().map_or(0, |now| now.0 / 10));
    asked.unwrap_or_else(|| MIN_FLOOR_BYTES.max(tenth()))
}

/// The machine captured in `dir`, or this machine.
pub fn root(dir: Option<&Path>) -> anyhow::Result<Root> {
    let Some(dir) = dir else { return Ok(Root::live()) };
    ensure!(dir.is_dir(), "{}: no such folder; 'hugewise check --capture DIR' creates one", dir.display());
    Ok(Root::at(dir))
}

/// Installs the handlers for SIGINT and SIGTERM.
pub fn install_signal_handlers() -> anyhow::Result<Interrupt> {
    Interrupt::install().context("cannot install the handlers for SIGINT and SIGTERM")
}

/// Restores all settings; an error if that failed for any of them.
pub fn close(machine: Machine) -> anyhow::Result<()> {
    all_restored(&machine.close())
}

/// An error if a setting could not be restored. Reports settings that another program changed.
pub fn all_restored(restored: &Restored) -> anyhow::Result<()> {
    for since in &restored.changed_since {
        standard_error::say(not_overwritten(since));
    }
    ensure!(is_fully_restored(restored), "{}", failures(restored));
    Ok(())
}

/// A sentence on a setting that another program changed.
pub fn not_overwritten(ChangedSince { kept, reads }: &ChangedSince) -> String {
    format!(
        "the {setting} is {reads}: another program changed it after hugewise had set it to {now}, so it is not \
         restored to {was}; 'hugewise restore --force' restores it",
        setting = kept.entry.setting,
        now = kept.now.as_deref().unwrap_or("another value"),
        was = kept.entry.was,
    )
}

pub fn is_fully_restored(restored: &Restored) -> bool {
    restored.failed.is_empty()
        && restored.units_left.is_empty()
        && restored.jvm_logs_left.is_empty()
        && restored.memory_left.is_empty()
}

/// What could not be restored, with the reasons, as one sentence.
pub fn failures(restored: &Restored) -> String {
    let each: Vec<String> = restored
        .failed
        .iter()
        .map(|NotRestored { entry, reason }| {
            format!("cannot restore the {} to {}: {reason}", entry.setting, entry.was)
        })
        .chain(restored.units_left.iter().map(|RemainingUnit { change, reason }| {
            format!("cannot put the service {} back: {reason}", change.unit)
        }))
        .chain(restored.jvm_logs_left.iter().map(|RemainingJvmLog { log, reason }| {
            format!("cannot stop the log {} of the JVM in process {}: {reason}", log.file, log.pid)
        }))
        .chain(restored.memory_left.iter().map(|RemainingMemory { memory, reason }| {
            format!("cannot put the memory of process {} back on its pages: {reason}", memory.pid)
        }))
        .collect();
    format!("{}; run 'hugewise restore' to try again", each.join("; "))
}

/// The exit status of an experiment that was interrupted before it had a result; `None` for any other error.
pub fn interrupted(error: &ExperimentError, interrupt: &Interrupt) -> Option<ExitCode> {
    matches!(error, ExperimentError::Interrupted).then(|| without_result(interrupt))
}

/// The exit status after a signal before there was a result, when all settings are restored.
pub fn without_result(interrupt: &Interrupt) -> ExitCode {
    standard_error::say("interrupted before a run that counts was complete; all settings are restored");
    exit_code(interrupt)
}

/// The exit status after a signal, when all settings are restored.
pub fn after_signal(interrupt: &Interrupt) -> ExitCode {
    standard_error::say("interrupted; all settings are restored");
    exit_code(interrupt)
}

/// 128 + signal number, as shells report it.
fn exit_code(interrupt: &Interrupt) -> ExitCode {
    ExitCode::from(128 + signal_number(interrupt).unwrap_or(0))
}

/// The signal that arrived; `None` if there was none.
pub fn signal_number(interrupt: &Interrupt) -> Option<u8> {
    interrupt.signal().and_then(|signal| u8::try_from(signal).ok())
}

/// The error of the journal; for users other than root with `advice`, and where only the host can change settings with
/// the command for it.
pub fn needs_root(error: JournalError, advice: &'static str) -> anyhow::Error {
    let error = anyhow::Error::new(error);
    if !process::is_root() {
        return error.context(advice);
    }
    match limits::read(&Root::live()).host_only() {
        Some(why) => {
            let words: Vec<String> = env::args().skip(1).collect();
            error.context(format!("{why}; on the host: sudo hugewise {}", shell::line(&words)))
        }
        None => error,
    }
}

/// Warns if a hugewise that was killed has left changed settings behind.
pub fn warn_of_unfinished() {
    if let Some(record) = journal::unfinished(Path::new(STATE_DIR)) {
        standard_error::say(format_args!("{}; run 'hugewise restore'", record.unfinished()));
    }
}
