//! `hugewise record`: what the kernel and a JVM did, by thread and by time, in a file.

pub mod text;

use std::{
    ffi::OsString,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{ExitCode, ExitStatus},
    time::Duration,
};

use clap::Args;
use hugewise_changes::journal::{Journal, JournalError, STATE_DIR};
use hugewise_linux::{interrupt::Interrupt, root::Root};
use hugewise_record::recording::{self, Assignment, EndReason, Header, Target};

use crate::{
    commands::record::{text as report, text::Report},
    machine,
    output::terminal::{Terminal, print},
};

/// Record what makes a program wait for huge pages: by thread, into one file
///
/// Direct compaction and reclaim from begin to end, huge pages that could not be had, khugepaged, page
/// faults, delay accounting, counters of the machine, coverage, and the JVM's log of its pauses: all on
/// one clock. The file can be carried away.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sudo hugewise record 4711                       a process that runs, until it ends or Ctrl-C
  sudo hugewise record --seconds 60 4711          for a minute
  sudo hugewise record -o slow.rec -- java -Xmx4g -XX:+UseTransparentHugePages -jar app.jar

For the time of the recording there is a tracing instance of its own, and kernel.task_delayacct is 1; a
JVM that writes no log is asked to. Other commands may change settings meanwhile. All of it is taken back at the end, on Ctrl-C and SIGTERM too, and
after SIGKILL by 'hugewise restore'. Without root the evidence is weaker, and says so.

Exit status: that of the program that was started, 128 and the signal if one ended it; otherwise 0; 2
where nothing was recorded.")]
pub struct Record {
    /// The file; it must not exist. By default hugewise-PID.rec, or hugewise-NAME.rec of what is started
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// End after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    seconds: Option<u64>,

    /// Do not ask a JVM for a log of its pauses: only one that it writes by itself is read
    #[arg(long)]
    no_jvm_log: bool,

    /// Print the summary as JSON (schema hugewise.record/1) on standard output, and not for people on
    /// standard error
    #[arg(long)]
    json: bool,

    /// Number of the process
    #[arg(value_name = "PID", required_unless_present = "command", conflicts_with = "command")]
    pid: Option<u32>,

    /// The program to be started, and its arguments
    #[arg(last = true)]
    command: Vec<OsString>,
}

/// Runs the command.
pub fn run(record: &Record, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    let root = Root::live();
    let target = match record.pid {
        Some(pid) => Target::Process(pid),
        None => Target::Command(record.command.clone()),
    };
    let output = record.output.clone().unwrap_or_else(|| usual_name(&target));
    let interrupt = machine::watch()?;
    let mut journal = match Journal::open_recording(&root, Path::new(STATE_DIR), "record") {
        Err(error @ (JournalError::Busy(_) | JournalError::Unfinished(_))) => return Err(error.into()),
        journal => journal,
    };
    let assignment = Assignment {
        target,
        output: &output,
        limit: record.seconds.map(Duration::from_secs),
        jvm_log: !record.no_jvm_log,
    };
    let say = &mut |header: &Header| eprint!("{}", report::beginning(header, &output));
    let recorded = recording::record(&root, &mut journal, &assignment, &interrupt, say);
    // Put back before anything is said of the result.
    let restored = journal.map(Journal::close).unwrap_or_default();
    let recorded = recorded?;
    if record.json {
        print(&(serde_json::to_string_pretty(&Report::of(&recorded, &output))? + "\n"))?;
    } else {
        eprint!("{}", report::text(&recorded, &output, terminal));
    }
    anyhow::ensure!(machine::is_as_it_was(&restored), "{}", machine::failures(&restored));
    Ok(status(recorded.status, recorded.reason, &interrupt))
}

fn usual_name(target: &Target) -> PathBuf {
    let name = match target {
        Target::Process(pid) => pid.to_string(),
        Target::Command(command) => command
            .first()
            .and_then(|program| Path::new(program).file_name())
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
    };
    PathBuf::from(format!("hugewise-{name}.rec"))
}

/// That of the program, as a shell would show it; a recording that a signal ended is whole, and fine.
fn status(status: Option<ExitStatus>, reason: EndReason, interrupt: &Interrupt) -> ExitCode {
    let code = match (status, reason, interrupt.signal()) {
        (Some(status), _, _) => status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(0),
        (None, _, _) => 0,
    };
    ExitCode::from(u8::try_from(code).unwrap_or(crate::FAILED))
}
