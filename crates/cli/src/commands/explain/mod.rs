//! `hugewise explain`: explains the messages about large pages in a log.

pub mod text;

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use clap::Args;
use hugewise_linux::{facts::Facts, hugepages::contiguity::Scan, json, sys::file};
use hugewise_texts::{
    decoder,
    messages::{self, ScannedLog},
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
/// file, dmesg or journalctl. Equal messages are explained once. The evidence is the present state of this machine.
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

    /// Take the evidence from files captured on another machine with 'hugewise check --capture DIR'
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
    let mut facts = Facts::gather(&root, Scan::Never);
    if messages::needs_scan(&scanned, &facts) {
        facts = Facts::gather(&root, Scan::IfQuick);
    }
    let planned = (!explain.command.is_empty())
        .then(|| plan::make(&root, &PlanOptions::default(), &explain.command))
        .transpose()?;
    let planned = planned.as_ref().map(|plan| plan.actions.as_slice());
    let report = ExplainReport::new(&scanned, messages::explain(&scanned, &facts, planned));
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
