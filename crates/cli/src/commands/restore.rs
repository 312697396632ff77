//! `hugewise restore`: restores settings that `apply` or a killed command changed.

use std::{
    io,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use hugewise_changes::{
    journal::{
        self, DamagedFile, DamagedFiles, Entry, ForeignChanges, JvmLog, ProcessMemory, ProcessUndo,
        RestoreOptions, Restored, STATE_DIR,
    },
    persisted::{self, Removed},
};
use hugewise_linux::{
    json,
    reading::Reason,
    root::Root,
    sys::aside::{self, Deadline},
};
use hugewise_record::recording;
use schemars::JsonSchema;
use serde::Serialize;

use super::compare::live::host::put_back;
use crate::{
    NEGATIVE, machine,
    output::{
        standard_error,
        standard_output::{print, print_json},
        terminal::plain,
    },
};

/// Restore settings that 'hugewise apply' or a killed command changed
///
/// Every command that changes a setting first writes the old value to a journal, and restores it when
/// the command ends, also on Ctrl-C and on errors; only SIGKILL prevents this. 'hugewise apply' keeps
/// its changes. 'hugewise restore' restores the settings after SIGKILL and after 'apply'; then systemd
/// services that were stopped, and what was changed in other processes.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sudo hugewise restore               restore all settings, end processes of a killed comparison
  sudo hugewise restore --json        print the result as JSON
  sudo hugewise restore --force       also settings that another program changed since
  sudo hugewise restore --set-aside   also rename damaged files of the journal
  sudo hugewise restore --persisted   also remove the files that apply the settings at boot

Exit status: 0 all settings are restored; 1 a setting could not be restored, was skipped because
another program has changed it since, or a file of the journal is damaged; 2 usage error, or another
hugewise is running.")]
pub struct Restore {
    /// Also restore settings that another program has changed since hugewise changed them; with
    /// --persisted, also remove files that were edited since
    #[arg(long)]
    force: bool,

    /// Also move away files of the journal that are damaged, after all that can be read in them is
    /// restored; nothing of them is lost
    #[arg(long)]
    set_aside: bool,

    /// Also remove the configuration files that 'hugewise apply --persist' wrote
    #[arg(long)]
    persisted: bool,

    /// Folder of the configuration files
    #[arg(long, value_name = "DIR", default_value = "/etc", hide = true)]
    etc: PathBuf,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Result of `hugewise restore`, schema `hugewise.restore/2`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RestoreReport {
    schema: &'static str,
    #[serde(flatten)]
    restored: Restored,
    /// Files that `apply --persist` wrote: removed, or kept with the reason. Empty without `--persisted`.
    persisted: Removed,
    /// Files of `apply --persist` that still exist and apply the settings at boot.
    still_persisted: Vec<PathBuf>,
}

/// Longest time for the pages of one process, which is another user's program.
const PAGES_TIME_LIMIT: Duration = Duration::from_secs(60);
/// Longest reason why a step failed, in characters.
const MAX_REASON_CHARS: usize = 2000;
/// Longest time for the log of one JVM.
const LOG_TIME_LIMIT: Duration = Duration::from_secs(15);

/// A step that talks to another process, in a child process with a time limit.
fn bounded(limit: Duration, step: impl FnOnce() -> Result<(), Reason>) -> Result<(), Reason> {
    let work = || {
        let failed = step().err().map(String::from).unwrap_or_default();
        Ok(failed.chars().take(MAX_REASON_CHARS).collect::<String>().into_bytes())
    };
    let limit_bytes = MAX_REASON_CHARS * char::MAX.len_utf8();
    match aside::ask(&[], &Deadline::after(limit, None), limit_bytes, work) {
        Ok(failed) if failed.is_empty() => Ok(()),
        Ok(failed) => Reason::err(String::from_utf8_lossy(&failed)),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            Reason::err(format!("it did not answer within {} s", limit.as_secs()))
        }
        Err(error) => Reason::err(error.to_string()),
    }
}

pub fn run(restore: &Restore) -> anyhow::Result<ExitCode> {
    let root = Root::live();
    // SIGINT and SIGTERM end this process at once, and the child with it: what is left stays in the journal.
    let undo = ProcessUndo {
        switch_off: &|log: &JvmLog| bounded(LOG_TIME_LIMIT, || recording::switch_off(&root, log)),
        put_back: &|memory: &ProcessMemory| bounded(PAGES_TIME_LIMIT, || put_back(&root, memory)),
    };
    let options = RestoreOptions {
        others: if restore.force { ForeignChanges::Overwrite } else { ForeignChanges::Leave },
        damaged: if restore.set_aside { DamagedFiles::SetAside } else { DamagedFiles::Keep },
        undo,
    };
    let restored = journal::restore_with(&root, Path::new(STATE_DIR), &options).map_err(|error| {
        machine::needs_root(error, "only root can restore settings: run 'sudo hugewise restore'")
    })?;
    let persisted =
        if restore.persisted { persisted::remove(&restore.etc, restore.force) } else { Removed::default() };
    let report = RestoreReport {
        schema: "hugewise.restore/2",
        restored,
        persisted,
        still_persisted: persisted::present(&restore.etc),
    };
    match restore.json {
        true => print_json(&json::text(&report)?)?,
        false => print(&text(&report))?,
    }
    let restored = &report.restored;
    let all_restored = machine::is_fully_restored(restored);
    if !all_restored {
        standard_error::say(machine::failures(restored));
    }
    let as_it_was = all_restored
        && restored.changed_since.is_empty()
        && restored.elsewhere.is_none()
        && restored.damaged.is_empty()
        && report.persisted.left.is_empty();
    Ok(if as_it_was { ExitCode::SUCCESS } else { ExitCode::from(NEGATIVE) })
}

fn text(report: &RestoreReport) -> String {
    let restored = &report.restored;
    let mut lines = Vec::new();
    if let Some(purpose) = &restored.purpose {
        lines.push(format!("An earlier hugewise was killed during: {purpose}"));
    }
    if restored.rebooted {
        lines.push("The machine has been rebooted since, which reset the settings.".to_owned());
    }
    let put_back = restored.settings.iter().chain(&restored.undone);
    lines.extend(put_back.map(|entry| format!("Restored: {} = {}", entry.setting, entry.was)));
    lines.extend(restored.units.iter().map(|change| match change.was_running {
        true => format!("Restarted: {}, without the drop-in of hugewise", change.unit),
        false => format!("Stopped: {}, as before; the drop-in of hugewise is removed", change.unit),
    }));
    lines.extend(
        restored.ended_processes.iter().map(|pid| format!("Ended process {pid}, which it had started.")),
    );
    lines.extend(
        restored.memory.iter().map(|memory| format!("Restored: the pages of process {}", memory.pid)),
    );
    lines.extend(
        restored.jvm_logs.iter().map(|log| format!("Stopped: the log of the JVM in process {}", log.pid)),
    );
    if restored.purpose.is_some()
        && restored.settings.is_empty()
        && restored.changed_since.is_empty()
        && restored.units.is_empty()
        && restored.elsewhere.is_none()
        && restored.damaged.is_empty()
        && restored.jvm_logs.is_empty()
        && restored.memory.is_empty()
        && machine::is_fully_restored(restored)
        && !restored.rebooted
    {
        lines.push("The killed process had not changed any setting.".to_owned());
    }
    let skipped = |since| format!("Skipped: {}.", machine::not_overwritten(since));
    lines.extend(restored.changed_since.iter().map(skipped));
    if let Some(reason) = &restored.journal_left {
        lines.push(format!(
            "The settings are restored, but their journal remains ({reason}): run 'hugewise restore' again when it \
             can be written."
        ));
    }
    if let Some(found) = &restored.elsewhere {
        lines.push(format!("Not restored: {found}."));
    }
    lines.extend(restored.damaged.iter().flat_map(damaged));
    if let Some(who) = &restored.recording {
        lines.push(format!("A recording is running ({who}): it restores its own settings when it ends."));
    }
    if lines.is_empty() && machine::is_fully_restored(restored) {
        lines.push("Nothing to restore: no command was killed, and no changes are applied.".to_owned());
    }
    if restored.unread_processes > 0 {
        lines.push(format!(
            "{} did not answer whether the killed command had started them; they were left.",
            processes(restored.unread_processes)
        ));
    }
    if !restored.not_looked_into.is_empty() {
        let pids: Vec<String> = restored.not_looked_into.iter().map(u32::to_string).collect();
        lines.push(format!(
            "Not looked into, because the lookup took too long: the mount namespaces of the processes {}.",
            pids.join(", ")
        ));
    }
    lines.extend(report.persisted.files.iter().map(|file| format!("Removed: {}", file.display())));
    let left = &report.persisted.left;
    lines.extend(left.iter().map(|left| format!("Not removed: {}: {}", left.file.display(), left.reason)));
    if left.is_empty() {
        lines.extend(report.still_persisted.iter().map(|file| {
            format!(
                "Persisted, applied again at boot: {}; 'hugewise restore --persisted' removes it",
                file.display()
            )
        }));
    }
    lines.push(String::new());
    lines.join("\n")
}

fn processes(number: usize) -> String {
    match number {
        1 => "1 process".to_owned(),
        number => format!("{number} processes"),
    }
}

/// The lines on a damaged file.
fn damaged(found: &DamagedFile) -> Vec<String> {
    let file = found.file.display();
    let mut lines = vec![match &found.set_aside {
        Some(to) => format!("Set aside: {file}, now {}: {}.", to.display(), found.reason),
        None => format!(
            "Damaged: {file}: {}. Look at the file; 'hugewise restore --set-aside' moves it away.",
            found.reason
        ),
    }];
    let readable = |entry: &Entry| {
        format!("  not restored, but can be read in it: {} was {}", entry.setting, plain(&entry.was))
    };
    lines.extend(found.readable.iter().map(readable));
    lines
}
