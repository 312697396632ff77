//! `hugewise restore`: restores settings that `apply` or a killed command changed.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use hugewise_changes::{
    journal::{self, ForeignChanges, JvmLog, ProcessMemory, ProcessUndo, Restored, STATE_DIR},
    persisted::{self, Removed},
};
use hugewise_linux::{json, root::Root};
use hugewise_record::recording;
use schemars::JsonSchema;
use serde::Serialize;

use super::compare::live::host::put_back;
use crate::{
    NEGATIVE, machine,
    output::{
        standard_error,
        standard_output::{print, print_json},
    },
};

/// Restore settings that 'hugewise apply' or a killed command changed
///
/// Every command that changes a setting first writes the old value to a journal, and restores it when
/// the command ends, also on Ctrl-C and on errors; only SIGKILL prevents this. 'hugewise apply' keeps
/// its changes. 'hugewise restore' restores the settings after SIGKILL and after 'apply'.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sudo hugewise restore               restore all settings, end processes of a killed comparison
  sudo hugewise restore --json        print the result as JSON
  sudo hugewise restore --force       also settings that another program changed since
  sudo hugewise restore --persisted   also remove the files that apply the settings at boot

Exit status: 0 all settings are restored; 1 a setting could not be restored, was skipped because
another program has changed it since, or is in a journal of another mount namespace; 2 usage error,
or another hugewise is running.")]
pub struct Restore {
    /// Also restore settings that another program has changed since hugewise changed them; with
    /// --persisted, also remove files that were edited since
    #[arg(long)]
    force: bool,

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

pub fn run(restore: &Restore) -> anyhow::Result<ExitCode> {
    let others = if restore.force { ForeignChanges::Overwrite } else { ForeignChanges::Leave };
    let root = Root::live();
    let undo = ProcessUndo {
        switch_off: &|log: &JvmLog| recording::switch_off(&root, log),
        put_back: &|memory: &ProcessMemory| put_back(&root, memory),
    };
    let restored = journal::restore_with(&root, Path::new(STATE_DIR), others, &undo).map_err(|error| {
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
    lines.extend(
        restored.ended_processes.iter().map(|pid| format!("Ended process {pid}, which it had started.")),
    );
    let put_back = restored.settings.iter().chain(&restored.undone);
    lines.extend(put_back.map(|entry| format!("Restored: {} = {}", entry.setting, entry.was)));
    lines.extend(
        restored.jvm_logs.iter().map(|log| format!("Stopped: the log of the JVM in process {}", log.pid)),
    );
    lines.extend(
        restored.memory.iter().map(|memory| format!("Restored: the pages of process {}", memory.pid)),
    );
    if restored.purpose.is_some()
        && restored.settings.is_empty()
        && restored.changed_since.is_empty()
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
        lines.push(format!(
            "Not restored: {found}; run 'hugewise restore' in that namespace, with 'nsenter --mount --target PID'."
        ));
    }
    if let Some(who) = &restored.recording {
        lines.push(format!("A recording is running ({who}): it restores its own settings when it ends."));
    }
    if lines.is_empty() && machine::is_fully_restored(restored) {
        lines.push("Nothing to restore: no command was killed, and no changes are applied.".to_owned());
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
