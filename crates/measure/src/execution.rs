//! Runs a program once, samples it, and terminates it on a timeout or a signal.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, ErrorKind, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use hugewise_evidence::observation::Observer;
use hugewise_linux::{
    interrupt::Interrupt,
    proc::limits::{self, Capabilities},
    root::Root,
    sys::{
        exit_stop, file,
        process::{ChildExit, GroupLeader, Program, monotonic_ns},
    },
    users::Account,
};
use serde::Serialize;

/// Time between SIGTERM and SIGKILL.
const SIGTERM_GRACE: Duration = Duration::from_secs(3);
/// Largest part of each output of a program that is searched for figures, in bytes.
const MAX_OUTPUT_BYTES: u64 = 64 << 20;

/// Name of the file with the standard output of a run.
const STDOUT: &str = "stdout";

/// How to start a program on a backing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Environment variables to set, or to remove if `None`.
    pub environment: Vec<(String, Option<OsString>)>,
    /// Whether THP is disabled for the process.
    pub thp_disabled: bool,
    /// User as whom it starts; `None` for the present one.
    pub user: Option<Account>,
}

impl Launch {
    /// A program that is not measured, with the present environment.
    pub(crate) fn aside(command: &[String], user: Option<Account>) -> Launch {
        Launch { command: command.iter().map(OsString::from).collect(), user, ..Launch::default() }
    }

    /// A measuring process of this program, which gets its work as JSON.
    pub(crate) fn worker(program: &Path, subcommand: &str, work: &impl Serialize) -> Launch {
        let work = serde_json::to_value(work).unwrap_or_default().to_string();
        let command = vec![program.into(), "bench".into(), subcommand.into(), work.into()];
        Launch { command, ..Launch::default() }
    }

    /// Starts the program in a process group of its own.
    pub(crate) fn start(
        &self,
        stdin: Stdio,
        stdout: Stdio,
        stderr: Stdio,
    ) -> Result<GroupLeader, ExecutionError> {
        let failed = |source| ExecutionError::Start { program: self.name(), source };
        let Some((program, arguments)) = self.command.split_first() else {
            return Err(failed(io::Error::new(ErrorKind::InvalidInput, "no program was named")));
        };
        let mut command = Program::new(program);
        command.args(arguments).stdin(stdin).stdout(stdout).stderr(stderr);
        command.thp_disabled(self.thp_disabled);
        self.set_environment(&mut command);
        if let Some(user) = &self.user {
            command.as_user(user);
        }
        command.start().map_err(failed)
    }

    /// The program, for messages.
    pub(crate) fn name(&self) -> String {
        self.command.first().map_or_else(|| "nothing".to_owned(), |name| name.to_string_lossy().into_owned())
    }

    /// Sets and removes the environment variables of `command`.
    pub(crate) fn set_environment(&self, command: &mut Program) {
        for (variable, value) in &self.environment {
            match value {
                Some(value) => command.env(variable, value),
                None => command.env_remove(variable),
            };
        }
    }
}

/// A finished run.
#[derive(Debug)]
pub struct Execution {
    /// Start, in nanoseconds of CLOCK_MONOTONIC.
    pub started_ns: u64,
    /// Wall-clock time without the samples before its exit; of a command in turns, the time in which it was
    /// not stopped.
    pub wall: Duration,
    /// Exit status and resource usage, including children.
    pub ended: ChildExit,
    /// Standard output, followed by standard error.
    pub output: String,
}

