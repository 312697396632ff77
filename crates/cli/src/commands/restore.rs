//! `hugewise restore`: puts back what a killed call left behind.

use std::{path::Path, process::ExitCode};

use clap::Args;
use hugewise_kernel::{
    journal::{self, Restored, STATE_DIR},
    root::Root,
    sys::process,
};

use crate::{NEGATIVE, machine, terminal::print};

/// Put the machine's settings back after a hugewise that was killed
///
/// Every command that changes a setting writes its old value into a journal first, and puts it back
/// when it ends, on Ctrl-C and on an error too. Only SIGKILL leaves a journal behind. It is safe to
/// call this at any time, and twice.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sudo hugewise restore           put everything back, and end what a killed comparison left running
  sudo hugewise restore --json    the same, for a program to read

Exit status: 0 if everything is as it was, 1 if a setting could not be put back.")]
pub struct Restore {
    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(restore: &Restore) -> anyhow::Result<ExitCode> {
    let restored = journal::restore(&Root::live(), Path::new(STATE_DIR)).map_err(|error| {
        let error = anyhow::Error::new(error);
        if process::is_root() {
            error
        } else {
            error.context("only root can put settings back: sudo hugewise restore")
        }
    })?;
    if restore.json {
        print(&(serde_json::to_string_pretty(&restored)? + "\n"))?;
    } else {
        print(&text(&restored))?;
    }
    if restored.failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("hugewise: {}", machine::failures(&restored));
    Ok(ExitCode::from(NEGATIVE))
}

fn text(restored: &Restored) -> String {
    let Some(purpose) = &restored.purpose else {
        return "Nothing to put back: no journal was left behind.\n".to_owned();
    };
    let mut lines = vec![format!("A hugewise was broken off in: {purpose}")];
    if restored.rebooted {
        lines.push("The machine was booted since; its settings went with the old boot.".to_owned());
    }
    lines.extend(
        restored.ended_processes.iter().map(|pid| format!("Ended process {pid}, which it had started.")),
    );
    lines
        .extend(restored.settings.iter().map(|entry| format!("Put back: {} = {}", entry.setting, entry.was)));
    if restored.settings.is_empty() && restored.failed.is_empty() && !restored.rebooted {
        lines.push("It had not changed any setting yet.".to_owned());
    }
    lines.push(String::new());
    lines.join("\n")
}
