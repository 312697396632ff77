//! `hugewise gclog`: the pauses of garbage collection logs, and which of them the kernel took part in.

pub mod json;
pub mod metrics;
pub mod page;
pub mod plot;
pub mod reports;
pub mod text;
pub mod words;

use std::{
    fs::File,
    io::{self, BufWriter, Read, stdout},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, ensure};
use clap::Args;
use hugewise_jvm::gc_log::{Event, Reader, sets, summary::Summary};

use self::{json::Rows, reports::Log};
use crate::{
    NEGATIVE,
    output::{
        file,
        progress::Amount,
        terminal::{Terminal, print},
    },
};

/// The pauses of garbage collection logs, and in which of them the kernel worked more than the collector
///
/// Reads what JDK 8 to 25 write, with any decorations, of any size, also in rotations, packed by gzip,
/// cut off or damaged. A log alone does not tell why the kernel worked; the report says what to look at.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Gclog {
    /// Logs, in any order; files of one rotation are read as one log; - is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Print every pause and the sums as JSON (schema hugewise.gclog/1)
    #[arg(long, conflicts_with = "openmetrics")]
    json: bool,

    /// Print the sums as OpenMetrics text
    #[arg(long)]
    openmetrics: bool,

    /// Write the result as one self-contained page, too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
Examples:
  hugewise gclog gc.log
  hugewise gclog gc.log*                     a rotation, whatever the order of its files
  ssh web7 cat /var/log/app/gc.log | hugewise gclog -
  hugewise gclog --html pauses.html gc.log gc.log.0.gz
  hugewise gclog --json gc.log | jq '.pauses[] | select(.sys_s > .user_s)'

Nothing is changed on the machine.

Exit status: 0 read; 1 there are pauses in which the kernel worked more than the collector; 2 wrong
usage, or there is no garbage collection log to be read.";

/// Runs the command.
pub fn run(gclog: &Gclog, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    gclog.refuse_impossible()?;
    let mut log = Log::default();
    let sets = sets::arrange(&gclog.files);
    log.files = sets.iter().flatten().map(|file| file.display().to_string()).collect();
    log.unnamed = sets.iter().flat_map(|set| unnamed(set)).collect();
    let out = stdout().lock();
    let mut rows = gclog.json.then(|| Rows::new(BufWriter::new(out), &log.files));
    let mut summary = Summary::default();
    let mut broken = None;
    let mut reader = Reader::default();
    let mut take = |event: Event<'_>| {
        summary.add(&event);
        if let (Event::Pause(pause), Some(rows), None) = (&event, &mut rows, &broken) {
            broken = rows.pause(pause).err();
        }
    };
    let mut bar = Amount::new(size(&gclog.files));
    for set in &sets {
        for file in set {
            read(file, &mut reader, &mut bar, &mut log.ended_early, &mut take)?;
        }
        reader.finish(&mut take);
    }
    drop(bar);
    if let Some(error) = broken {
        return Err(error.into());
    }
    ensure!(
        reader.knows_log(),
        "no line of {} is of a garbage collection log; a JVM writes one with -Xlog:gc*,safepoint:file=gc.log, \
         JDK 8 with -Xloggc:gc.log -XX:+PrintGCDetails -XX:+PrintGCApplicationStoppedTime",
        log.files.join(", ")
    );
    log.jvms = reader.runs();
    log.summary = summary;
    match rows {
        Some(rows) => rows.end(&log)?,
        None if gclog.openmetrics => print(&metrics::openmetrics(&log)?)?,
        None => print(&text::text(&log, terminal)?)?,
    }
    if let Some(file) = &gclog.html {
        file::write(file, &page::html(&log)?)
            .with_context(|| format!("writing the report {}", file.display()))?;
        eprintln!("hugewise: wrote {}", file.display());
    }
    Ok(if log.summary.suspects.count > 0 { ExitCode::from(NEGATIVE) } else { ExitCode::SUCCESS })
}

impl Gclog {
    fn refuse_impossible(&self) -> anyhow::Result<()> {
        if let Some(html) = &self.html {
            file::can_be_written(html)
                .with_context(|| format!("the report {} cannot be written", html.display()))?;
        }
        // Before anything is printed.
        for file in self.files.iter().filter(|file| !is_stdin(file)) {
            let reading = || format!("reading the log {}", file.display());
            ensure!(!file.is_dir(), "{}: it is a folder; name the logs in it", reading());
            // A pipe that is opened and closed would end its writer.
            if file.metadata().with_context(reading)?.is_file() {
                File::open(file).with_context(reading)?;
            }
        }
        Ok(())
    }
}

/// Reads one file. Where it ends too early, what came before counts.
fn read(
    file: &Path,
    reader: &mut Reader,
    bar: &mut Amount,
    ended_early: &mut Vec<String>,
    take: &mut impl FnMut(Event<'_>),
) -> anyhow::Result<()> {
    let name = if is_stdin(file) { "standard input".to_owned() } else { file.display().to_string() };
    let input = sets::open(file).with_context(|| format!("reading the log {name}"))?;
    let packed = file.extension().is_some_and(|extension| extension == "gz");
    let counted = Counted { input, bar };
    if let Err(error) = reader.read(counted, take) {
        let damage = if packed { "the packed file is cut off or damaged" } else { "it could not be read on" };
        ended_early.push(format!("{name}: {damage} ({error}); what came before counts"));
    }
    Ok(())
}

/// Shows how far reading has come.
struct Counted<'a, R> {
    input: R,
    bar: &'a mut Amount,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(into)?;
        self.bar.more(read as u64);
        Ok(read)
    }
}

fn is_stdin(file: &Path) -> bool {
    file == Path::new("-")
}

/// Files of the same rotation that were not named, where only the newest was.
fn unnamed(set: &[PathBuf]) -> Vec<String> {
    match set {
        [only] if !is_stdin(only) => {
            sets::beside(only).iter().map(|file| file.display().to_string()).collect()
        }
        _ => Vec::new(),
    }
}

/// What there is to read; packed files count by what they take.
fn size(files: &[PathBuf]) -> u64 {
    files.iter().filter_map(|file| Some(file.metadata().ok()?.len())).sum()
}
