//! `hugewise report`: attributes the pauses of a recording to their causes.

pub mod json;
pub mod page;
pub mod reasons;
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
    attribution::{Attribution, RecordingData, Verdict, actions},
    recording::Reader,
};

use self::{json::AttributionReport, reports::AttributedRecording};
use crate::{
    NEGATIVE,
    output::{
        file,
        standard_output::{print_json, print_styled},
        terminal::Terminal,
    },
};

/// Attribute the pauses of a recording to their causes, and list actions that avoid them
///
/// Splits each pause into compaction, reclaim, zeroing of huge pages, first touch of base pages, other
/// system time and user time of the collector's threads, and lists the application threads that waited
/// during the time to safepoint. Sources: kernel events, delay accounting, page faults, the JVM's log.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sudo hugewise record -o slow.rec -- java -Xmx4g -XX:+UseTransparentHugePages -jar app.jar
  hugewise report slow.rec
  hugewise report --html slow.html slow.rec
  hugewise report --json slow.rec | jq -r .verdict

No setting is changed. The recording may be from another machine.

Exit status: 0 the verdict is none; 1 any other verdict, also inconclusive;
2 usage error, or the file is not a recording.")]
pub struct Report {
    /// File written by 'hugewise record'
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Print verdict and pauses as JSON (schema hugewise.report/2)
    #[arg(long)]
    json: bool,

    /// Also write the result with a timeline to FILE, as a self-contained HTML page with mode 0600
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub fn run(report: &Report, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    file::check_report(report.html.as_deref())?;
    let explained = explain(&report.file)?;
    match report.json {
        true => print_json(&hugewise_linux::json::text(&AttributionReport::of(&explained))?)?,
        false => print_styled(&text::text(&explained, terminal)?, terminal)?,
    }
    file::write_report(report.html.as_deref(), || page::html(&explained), "")?;
    Ok(match explained.explanation.decision.verdict {
        Verdict::None => ExitCode::SUCCESS,
        _ => ExitCode::from(NEGATIVE),
    })
}

fn explain(file: &Path) -> anyhow::Result<AttributedRecording<'_>> {
    let reader =
        Reader::open(file).with_context(|| format!("cannot read the recording {}", file.display()))?;
    let explanation = Attribution::of(RecordingData::read(reader));
    let actions = actions::changes(&explanation).iter().map(words::action).collect();
    Ok(AttributedRecording { file, explanation, actions })
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
        assert_eq!(said, "cannot write the report /proc/no/page.html");
    }
}
