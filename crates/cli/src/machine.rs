//! What commands that change the machine have in common: the interrupt, the journal, its end.

use std::{path::Path, process::ExitCode};

use anyhow::Context;
use hugewise_changes::journal::{self, Restored, STATE_DIR};
use hugewise_linux::{interrupt::Interrupt, proc::meminfo, root::Root, units::Bytes};
use hugewise_measure::{experiment::ExperimentError, machine::Machine};

/// A tenth of the memory, and never less than this, stays available beside a pool.
const SMALLEST_FLOOR: Bytes = Bytes(512 << 20);

/// Takes the journal for `purpose`; `floor` is what must stay available, or what is usual.
pub fn open_machine(root: &Root, purpose: &str, floor: Option<Bytes>) -> anyhow::Result<Machine> {
    Ok(Machine::open(root, Path::new(STATE_DIR), purpose, self::floor(root, floor))?)
}

/// What must stay available beside a pool: what was asked for, or what is usual.
pub fn floor(root: &Root, asked: Option<Bytes>) -> Bytes {
    // Where it cannot be told, no pool is grown either.
    let tenth = || Bytes(meminfo::read(root).available.known().map_or(0, |now| now.0 / 10));
    asked.unwrap_or_else(|| SMALLEST_FLOOR.max(tenth()))
}

/// Watches for signals that ask us to end.
pub fn watch() -> anyhow::Result<Interrupt> {
    Interrupt::install().context("taking over SIGINT and SIGTERM")
}

/// Puts the machine back, and says so where that failed.
pub fn close(machine: Machine) -> anyhow::Result<()> {
    let restored = machine.close();
    anyhow::ensure!(restored.failed.is_empty(), "{}", failures(&restored));
    Ok(())
}

/// Is everything as it was?
pub fn is_as_it_was(restored: &Restored) -> bool {
    restored.failed.is_empty() && restored.jvm_logs_left.is_empty()
}

/// What could not be put back, and what to do.
pub fn failures(restored: &Restored) -> String {
    let each: Vec<String> = restored
        .failed
        .iter()
        .map(|(entry, reason)| {
            format!("the {} was {} and could not be put back: {reason}", entry.setting, entry.was)
        })
        .chain(restored.jvm_logs_left.iter().map(|(log, reason)| {
            format!(
                "the log {} of the JVM in process {} could not be switched off: {reason}",
                log.file, log.pid
            )
        }))
        .collect();
    format!("{}; 'hugewise restore' tries again", each.join("; "))
}

/// The exit status after a broken-off experiment: 128 and the signal, as a shell would show it.
pub fn interrupted(error: &ExperimentError, interrupt: &Interrupt) -> Option<ExitCode> {
    matches!(error, ExperimentError::Interrupted).then(|| after_signal(interrupt))
}

/// The exit status after a signal, when everything was put back.
pub fn after_signal(interrupt: &Interrupt) -> ExitCode {
    eprintln!("hugewise: interrupted; the machine is as it was");
    let signal = interrupt.signal().and_then(|signal| u8::try_from(signal).ok()).unwrap_or(0);
    ExitCode::from(128 + signal)
}

/// Says what an earlier, killed call left behind.
pub fn tell_unfinished() {
    if let Some(record) = journal::unfinished(Path::new(STATE_DIR)) {
        eprintln!("hugewise: {}; 'hugewise restore' puts the machine back", record.unfinished());
    }
}
