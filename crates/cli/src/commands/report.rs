//! `hugewise report`: where the time of a recording's pauses went, and why.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use clap::Args;
use hugewise_measure::{
    pauses::{Explanation, Gathered, Verdict, advice},
    recording::Reader,
};

use crate::{
    NEGATIVE,
    report::pauses::{self, Explained, Report as Json},
    terminal::{Terminal, print},
};

/// Where the time of a recording's pauses went, why, and what would have avoided it
///
/// Each pause is split into compaction, reclaim, zeroing of huge pages, first touch of base pages, other
/// system time and user time, by what the kernel did in the collector's threads meanwhile; and the wait
/// for the safepoint by what the application's threads did. The verdict is drawn from that alone.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sudo hugewise record -o slow.rec -- java -Xmx4g -XX:+UseTransparentHugePages -jar app.jar
  hugewise report slow.rec
  hugewise report --json slow.rec | jq -r .verdict

Nothing is changed on the machine, and the recording may be of another one.

Exit status: 0 the kernel had no part in the pauses that matters; 1 it had, or that could not be told; 2
wrong usage, or the file is no recording.")]
pub struct Report {
    /// What 'hugewise record' wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Print the verdict and every pause as JSON (schema hugewise.report/1)
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(report: &Report, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    let explained = explain(&report.file)?;
    match report.json {
        true => print(&(serde_json::to_string_pretty(&Json::of(&explained))? + "\n"))?,
        false => print(&pauses::text(&explained, terminal)?)?,
    }
    Ok(match explained.explanation.decision.verdict {
        Verdict::None => ExitCode::SUCCESS,
        _ => ExitCode::from(NEGATIVE),
    })
}

fn explain(file: &Path) -> anyhow::Result<Explained<'_>> {
    let reader = Reader::open(file).with_context(|| format!("reading the recording {}", file.display()))?;
    let explanation = Explanation::of(Gathered::read(reader));
    let changes = advice::changes(&explanation);
    Ok(Explained { file, explanation, changes })
}
