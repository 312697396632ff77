//! `hugewise gclog`: the pauses of GC logs, and those with more system time than user time.

pub mod json;
pub mod metrics;
pub mod page;
pub mod plot;
pub mod reports;
pub mod text;
pub mod words;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, ensure};
use clap::Args;
use hugewise_jvm::gc_log::{Event, Reader, sets, summary::Summary};
use hugewise_linux::sys;

use self::{json::PauseWriter, reports::Log};
use crate::{
    NEGATIVE,
    output::{
        file,
        progress::ByteProgress,
        standard_output::{JsonOutput, print, print_styled},
        terminal::Terminal,
    },
};

/// List the pauses of GC logs, and those with more system time than user time
///
/// Reads logs of JDK 8 to 25 of any size and with any decorations, also rotated, compressed by gzip,
/// truncated or damaged, in UTF-16, JSON, logfmt or CSV, with prefixes of container runtimes, syslog or
/// the journal, and with escape sequences. A log does not contain the cause of system time; the report lists actions that
/// find it.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Gclog {
    /// Logs in any order; files of one rotation are read as one log; - is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Print every pause and the totals as JSON (schema hugewise.gclog/2)
    #[arg(long, conflicts_with = "openmetrics")]
    json: bool,

    /// Print the totals as OpenMetrics text
    #[arg(long)]
    openmetrics: bool,

    /// Also write the result to FILE, as a self-contained HTML page with mode 0600
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
Examples:
  hugewise gclog gc.log
  hugewise gclog gc.log*                     read a rotated log, files in any order
  ssh web7 cat /var/log/app/gc.log | hugewise gclog -
  hugewise gclog --html pauses.html gc.log gc.log.0.gz
  hugewise gclog --json gc.log | jq '.pauses[] | select(.sys_seconds > .user_seconds)'

No setting is changed.

Exit status: 0 success; 1 there are pauses with more system time than user time, pauses that mostly
wait, or stalls of threads; 2 usage error, or no GC log could be read.";

pub fn run(gclog: &Gclog, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    gclog.check_arguments()?;
    let mut log = Log::default();
    let sets = sets::arrange(&gclog.files);
    log.files = sets.iter().flatten().map(|file| file.display().to_string()).collect();
    log.unnamed = sets.iter().flat_map(|set| unnamed(set)).collect();
    let mut rows = gclog.json.then(|| PauseWriter::new(JsonOutput::new(), &log.files));
    let mut summary = Summary::default();
    let mut broken = None;
    let mut reader = Reader::default();
    let mut take = |event: Event<'_>| {
        summary.add(&event);
        if let (Event::Pause(pause), Some(rows), None) = (&event, &mut rows, &broken) {
            broken = rows.pause(pause).err();
        }
    };
    let bar = ByteProgress::new(size(&gclog.files));
    for set in &sets {
        for file in set {
            read(file, &mut reader, &bar, &mut log.ended_early, &mut take)?;
        }
        reader.finish(&mut take);
    }
    let decoded = reader.layers();
    drop(bar);
    if let Some(error) = broken {
        return Err(error.into());
    }
    ensure!(
        reader.has_log_lines(),
        "{} has no line of a GC log; a JVM writes one with -Xlog:gc*,safepoint:file=gc.log, JDK 8 with \
         -Xloggc:gc.log -XX:+PrintGCDetails -XX:+PrintGCApplicationStoppedTime",
        log.files.join(", ")
    );
    log.jvms = reader.runs();
    log.decoded = decoded.iter().map(|layer| layer.name()).collect();
    log.summary = summary;
    match rows {
        Some(rows) => rows.end(&log)?,
        None if gclog.openmetrics => print(&metrics::openmetrics(&log)?)?,
        None => print_styled(&text::text(&log, terminal)?, terminal)?,
    }
    file::write_report(gclog.html.as_deref(), || page::html(&log), "")?;
    Ok(if log.summary.is_negative() { ExitCode::from(NEGATIVE) } else { ExitCode::SUCCESS })
}

impl Gclog {
    fn check_arguments(&self) -> anyhow::Result<()> {
        file::check_report(self.html.as_deref())?;
        // All files are checked before anything is printed.
        for file in self.files.iter().filter(|file| !is_stdin(file)) {
            let reading = || format!("cannot read the log {}", file.display());
            ensure!(!file.is_dir(), "{}: the path is a folder; give the logs in it", reading());
            // Not pipes: opening and closing a pipe would end its writer.
            if file.metadata().with_context(reading)?.is_file() {
                sys::file::open(file).with_context(reading)?;
            }
        }
        Ok(())
    }
}

/// Reads one file. If the file is truncated or damaged, the part before the damage counts.
fn read(
    file: &Path,
    reader: &mut Reader,
    bar: &ByteProgress,
    ended_early: &mut Vec<String>,
    take: &mut impl FnMut(Event<'_>),
) -> anyhow::Result<()> {
    let name = if is_stdin(file) { "standard input".to_owned() } else { file.display().to_string() };
    let input = sets::open(file).with_context(|| format!("cannot read the log {name}"))?;
    let packed = file.extension().is_some_and(|extension| extension == "gz");
    if let Err(error) = reader.read(bar.reading(input), take) {
        let damage = if packed { "the compressed file is truncated or damaged" } else { "reading failed" };
        ended_early.push(format!("{name}: {damage} ({error}); only the part before it counts"));
    }
    Ok(())
}

fn is_stdin(file: &Path) -> bool {
    file == Path::new("-")
}

/// Other files of the rotation, if only its newest file was given.
fn unnamed(set: &[PathBuf]) -> Vec<String> {
    match set {
        [only] if !is_stdin(only) => {
            sets::beside(only).iter().map(|file| file.display().to_string()).collect()
        }
        _ => Vec::new(),
    }
}

/// Total size of the files in bytes, compressed files as they are.
fn size(files: &[PathBuf]) -> u64 {
    files.iter().filter_map(|file| Some(file.metadata().ok()?.len())).sum()
}
