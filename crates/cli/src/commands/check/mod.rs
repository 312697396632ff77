//! `hugewise check`: what this machine offers, and what is wrong with it.

pub mod text;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::{Context, ensure};
use clap::Args;
use hugewise_jvm::jdks::{self, Environment};
use hugewise_linux::{facts::Facts, hugepages::contiguity::Scan, root::Root};
use hugewise_plan::findings::{Severity, findings};

use crate::{
    NEGATIVE,
    commands::check::text::{Report, text},
    output::terminal::Terminal,
};

/// What this machine offers in huge pages, and what stands in the way
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Check {
    /// Print JSON (schema hugewise.check/1)
    #[arg(long)]
    json: bool,

    /// Check a captured tree of another machine
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// Write the files that were read into DIR, which must be empty or not exist yet
    #[arg(long, value_name = "DIR")]
    capture: Option<PathBuf>,

    /// Look at every page frame, however long it takes (above 256GiB of memory)
    #[arg(long)]
    deep: bool,
}

const AFTER_HELP: &str = "\
Examples:
  hugewise check                        this machine, as the caller may use it
  sudo hugewise check                   and how many 1GiB pages could be had
  hugewise check --json | jq .findings
  hugewise check --capture web7         write what was read into web7/
  hugewise check --root web7            check it again, on any machine

Nothing is changed on the machine.

Exit status: 0 no problem found; 1 a finding is a problem; 2 wrong usage, or nothing could be read.";

/// Runs the command.
pub fn run(check: &Check, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    let root = match &check.root {
        Some(dir) => {
            ensure!(dir.is_dir(), "{}: there is no such folder; --capture DIR makes one", dir.display());
            Root::at(dir)
        }
        None => Root::live(),
    };
    let root = if check.capture.is_some() { root.recording() } else { root };
    let scan = if check.deep { Scan::Deep } else { Scan::IfQuick };

    let facts = Facts::gather(&root, scan);
    let jdks = jdks::find(&root, &Environment::of_this_process());
    ensure!(
        facts.any_known(),
        "nothing of {} could be read: {}",
        root.path("").display(),
        facts.meminfo.total.reason().unwrap_or_default()
    );
    if let Some(dir) = &check.capture {
        let tape = root.recorded();
        tape.write(dir).with_context(|| format!("cannot capture into {}", dir.display()))?;
        eprintln!("hugewise: {} files written into {}", tape.len(), dir.display());
    }

    let findings = findings(&facts, &jdks);
    let negative = findings.iter().any(|finding| finding.severity == Severity::Problem);
    let report = Report::new(facts, jdks, findings);
    let shown =
        if check.json { serde_json::to_string_pretty(&report)? + "\n" } else { text(&report, terminal)? };
    io::stdout().lock().write_all(shown.as_bytes())?;
    Ok(if negative { ExitCode::from(NEGATIVE) } else { ExitCode::SUCCESS })
}
