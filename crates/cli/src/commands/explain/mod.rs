//! `hugewise explain`: what the messages in a log about large pages mean.

pub mod text;

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail, ensure};
use clap::Args;
use hugewise_jvm::messages::{self, Scanned};
use hugewise_linux::{facts::Facts, hugepages::contiguity::Scan, root::Root};

use crate::{
    NEGATIVE,
    commands::explain::text::{Report, text},
    output::terminal::{Terminal, print},
};

/// What a JVM's and the kernel's messages about large pages mean: cause, evidence, fix
///
/// Reads a log of any size: a JVM's output, a GC log, hs_err files, dmesg or journalctl. Equal
/// messages are told once. The evidence is this machine's, as it is now.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Explain {
    /// The log; - is standard input
    #[arg(required_unless_present = "text")]
    file: Option<PathBuf>,

    /// Explain this message
    #[arg(long, value_name = "MESSAGE", conflicts_with = "file")]
    text: Option<String>,

    /// Take the evidence from a captured tree of another machine (hugewise check --capture DIR)
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// Print JSON (schema hugewise.explain/1)
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
  hugewise explain --root web7 web7.log      the log of another machine, with its evidence

Nothing is changed on the machine.

Exit status: 0 no message says that something failed; 1 a program did not get its huge pages, or was
stopped; 2 wrong usage, or the log could not be read.";

/// What compressed files begin with, and what reads them.
const COMPRESSED: [(&[u8], &str); 4] =
    [(b"\x1f\x8b", "zcat"), (b"\x28\xb5\x2f\xfd", "zstdcat"), (b"\xfd7zXZ", "xzcat"), (b"BZh", "bzcat")];

/// Runs the command.
pub fn run(explain: &Explain, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    let root = match &explain.root {
        Some(dir) => {
            ensure!(
                dir.is_dir(),
                "{}: there is no such folder; check --capture DIR makes one",
                dir.display()
            );
            Root::at(dir)
        }
        None => Root::live(),
    };
    let scanned = explain.scan()?;
    let facts = Facts::gather(&root, Scan::IfQuick);
    let report = Report::new(&scanned, messages::explain(&scanned.found, &facts));
    print(&if explain.json {
        serde_json::to_string_pretty(&report)? + "\n"
    } else {
        text(&report, terminal)?
    })?;
    Ok(if report.is_negative() { ExitCode::from(NEGATIVE) } else { ExitCode::SUCCESS })
}

impl Explain {
    fn scan(&self) -> anyhow::Result<Scanned> {
        if let Some(text) = &self.text {
            return Ok(messages::scan(text.as_bytes())?);
        }
        match self.file.as_deref() {
            Some(file) if file != Path::new("-") => {
                let reading = || format!("reading the log {}", file.display());
                let log = File::open(file).with_context(reading)?;
                scan_plain(BufReader::with_capacity(1 << 16, log), &file.display().to_string())
                    .with_context(reading)
            }
            _ => scan_plain(io::stdin().lock(), "-").context("reading standard input"),
        }
    }
}

/// Scans a log that is not compressed.
fn scan_plain(mut log: impl BufRead, name: &str) -> anyhow::Result<Scanned> {
    let beginning = log.fill_buf()?;
    if let Some((_, cat)) = COMPRESSED.iter().find(|(magic, _)| beginning.starts_with(magic)) {
        bail!(
            "it is compressed; try: {cat} {} | hugewise explain -",
            if name == "-" { "FILE" } else { name }
        );
    }
    Ok(messages::scan(log)?)
}