impl Execution {
    /// The exit status and the end of the output of a program that failed; `None` if it succeeded.
    pub fn failure(&self) -> Option<String> {
        let status = self.ended.status;
        (!status.success()).then(|| format!("{status}{}", last_lines(&self.output)))
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ExecutionError {
    #[error("{program} could not be started: {source}")]
    Start { program: String, source: io::Error },
    #[error("it ran longer than {} s (--timeout, or the limit of the measurement) and was terminated{}", limit.as_secs_f64(), last_lines(output))]
    TimedOut {
        limit: Duration,
        /// Output up to the timeout.
        output: String,
    },
    #[error("interrupted")]
    Interrupted,
    #[error("the time limit of the experiment ended it")]
    OutOfTime,
    /// The program ended with an error status, or its report cannot be read.
    #[error("{0}")]
    Failed(String),
    /// A file of this process, or a wait for the program, failed.
    #[error("running {program}: {source}")]
    Io { program: String, source: io::Error },
}

/// Runs `launch` to its end, with its output in files in `scratch` and an empty input.
pub fn run(
    launch: &Launch,
    observer: &mut Observer,
    scratch: &Path,
    timeout: Option<Duration>,
    interrupt: &Interrupt,
) -> Result<Execution, ExecutionError> {
    let io = |source| ExecutionError::Io { program: launch.name(), source };
    let mut output = Output::in_folder(scratch).map_err(io)?;
    let (stdout, stderr) = output.handles().map_err(io)?;
    // Otherwise a signal would not end a series of short programs.
    if interrupt.signal().is_some() {
        return Err(ExecutionError::Interrupted);
    }
    let started_ns = monotonic_ns();
    let begin = Instant::now();
    let mut child = launch.start(Stdio::null(), stdout.into(), stderr.into())?;
    let observer = Mutex::new(observer);
    let sample = |exiting| {
        observer.lock().unwrap_or_else(PoisonError::into_inner).sample_before_exit(child.pid(), exiting);
    };
    let (outcome, stopped) = thread::scope(|scope| {
        let at_exits = scope.spawn(|| sample_at_exits(child.pid(), &sample));
        let outcome = watch(&child, &observer, timeout, interrupt);
        if !matches!(outcome, Ok(Outcome::Ended)) {
            child.kill();
        }
        (outcome, at_exits.join().unwrap_or_default())
    });
    let wall = begin.elapsed().saturating_sub(stopped);
    let mut read = || output.read().map_err(io);
    match outcome.map_err(io)? {
        Outcome::Ended => {}
        Outcome::Interrupted => return Err(ExecutionError::Interrupted),
        Outcome::TimedOut(limit) => return Err(ExecutionError::TimedOut { limit, output: read()? }),
    }
    let ended = child.wait(SIGTERM_GRACE).map_err(io)?.ok_or_else(|| io(ErrorKind::TimedOut.into()))?;
    Ok(Execution { started_ns, wall, ended, output: read()? })
}

/// How the wait for a program ended.
enum Outcome {
    Ended,
    Interrupted,
    TimedOut(Duration),
}

/// Samples the program until it has ended; does not reap it.
fn watch(
    child: &GroupLeader,
    observer: &Mutex<&mut Observer>,
    timeout: Option<Duration>,
    interrupt: &Interrupt,
) -> io::Result<Outcome> {
    let begin = Instant::now();
    let mut interval = Duration::ZERO;
    loop {
        let left = timeout.map(|limit| limit.saturating_sub(begin.elapsed()));
        if child.wait_for_end(left.map_or(interval, |left| left.min(interval)))? {
            return Ok(Outcome::Ended);
        }
        if interrupt.signal().is_some() {
            return Ok(Outcome::Interrupted);
        }
        if let Some(limit) = timeout.filter(|limit| begin.elapsed() >= *limit) {
            child.terminate();
            child.wait_for_end(SIGTERM_GRACE)?;
            return Ok(Outcome::TimedOut(limit));
        }
        let mut observer = observer.lock().unwrap_or_else(PoisonError::into_inner);
        observer.sample_if_due(child.pid());
        interval = observer.reading_interval();
    }
}

/// Whether tracing the descendants of a program leaves their privileges as they are.
fn may_trace_descendants() -> bool {
    limits::read(&Root::live())
        .capabilities
        .known()
        .is_some_and(|capabilities| capabilities.has(Capabilities::SYS_PTRACE))
}

/// Calls `sample` with each traced process of the program before its exit; it is stopped during the call;
/// returns the time of these stops.
///
/// Where tracing is not permitted, there are no such samples.
pub(crate) fn sample_at_exits(pid: u32, sample: &dyn Fn(u32)) -> Duration {
    let mut stopped = Duration::ZERO;
    let _ = exit_stop::at_exits(pid, may_trace_descendants(), &mut |exiting| {
        let begin = Instant::now();
        sample(exiting);
        stopped += begin.elapsed();
    });
    stopped
}

/// The files with the standard output and standard error of a run.
#[derive(Debug)]
pub(crate) struct Output {
    stdout: File,
    stderr: File,
}

impl Output {
    /// The file with the standard output.
    pub(crate) fn stdout_in(folder: &Path) -> PathBuf {
        folder.join(STDOUT)
    }

    /// New files in `folder`, in place of those of an earlier run.
    pub(crate) fn in_folder(folder: &Path) -> io::Result<Output> {
        let new = |name| file::create(&folder.join(name), 0o600);
        Ok(Output { stdout: new(STDOUT)?, stderr: new("stderr")? })
    }

    /// The files for the program.
    pub(crate) fn handles(&self) -> io::Result<(File, File)> {
        Ok((self.stdout.try_clone()?, self.stderr.try_clone()?))
    }

    /// The text of both, of each at most `MAX_OUTPUT_BYTES`.
    pub(crate) fn read(&mut self) -> io::Result<String> {
        let mut bytes = Vec::new();
        for file in [&mut self.stdout, &mut self.stderr] {
            file.seek(SeekFrom::Start(0))?;
            file.take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes)?;
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// The end of a program's output, for an error message.
pub fn last_lines(output: &str) -> String {
    const LINES: usize = 6;
    let lines: Vec<&str> = output.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.is_empty() {
        return "; it printed nothing".to_owned();
    }
    let last = &lines[lines.len().saturating_sub(LINES)..];
    format!("; its last output:\n    {}", last.join("\n    "))
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use hugewise_changes::scratch::scratch_dir;

    use hugewise_evidence::observation::RegionOfInterest;
    use hugewise_linux::units::Bytes;

    use super::*;

    /// Runs a script; returns the execution and the largest sampled memory.
    fn shell(
        script: &str,
        timeout: Option<Duration>,
    ) -> Result<(Result<Execution, ExecutionError>, Bytes), Box<dyn Error>> {
        let launch = Launch {
            command: ["sh", "-c", script].map(OsString::from).to_vec(),
            environment: vec![("ADDED".to_owned(), Some("yes".into()))],
            ..Launch::default()
        };
        let scratch = scratch_dir()?;
        let mut observer = Observer::new(&Root::live(), RegionOfInterest::Anonymous, None);
        let execution = run(&launch, &mut observer, scratch.path(), timeout, &Interrupt::default());
        Ok((execution, observer.peak_memory))
    }

    #[test]
    fn what_ends_quickly_is_not_started_after_a_signal() -> Result<(), Box<dyn Error>> {
        let interrupt = Interrupt::received(1);
        let launch = Launch { command: vec!["true".into()], ..Launch::default() };
        let mut observer = Observer::new(&Root::live(), RegionOfInterest::Reported, None);
        let scratch = scratch_dir()?;
        let run = run(&launch, &mut observer, scratch.path(), None, &interrupt);
        assert!(matches!(run, Err(ExecutionError::Interrupted)), "{run:?}");
        Ok(())
    }

    #[test]
    fn output_status_and_environment_come_through() -> Result<(), Box<dyn Error>> {
        let execution = shell("echo $ADDED; echo no >&2; exit 4", None)?.0?;
        assert_eq!(execution.output, "yes\nno\n");
        assert_eq!(execution.ended.status.code(), Some(4));
        Ok(())
    }

    #[test]
    fn memory_is_sampled_at_the_exit() -> Result<(), Box<dyn Error>> {
        let script = "x=$(head -c 30000000 /dev/zero | tr '\\0' x); exit 0";
        let launch = Launch { command: ["sh", "-c", script].map(OsString::from).into(), ..Launch::default() };
        let scratch = scratch_dir()?;
        // The clock alone would sample at the start and half a second later.
        let mut observer =
            Observer::new(&Root::live(), RegionOfInterest::Anonymous, None).with_longest_interval();
        run(&launch, &mut observer, scratch.path(), None, &Interrupt::default())?;
        assert!(observer.peak_memory > Bytes(30_000_000), "{}", observer.peak_memory);
        assert!(observer.coverage.is_some_and(|seen| seen.resident > Bytes(30_000_000)));
        Ok(())
    }

    #[test]
    fn a_program_that_hangs_is_ended_and_its_last_words_shown() -> Result<(), Box<dyn Error>> {
        let mut seen = Vec::new();
        // On a busy machine a short timeout may end it before its first sample or output.
        for timeout in [200, 5_000, 120_000].map(Duration::from_millis) {
            let (ended, peak_memory) = shell("echo thinking; sleep 1000", Some(timeout))?;
            let error = ended.err().ok_or("it did not hang")?.to_string();
            assert!(error.contains("--timeout"), "{error}");
            if peak_memory > Bytes::ZERO && error.contains("thinking") {
                return Ok(());
            }
            seen.push((error, peak_memory));
        }
        Err(format!("its output or its memory was not seen: {seen:?}").into())
    }
}
