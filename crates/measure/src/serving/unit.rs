//! The messages of a systemd service.

use std::time::Duration;

use hugewise_linux::{bounded_run, sys::process::Program, systemd::Unit};

/// Lines of the journal that are shown for a service that failed.
const JOURNAL_LINES: &str = "6";
/// Time limit for reading them.
const JOURNAL_TIME_LIMIT: Duration = Duration::from_secs(5);

/// The last lines of the service in the journal; empty if they cannot be read.
pub fn last_messages(unit: &Unit) -> String {
    let options =
        ["--unit", unit.name(), "--lines", JOURNAL_LINES, "--output", "cat", "--no-pager", "--quiet"];
    let ran = Program::of_system("journalctl").and_then(|mut journal| {
        journal.args(options);
        bounded_run::run_regardless_of_signals(journal, JOURNAL_TIME_LIMIT)
    });
    ran.ok().flatten().map(|ran| ran.stdout).unwrap_or_default()
}
