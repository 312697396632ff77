//! `hugewise restore`: puts back what a killed call left behind.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use hugewise_changes::{
    journal::{self, ChangedSince, JvmLog, Others, Restored, STATE_DIR},
    persisted::{self, Removed},
};
use hugewise_linux::{root::Root, sys::process};
use hugewise_record::recording;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{NEGATIVE, machine, output::terminal::print};

/// Put the machine's settings back: after a hugewise that was killed, and after 'hugewise apply'
///
/// Every command that changes a setting writes its old value into a journal first, and puts it back
/// when it ends, on Ctrl-C and on an error too. Only SIGKILL leaves a journal behind. 'hugewise apply'
/// alone leaves its changes, and this undoes them. It is safe to call this at any time, and twice.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sudo hugewise restore           put everything back, and end what a killed comparison left running
  sudo hugewise restore --json    the same, for a program to read
  sudo hugewise restore --force   put back, too, what somebody else has set since 'hugewise apply'
  sudo hugewise restore --persisted   and remove the files that set it again at boot

Exit status: 0 if everything is as it was; 1 if a setting could not be put back, or was left alone
because somebody else has changed it since; 2 if another hugewise is at work.")]
pub struct Restore {
    /// Put back what somebody else has set since 'hugewise apply', too; with --persisted, remove
    /// edited files, too
    #[arg(long)]
    force: bool,

    /// Remove the configuration files that 'hugewise apply --persist' wrote, too
    #[arg(long)]
    persisted: bool,

    /// The folder of configuration files
    #[arg(long, value_name = "DIR", default_value = "/etc", hide = true)]
    etc: PathBuf,

    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

/// What was done, of the settings and of the configuration files.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Report {
    #[serde(flatten)]
    restored: Restored,
    /// What became of the files that `apply --persist` wrote.
    persisted: Removed,
    /// Such files that are still there, and set everything again at boot.
    still_persisted: Vec<PathBuf>,
}

/// Runs the command.
pub fn run(restore: &Restore) -> anyhow::Result<ExitCode> {
    let others = if restore.force { Others::Overwrite } else { Others::Leave };
    let root = Root::live();
    let switch_off = &|log: &JvmLog| recording::switch_off(&root, log);
    let restored =
        journal::restore_with(&root, Path::new(STATE_DIR), others, switch_off).map_err(|error| {
            let error = anyhow::Error::new(error);
            if process::is_root() {
                error
            } else {
                error.context("only root can put settings back: sudo hugewise restore")
            }
        })?;
    let persisted =
        if restore.persisted { persisted::remove(&restore.etc, restore.force) } else { Removed::default() };
    let report = Report { restored, persisted, still_persisted: persisted::present(&restore.etc) };
    if restore.json {
        print(&(serde_json::to_string_pretty(&report)? + "\n"))?;
    } else {
        print(&text(&report))?;
    }
    let restored = &report.restored;
    if !machine::is_as_it_was(restored) {
        eprintln!("hugewise: {}", machine::failures(restored));
    }
    let as_it_was = machine::is_as_it_was(restored)
        && restored.changed_since.is_empty()
        && report.persisted.left.is_empty();
    Ok(if as_it_was { ExitCode::SUCCESS } else { ExitCode::from(NEGATIVE) })
}

fn text(report: &Report) -> String {
    let restored = &report.restored;
    let mut lines = Vec::new();
    if let Some(purpose) = &restored.purpose {
        lines.push(format!("A hugewise was broken off in: {purpose}"));
    }
    if restored.rebooted {
        lines.push("The machine was booted since; its settings went with the old boot.".to_owned());
    }
    lines.extend(
        restored.ended_processes.iter().map(|pid| format!("Ended process {pid}, which it had started.")),
    );
    let put_back = restored.settings.iter().chain(&restored.undone);
    lines.extend(put_back.map(|entry| format!("Put back: {} = {}", entry.setting, entry.was)));
    lines.extend(
        restored
            .jvm_logs
            .iter()
            .map(|log| format!("Off: the log that the JVM in process {} was asked to write", log.pid)),
    );
    if restored.purpose.is_some()
        && restored.settings.is_empty()
        && restored.jvm_logs.is_empty()
        && machine::is_as_it_was(restored)
        && !restored.rebooted
    {
        lines.push("It had not changed any setting yet.".to_owned());
    }
    lines.extend(restored.changed_since.iter().map(left_alone));
    if let Some(who) = &restored.recording {
        lines.push(format!("A recording runs ({who}): it puts back by itself what it switched on."));
    }
    if lines.is_empty() && machine::is_as_it_was(restored) {
        lines.push("Nothing to put back: no journal was left behind, and nothing is applied.".to_owned());
    }
    lines.extend(report.persisted.files.iter().map(|file| format!("Removed: {}", file.display())));
    lines.extend(
        report
            .persisted
            .left
            .iter()
            .map(|(file, reason)| format!("Not removed: {}: {reason}", file.display())),
    );
    if report.persisted.left.is_empty() {
        lines.extend(report.still_persisted.iter().map(|file| {
            format!(
                "Still there, for the next boot: {}; 'hugewise restore --persisted' removes it",
                file.display()
            )
        }));
    }
    lines.push(String::new());
    lines.join("\n")
}

fn left_alone(since: &ChangedSince) -> String {
    let entry = &since.kept.entry;
    format!(
        "Left alone: {setting} is {reads}, and apply left it at {now}: somebody else changed it since. It was {was} \
         before; 'hugewise restore --force' puts that back.",
        setting = entry.setting,
        reads = since.reads,
        now = since.kept.now,
        was = entry.was,
    )
}
