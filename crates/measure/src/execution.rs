//! Running a program once, under observation, and ending it if it must be.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use hugewise_evidence::observation::Observer;
use hugewise_linux::{
    interrupt::Interrupt,
    sys::process::{Ended, GroupLeader, monotonic_ns},
};

/// How long a program has between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(3);
/// As much of a program's output is searched for figures.
const LARGEST_OUTPUT: u64 = 64 << 20;

/// A program to be run, with one backing put on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Variables to set, or to take away, beside our own environment.
    pub environment: Vec<(String, Option<OsString>)>,
    /// Keep transparent huge pages away from it.
    pub thp_disabled: bool,
}

/// How a run went.
#[derive(Debug)]
pub struct Execution {
    /// When it was started, in nanoseconds of CLOCK_MONOTONIC.
    pub started_ns: u64,
    /// From start to end.
    pub wall: Duration,
    /// What it and its children used.
    pub ended: Ended,
    /// What it printed: standard output, then standard error.
    pub output: String,
}

/// Why there is no run to show.
#[derive(Debug, thiserror::Error)]
pub enum ExecutionError {
    /// It could not be started.
    #[error("{program} could not be started: {source}")]
    Start {
        /// The program.
        program: String,
        /// What the system answered.
        source: io::Error,
    },
    /// It did not end in time, and was ended.
    #[error("it ran longer than {}s (--timeout), and was ended{}", limit.as_secs_f64(), last_lines(output))]
    TimedOut {
        /// The limit.
        limit: Duration,
        /// What it had printed.
        output: String,
    },
    /// A signal came for us.
    #[error("interrupted")]
    Interrupted,
    /// Our own files, or waiting for it.
    #[error("running {program}: {source}")]
    Io {
        /// The program.
        program: String,
        /// What the system answered.
        source: io::Error,
    },
}

/// Runs `launch` to its end; its output goes to files in `scratch`, its input is empty.
pub fn run(
    launch: &Launch,
    observer: &mut Observer,
    scratch: &Path,
    timeout: Option<Duration>,
    interrupt: &Interrupt,
) -> Result<Execution, ExecutionError> {
    let Some((program, arguments)) = launch.command.split_first() else {
        let source = io::Error::new(io::ErrorKind::InvalidInput, "no program was named");
        return Err(ExecutionError::Start { program: "nothing".to_owned(), source });
    };
    let name = program.to_string_lossy().into_owned();
    let io = |source| ExecutionError::Io { program: name.clone(), source };
    let (mut stdout, mut stderr) =
        (new_file(scratch, "stdout").map_err(io)?, new_file(scratch, "stderr").map_err(io)?);
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(stdout.try_clone().map_err(io)?)
        .stderr(stderr.try_clone().map_err(io)?);
    for (variable, value) in &launch.environment {
        match value {
            Some(value) => command.env(variable, value),
            None => command.env_remove(variable),
        };
    }
    // Many that end quickly would never be seen running when a signal has come.
    if interrupt.signal().is_some() {
        return Err(ExecutionError::Interrupted);
    }
    let started_ns = monotonic_ns();
    let begin = Instant::now();
    let mut child = GroupLeader::start(&mut command, launch.thp_disabled)
        .map_err(|source| ExecutionError::Start { program: name.clone(), source })?;
    let ended = loop {
        let left = timeout.map(|limit| limit.saturating_sub(begin.elapsed()));
        let patience = left.map_or(observer.gap(), |left| left.min(observer.gap()));
        if let Some(ended) = child.wait(patience).map_err(io)? {
            break ended;
        }
        if interrupt.signal().is_some() {
            return Err(ExecutionError::Interrupted);
        }
        if left.is_some_and(|left| left.is_zero()) {
            child.ask_to_end();
            child.wait(GRACE).map_err(io)?;
            let output = read_output(&mut stdout, &mut stderr).map_err(io)?;
            return Err(ExecutionError::TimedOut { limit: timeout.unwrap_or_default(), output });
        }
        observer.look(child.pid());
    };
    let wall = begin.elapsed();
    let output = read_output(&mut stdout, &mut stderr).map_err(io)?;
    Ok(Execution { started_ns, wall, ended, output })
}

fn new_file(dir: &Path, name: &str) -> io::Result<File> {
    File::options().create(true).truncate(true).read(true).write(true).open(dir.join(name))
}

fn read_output(stdout: &mut File, stderr: &mut File) -> io::Result<String> {
    let mut bytes = Vec::new();
    for file in [stdout, stderr] {
        file.seek(SeekFrom::Start(0))?;
        file.take(LARGEST_OUTPUT).read_to_end(&mut bytes)?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The end of what a program printed, for an error about it.
#[must_use]
pub fn last_lines(output: &str) -> String {
    const LINES: usize = 6;
    let lines: Vec<&str> = output.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.is_empty() {
        return "; it printed nothing".to_owned();
    }
    let last = &lines[lines.len().saturating_sub(LINES)..];
    format!("; the last it printed:\n    {}", last.join("\n    "))
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use hugewise_changes::scratch::scratch_dir;

    use hugewise_evidence::observation::RegionOfInterest;
    use hugewise_linux::{root::Root, units::Bytes};

    use super::*;

    /// Runs a script; how it went, and the most memory that was seen of it.
    fn shell(
        script: &str,
        timeout: Option<Duration>,
    ) -> Result<(Result<Execution, ExecutionError>, Bytes), Box<dyn Error>> {
        let launch = Launch {
            command: ["sh", "-c", script].map(OsString::from).to_vec(),
            environment: vec![("ADDED".to_owned(), Some("yes".into()))],
            thp_disabled: false,
        };
        let scratch = scratch_dir()?;
        let mut observer = Observer::new(&Root::live(), RegionOfInterest::Anonymous, None);
        let execution = run(&launch, &mut observer, scratch.path(), timeout, &Interrupt::default());
        Ok((execution, observer.peak_memory))
    }

    #[test]
    fn what_ends_quickly_is_not_started_after_a_signal() -> Result<(), Box<dyn Error>> {
        let interrupt = Interrupt::install()?;
        let own = std::process::id().to_string();
        Command::new("sh").args(["-c", "kill -s HUP \"$0\"", &own]).status()?;
        while interrupt.signal().is_none() {
            std::thread::yield_now();
        }
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
    fn a_program_that_hangs_is_ended_and_its_last_words_shown() -> Result<(), Box<dyn Error>> {
        let mut seen = Vec::new();
        // On a busy machine it may not be observed, nor have printed anything, before a short timeout.
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
