//! `hugewise record`: records waits for huge pages by thread, and the JVM's pauses, into a file.

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
use hugewise_linux::{json, root::Root};
use hugewise_record::recording::{self, Assignment, Header, Target};

use crate::{
    commands::record::{text as report, text::RecordReport},
    machine,
    output::{standard_error, standard_output::print_json, terminal::Terminal},
    process_argument::ProcessArgument,
};

/// Record which threads of a program wait for huge pages, and when
///
/// Writes to one file, on one clock: intervals of direct compaction and reclaim, failed huge-page
/// allocations, khugepaged events, page faults, delay accounting, counters of the machine, coverage, and the
/// pauses in the JVM's log. 'hugewise report' reads the file on any machine.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sudo hugewise record 4711                       record a running process, until it ends or Ctrl-C
  sudo hugewise record --seconds 60 4711          record it for 60 seconds
  sudo hugewise record -o slow.rec -- java -Xmx4g -XX:+UseTransparentHugePages -jar app.jar

During the recording, hugewise has its own tracing instance, sets kernel.task_delayacct to 1, and
requests a log from a JVM that writes no suitable one. All of this is undone at the end, also after
Ctrl-C and SIGTERM; after SIGKILL, 'hugewise restore' undoes it. Without root some evidence is
missing, and the output says which. Other hugewise commands can run during the recording, also those
that change settings.

Exit status: that of the started program, or 128 + signal number; for a running process 0; 2 if
nothing was recorded.")]
pub struct Record {
    /// File to write, which must not exist [default: hugewise-PID.rec, or hugewise-NAME.rec of a started
    /// program]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// End the recording after this time
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    seconds: Option<u64>,

    /// Do not request a log from a JVM; read only a log that it already writes
    #[arg(long)]
    no_jvm_log: bool,

    /// Print the summary as JSON (schema hugewise.record/2) to standard output, instead of as text to
    /// standard error
    #[arg(long)]
    json: bool,

    /// Process to record: its ID; or its unit (NAME.service), container (its ID) or control group (its path)
    #[arg(value_name = "PID", required_unless_present = "command", conflicts_with = "command")]
    pid: Option<ProcessArgument>,

    /// Program to run, with its arguments
    #[arg(last = true)]
    command: Vec<OsString>,
}

/// The error while `who` records: no setting is locked.
pub fn other_recording(who: &str) -> anyhow::Error {
    anyhow::anyhow!("another recording is running ({who}): wait until it ends")
}

pub fn run(record: &Record, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    let root = Root::live();
    let target = match &record.pid {
        Some(pid) => Target::Process(pid.process(&root)?),
        None => Target::Command(record.command.clone()),
    };
    let output = record.output.clone().unwrap_or_else(|| usual_name(&target));
    let interrupt = machine::install_signal_handlers()?;
    let mut journal = match Journal::open_recording(&root, Path::new(STATE_DIR), "record") {
        Err(JournalError::Busy(who)) => return Err(other_recording(&who)),
        Err(error) if error.is_of_another() => return Err(error.into()),
        journal => journal,
    };
    let earlier = journal.as_ref().map(|journal| journal.jvm_logs().to_vec()).unwrap_or_default();
    let assignment = Assignment {
        target,
        output: &output,
        limit: record.seconds.map(Duration::from_secs),
        jvm_log: !record.no_jvm_log,
    };
    let say = &mut |header: &Header| standard_error::print(&report::beginning(header, &output));
    let recorded = recording::record(&root, &mut journal, &assignment, &interrupt, say);
    // Settings are restored before the result is printed.
    // A JVM that has not stopped its log was asked to: it may not answer, and this command is to end.
    let mut restored = journal.map(Journal::close).unwrap_or_default();
    restored.jvm_logs_left.retain(|left| !earlier.contains(&left.log));
    let recorded = recorded?;
    if record.json {
        print_json(&json::text(&RecordReport::of(&recorded, &output))?)?;
    } else {
        standard_error::print_styled(&report::text(&recorded, &output, terminal), terminal);
    }
    machine::all_restored(&restored)?;
    // A recording that a signal ended is complete.
    Ok(recorded.status.map_or(ExitCode::SUCCESS, exit_code))
}

fn usual_name(target: &Target) -> PathBuf {
    let name = match target {
        Target::Process(pid) => pid.to_string(),
        Target::Command(command) => {
            let program = command.first().and_then(|program| Path::new(program).file_name());
            program.unwrap_or_default().to_string_lossy().into_owned()
        }
    };
    PathBuf::from(format!("hugewise-{name}.rec"))
}

/// The exit status of the started program as a shell reports it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(0);
    ExitCode::from(u8::try_from(code).unwrap_or(crate::FAILED))
}
