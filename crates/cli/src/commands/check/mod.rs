//! `hugewise check`: the huge pages of this machine, and findings on them.

mod process;
pub mod text;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, ensure};
use clap::Args;
use hugewise_jvm::jdks::{self, Environment};
use hugewise_linux::{facts::Facts, hugepages::contiguity::Scan, json, reading::Reading};
use hugewise_plan::findings::{Severity, findings};
use hugewise_texts::secrets;

use crate::{
    NEGATIVE,
    commands::check::text::{CheckReport, text},
    machine,
    output::{
        standard_error,
        standard_output::{print_json, print_styled},
        terminal::Terminal,
    },
    process_argument::ProcessArgument,
    random_read,
};

/// Show the huge pages that this machine offers, and problems that prevent their use
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Check {
    /// Print JSON (schema hugewise.check/2)
    #[arg(long)]
    json: bool,

    /// Check the files in DIR, captured on another machine, instead of this machine
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// Also copy the check's input files to DIR, which must be empty or not exist
    #[arg(long, value_name = "DIR")]
    capture: Option<PathBuf>,

    /// Also copy what explains the memory of a process: mappings, limits, control group, command line, and the ends of the
    /// logs that it has open; without secrets. Only the owner of DIR can read it
    #[arg(long, value_name = "PID", requires = "capture")]
    pid: Option<ProcessArgument>,

    /// Also measure how much less time random reads take on THP (some 10 s; the result is kept until the
    /// machine reboots), and count available 1GiB pages on a machine with more than 256GiB of memory
    #[arg(long)]
    deep: bool,
}

const AFTER_HELP: &str = "\
Examples:
  hugewise check                        check this machine
  sudo hugewise check                   also count the available 1GiB pages
  sudo hugewise check --deep            also measure random reads
  hugewise check --json | jq .findings  print the findings as JSON
  hugewise check --capture web7         also copy the check's input files to web7/
  hugewise check --root web7            check these files, on any machine
  sudo hugewise check --capture web7 --pid 4711
                                        with a process: hugewise inspect --root web7 4711

No setting is changed.

Exit status: 0 no problem found; 1 a finding is a problem; 2 usage error, or nothing could be read;
128 + signal number if --deep is interrupted.";

pub fn run(check: &Check, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    let root = machine::root(check.root.as_deref())?;
    let root = if check.capture.is_some() { root.recording() } else { root };
    let pid = check.pid.as_ref().map(|pid| pid.process(&root)).transpose()?;
    let root = pid.map_or(root.clone(), |pid| root.in_place_of_this(pid));
    let scan = if check.deep { Scan::Deep } else { Scan::IfQuick };

    let facts = Facts::gather(&root, scan);
    let jdks = jdks::find(&root, &Environment::of_this_process());
    ensure!(
        facts.any_known(),
        "nothing in {} could be read: {}",
        root.path("").display(),
        facts.meminfo.total.reason().unwrap_or_default()
    );
    if let Some(dir) = &check.capture {
        let mut tape = match pid {
            Some(pid) => process::captured(&root, pid)?,
            None => root.recorded(),
        };
        // Units and scripts can contain passwords.
        tape.edit(
            |path| !path.starts_with("proc") && !path.starts_with("sys"),
            |content| secrets::without_in_file(&String::from_utf8_lossy(content)).into_bytes(),
        );
        tape.write(dir, pid.is_some())
            .with_context(|| format!("cannot copy the files to {}", dir.display()))?;
        standard_error::say(format_args!("{} files copied to {}", tape.len(), dir.display()));
    }

    let random_read = if check.root.is_some() {
        None
    } else if check.deep {
        let interrupt = machine::install_signal_handlers()?;
        let random_read = random_read::measured(&root, &interrupt);
        if interrupt.signal().is_some() {
            return Ok(machine::after_signal(&interrupt));
        }
        Some(random_read)
    } else {
        random_read::known(&root).map(Reading::Known)
    };
    let findings = findings(&facts, &jdks);
    let negative = findings.iter().any(|finding| finding.severity == Severity::Problem);
    let report = CheckReport { schema: "hugewise.check/2", facts, jdks, random_read, findings };
    match check.json {
        true => print_json(&json::text(&report)?)?,
        false => print_styled(&text(&report, terminal)?, terminal)?,
    }
    Ok(if negative { ExitCode::from(NEGATIVE) } else { ExitCode::SUCCESS })
}
