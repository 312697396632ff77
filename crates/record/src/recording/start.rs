//! Attaches to a process or starts a program, so that none of its events are missed.

use std::{
    collections::HashSet,
    env,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io,
    path::Path,
    process::Child,
    thread,
    time::Duration,
};

use hugewise_changes::scratch::Scratch;
use hugewise_jvm::{
    collector::Collector,
    flags,
    jdks::{self, Environment, Jdk},
    launch::{LaunchLine, read_option_file},
    log_control,
};
use hugewise_linux::{
    interrupt::Interrupt,
    proc::process::ProcessError,
    root::Root,
    sys::{
        file,
        process::{Program, thread_id},
    },
    tracefs::TracefsError,
};

use super::{sources::Sources, threads::Threads};

/// Most passes over the threads of a process; one of a process that starts none.
const MAX_PASSES: usize = 4;
/// First JDK release with `-Xlog`.
const FIRST_JDK_WITH_XLOG: u32 = 9;

/// The process to record.
#[derive(Clone, Debug)]
pub enum Target {
    /// A running process, by PID.
    Process(u32),
    /// A program to start, with its arguments.
    Command(Vec<OsString>),
}

/// The process to record, and the file of the recording.
#[derive(Debug)]
pub struct Assignment<'a> {
    pub target: Target,
    /// File of the recording.
    pub output: &'a Path,
    /// Time limit; `None` to record until the process exits.
    pub limit: Option<Duration>,
    /// Whether a JVM may be asked to log its pauses.
    pub jvm_log: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("{0}")]
    Process(#[from] ProcessError),
    #[error("{program} could not be started: {source}")]
    Start { program: String, source: io::Error },
    #[error("the recording {file}: {source}")]
    File { file: String, source: io::Error },
    #[error("{0}")]
    Kernel(#[from] TracefsError),
}

/// The recorded process.
pub struct RecordedProcess {
    /// PID of the recorded process.
    pub pid: u32,
    /// The process, if the recorder started it.
    pub child: Option<Child>,
    /// The JVM log that an added option requested.
    pub log: Option<File>,
}

/// Starts the program, or attaches to the process: from now on its events are recorded.
pub fn begin(
    root: &Root,
    means: &mut Sources,
    assignment: &Assignment<'_>,
    scratch: Option<&Scratch>,
    interrupt: &Interrupt,
) -> Result<RecordedProcess, RecordError> {
    match &assignment.target {
        Target::Process(pid) => {
            follow_threads(&Threads::of(root, *pid), means, interrupt)?;
            Ok(RecordedProcess { pid: *pid, child: None, log: None })
        }
        Target::Command(command) => {
            let (command, log) = scratch
                .filter(|_| assignment.jvm_log)
                .and_then(|scratch| with_log(command, &scratch.path().join("jvm.log")))
                .map_or_else(|| (command.clone(), None), |(command, log)| (command, Some(log)));
            let Some((program, arguments)) = command.split_first() else {
                let source = io::Error::new(io::ErrorKind::InvalidInput, "no program was named");
                return Err(RecordError::Start { program: "nothing".to_owned(), source });
            };
            let child = start(means, program, arguments)?;
            Ok(RecordedProcess { pid: child.id(), child: Some(child), log })
        }
    }
}

/// Records the threads of a running process from now on.
///
/// A thread created in between is the child of a recorded thread, which the kernel follows, or is found by the next pass.
/// A process that always has new threads does not delay the recording: after a few passes each thread that runs was
/// started by a recorded one.
fn follow_threads(threads: &Threads, means: &Sources, interrupt: &Interrupt) -> Result<(), RecordError> {
    let Some(tracer) = &means.tracer else { return Ok(()) };
    let mut followed = HashSet::new();
    for _ in 0..MAX_PASSES {
        let now = threads.now().into_iter().map(|(_, tid)| tid);
        let new: Vec<u32> = now.filter(|tid| followed.insert(*tid)).collect();
        if new.is_empty() || interrupt.signal().is_some() {
            break;
        }
        tracer.follow(&new)?;
    }
    Ok(())
}

/// Starts a program and records its events from the first one.
fn start(means: &mut Sources, program: &OsStr, arguments: &[OsString]) -> Result<Child, RecordError> {
    let failed = |source| RecordError::Start { program: program.to_string_lossy().into_owned(), source };
    // A new thread whose children are recorded: it ends, so that no thread of the recorder is recorded.
    let starting = || {
        if let Some(tracer) = &mut means.tracer {
            tracer.follow_children_of(thread_id())?;
        }
        let mut program = Program::new(program);
        program.args(arguments);
        program.start_in_foreground().map_err(failed)
    };
    let started = thread::scope(|scope| scope.spawn(starting).join());
    started.unwrap_or_else(|_| Err(failed(io::Error::other("the starting thread panicked"))))
}

/// A java command line with an option for a log in `file`, and that file.
///
/// Command lines with a wrapper stay as they are: the wrapper may switch to a user who cannot write there,
/// and a JVM that cannot write its log does not start.
fn with_log(command: &[OsString], path: &Path) -> Option<(Vec<OsString>, File)> {
    let words: Vec<String> =
        command.iter().map(|word| word.to_str().map(str::to_owned)).collect::<Option<_>>()?;
    let line = LaunchLine::parse(&words, &read_option_file)?.ok()?;
    if !line.wrapper.is_empty() || Some(&line.java) != words.first() {
        return None;
    }
    let major = major(&line).filter(|major| *major >= FIRST_JDK_WITH_XLOG)?;
    let options = line.effective(Some(major), &|name| env::var(name).ok(), &read_option_file).ok()?;
    let is_on = |flag: &str| options.switch(flag).is_some_and(|(on, _)| on);
    let is_zgc = Collector::selected(is_on) == Some(Collector::Z);
    let log = file::create_new(path, 0o600).ok()?;
    let mut command = command.to_vec();
    command.insert(1, log_control::option(path, is_zgc).into());
    Some((command, log))
}

/// JDK release of its java: from the release file of the JDK, which is cheap, or by running it.
fn major(line: &LaunchLine) -> Option<u32> {
    let jdks = jdks::find(&Root::live(), &Environment::of_this_process());
    let java = fs::canonicalize(&line.java).ok();
    let is_it = |jdk: &&Jdk| match line.java.contains('/') {
        true => java.is_some() && fs::canonicalize(&jdk.java).ok() == java,
        false => jdk.default,
    };
    match jdks.iter().find(is_it) {
        Some(jdk) => Some(jdk.major),
        None => flags::final_flags(line).ok()?.major(),
    }
}
