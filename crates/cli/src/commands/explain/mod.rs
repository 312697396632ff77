//! `hugewise explain`: explains the messages about large pages in a log.

pub mod text;

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use clap::Args;
use hugewise_linux::{
    facts::Facts,
    hugepages::contiguity::Scan,
    json,
    proc::process::{self, Process},
    root::Root,
    sys::file,
};
use hugewise_texts::{
    decoder,
    messages::{self, Identity, ScannedLog},
};

use crate::{
    NEGATIVE,
    commands::{
        explain::text::{ExplainReport, text},
        plan::{self, PlanOptions},
    },
    machine,
    output::{
        standard_output::{print_json, print_styled},
        terminal::Terminal,
    },
};

/// Explain messages of programs and the kernel about huge pages: cause, evidence, actions
///
/// Reads a log of any size: the output of a JVM, a database or another program, a GC log, an hs_err
/// file, dmesg or journalctl. Equal messages are explained once. The evidence is in the text; readings of this machine count
/// only if the text names its host and boot, or with --root.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Explain {
    /// Log to read; - is standard input
    #[arg(required_unless_present = "text")]
    file: Option<PathBuf>,

    /// Command line of the JVM that printed the log: plans the pages that it needs
    #[arg(last = true)]
    command: Vec<String>,

    /// Explain this message
    #[arg(long, value_name = "MESSAGE", conflicts_with = "file")]
    text: Option<String>,

    /// The log is of the machine whose files 'hugewise check --capture DIR' captured; / is this machine
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// Print JSON (schema hugewise.explain/2)
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Examples:
  hugewise explain gc.log
  java -XX:+UseLargePages -Xmx4g -version 2>&1 | hugewise explain -
  dmesg | hugewise explain -
  zcat gc.log.3.gz | hugewise explain -
  hugewise explain --text 'Failed to reserve shared memory (errno = 1).'
  hugewise explain gc.log -- java -Xmx4g -jar app.jar      with the pages that this JVM needs
  hugewise explain --root web7 web7.log      a log of another machine, with evidence captured there

No setting is changed.

Exit status: 0 no message reports a failure; 1 a program did not get huge pages, did not start, was
ended or warns, or a line about huge pages is not known here; 2 usage error, or a part of the log
could not be read.";

/// Exit status if no message reports a failure, and a part of the log was not read.
const INCOMPLETE: u8 = 2;

pub fn run(explain: &Explain, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    let root = machine::root(explain.root.as_deref())?;
    let scanned = explain.scan()?;
    let machine = explain.root.is_none().then(|| Identity::read(&root));
    let planned = (!explain.command.is_empty())
        .then(|| plan::make(&root, &PlanOptions::default(), &explain.command))
        .transpose()?;
    let planned = planned.as_ref().map(|plan| plan.actions.as_slice());
    let captured = explain.root.as_ref().and_then(|_| captured_command(&root)).unwrap_or_default();
    let command = if explain.command.is_empty() { &captured } else { &explain.command };
    let first = Facts::gather(&root, Scan::Never);
    let mut context = messages::Context { facts: &first, machine: machine.as_ref(), command, planned };
    let scanned_pages;
    if messages::needs_scan(&scanned, &context) {
        scanned_pages = Facts::gather(&root, Scan::IfQuick);
        context.facts = &scanned_pages;
    }
    let report = ExplainReport::new(&scanned, messages::explain(&scanned, &context));
    match explain.json {
        true => print_json(&json::text(&report)?)?,
        false => print_styled(&text(&report, terminal)?, terminal)?,
    }
    Ok(if report.is_negative() {
        ExitCode::from(NEGATIVE)
    } else if report.is_incomplete() {
        ExitCode::from(INCOMPLETE)
    } else {
        ExitCode::SUCCESS
    })
}

/// The command line of the process that a capture has taken along; `None` if it has none, or several.
fn captured_command(root: &Root) -> Option<Vec<String>> {
    let pids = process::all(root).ok().filter(|_| !root.is_live())?;
    let [pid] = pids[..] else { return None };
    Process::read(root, pid).ok().map(|process| process.command)
}

impl Explain {
    fn scan(&self) -> anyhow::Result<ScannedLog> {
        if let Some(text) = &self.text {
            return Ok(messages::scan(text.as_bytes())?);
        }
        let Some(file) = self.file.as_deref().filter(|file| *file != Path::new("-")) else {
            return scan(io::stdin().lock()).context("cannot read standard input");
        };
        let reading = || format!("cannot read the log {}", file.display());
        scan(file::open_named(file).with_context(reading)?).with_context(reading)
    }
}

/// Scans a log, which may be compressed.
fn scan(log: impl Read) -> anyhow::Result<ScannedLog> {
    Ok(messages::scan(decoder::open(log)?)?)
}
