//! `hugewise report`: where the time of a recording's pauses went, and why.

pub mod json;
pub mod page;
pub mod reports;
pub mod text;
pub mod words;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use clap::Args;
use hugewise_record::{
    attribution::{Explanation, Gathered, Verdict, actions},
    recording::Reader,
};

use self::{json::Report as Json, reports::Explained};
use crate::{
    NEGATIVE,
    output::{
        file,
        terminal::{Terminal, print},
    },
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
  hugewise report --html slow.html slow.rec
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

    /// Write the result with a timeline as one self-contained page, too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Runs the command.
pub fn run(report: &Report, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    if let Some(html) = &report.html {
        file::can_be_written(html)
            .with_context(|| format!("the report {} cannot be written", html.display()))?;
    }
    let explained = explain(&report.file)?;
    match report.json {
        true => print(&(serde_json::to_string_pretty(&Json::of(&explained))? + "\n"))?,
        false => print(&text::text(&explained, terminal)?)?,
    }
    if let Some(html) = &report.html {
        file::write(html, &page::html(&explained)?)
            .with_context(|| format!("writing the report {}", html.display()))?;
        eprintln!("hugewise: wrote {}", html.display());
    }
    Ok(match explained.explanation.decision.verdict {
        Verdict::None => ExitCode::SUCCESS,
        _ => ExitCode::from(NEGATIVE),
    })
}

fn explain(file: &Path) -> anyhow::Result<Explained<'_>> {
    let reader = Reader::open(file).with_context(|| format!("reading the recording {}", file.display()))?;
    let explanation = Explanation::of(Gathered::read(reader));
    let changes = actions::changes(&explanation);
    Ok(Explained { file, explanation, changes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::terminal::Color;

    #[test]
    fn a_page_that_cannot_be_written_is_refused_before_the_recording_is_read() {
        let html = Some("/proc/no/page.html".into());
        let report = Report { file: "/no/such.rec".into(), json: false, html };
        let refused = run(&report, &Terminal::new(Color::Never));
        let said = refused.map_or_else(|error| error.to_string(), |_| "it ran".to_owned());
        assert_eq!(said, "the report /proc/no/page.html cannot be written");
    }
}
