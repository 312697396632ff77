//! One process that takes turns.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    net::Shutdown,
    os::{fd::OwnedFd, unix::net::UnixStream},
    time::{Duration, Instant},
};

use hugewise_linux::{
    interrupt::Interrupt,
    sys::{
        self,
        process::{ChildExit, GroupLeader, monotonic_ns},
    },
};

use crate::{
    execution::{Execution, ExecutionError, Launch, last_lines},
    touch::{READY, Turn},
};

/// Interval at which a wait for an answer checks for a signal to this process.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);
/// Time that a process may take to end after its last turn.
const END_LIMIT: Duration = Duration::from_secs(30);

/// A process that waits for its next turn.
pub struct LiveArm<'a> {
    child: GroupLeader,
    /// Its standard input and output.
    stream: UnixStream,
    /// Its output so far.
    output: Vec<u8>,
    /// Length of the lines that `answer` returned, in bytes.
    answered: usize,
    /// Length of the lines before [`READY`], such as warnings of a JVM, in bytes.
    before_ready: usize,
    stderr: File,
    begin: Instant,
    started_ns: u64,
    interrupt: &'a Interrupt,
}

impl<'a> LiveArm<'a> {
    /// Starts the process and waits until it is ready.
    pub fn start(
        launch: &Launch,
        limit: Option<Duration>,
        interrupt: &'a Interrupt,
    ) -> Result<LiveArm<'a>, ExecutionError> {
        let io = |source| ExecutionError::Io { program: launch.name(), source };
        let (stream, other_end) = UnixStream::pair().map_err(io)?;
        let stdout: OwnedFd = other_end.try_clone().map_err(io)?.into();
        let stderr = tempfile::tempfile().map_err(io)?;
        let (started_ns, begin) = (monotonic_ns(), Instant::now());
        let child = launch.start(
            OwnedFd::from(other_end).into(),
            stdout.into(),
            stderr.try_clone().map_err(io)?.into(),
        )?;
        let mut arm = LiveArm {
            child,
            stream,
            output: Vec::new(),
            answered: 0,
            before_ready: 0,
            stderr,
            begin,
            started_ns,
            interrupt,
        };
        while arm.answer(limit)? != READY {
            arm.before_ready = arm.answered;
        }
        Ok(arm)
    }

    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Lets the process take a turn; returns its mean time of a read in nanoseconds.
    pub fn take(&mut self, turn: Turn) -> Result<f64, ExecutionError> {
        let command = format!("{} {}\n", turn.reads, turn.uncounted);
        // If the process has ended, its answer says so.
        let _ = self.stream.write_all(command.as_bytes());
        let answer = self.answer(None)?;
        answer.parse().map_err(|_| {
            failed(io::Error::other(format!("it answered '{answer}' instead of a time in nanoseconds")))
        })
    }

    /// Ends the process; the output is what it printed before its first and after its last turn.
    pub fn finish(mut self) -> Result<Execution, ExecutionError> {
        // The end of its commands ends it.
        let _ = self.stream.shutdown(Shutdown::Write);
        let limit = Instant::now() + END_LIMIT;
        while self.read_more(limit.saturating_duration_since(Instant::now()))? {}
        let ended = self.exit()?;
        let output = [&self.output[..self.before_ready], &self.output[self.answered..]].concat();
        let output = String::from_utf8_lossy(&output).into_owned();
        Ok(Execution { started_ns: self.started_ns, wall: self.begin.elapsed(), ended, output })
    }

    /// The next line that the process writes.
    fn answer(&mut self, limit: Option<Duration>) -> Result<String, ExecutionError> {
        let begin = Instant::now();
        loop {
            let unread = &self.output[self.answered..];
            if let Some(length) = unread.iter().position(|byte| *byte == b'\n') {
                let line = String::from_utf8_lossy(&unread[..length]).trim().to_owned();
                self.answered += length + 1;
                return Ok(line);
            }
            if self.interrupt.signal().is_some() {
                return Err(ExecutionError::Interrupted);
            }
            if let Some(limit) = limit.filter(|limit| begin.elapsed() > *limit) {
                self.child.terminate();
                let output = String::from_utf8_lossy(&self.output).into_owned();
                return Err(ExecutionError::TimedOut { limit, output });
            }
            if sys::wait_readable(&self.stream, SIGNAL_INTERVAL).map_err(failed)?
                && !self.read_more(END_LIMIT)?
            {
                return Err(self.ended()?);
            }
        }
    }

    /// Reads once; `false` at the end of the output, or after `timeout`.
    fn read_more(&mut self, timeout: Duration) -> Result<bool, ExecutionError> {
        let mut more = [0; 4096];
        if !sys::wait_readable(&self.stream, timeout).map_err(failed)? {
            return Ok(false);
        }
        let count = self.stream.read(&mut more).map_err(failed)?;
        self.output.extend_from_slice(&more[..count]);
        Ok(count > 0)
    }

    /// Waits for its end.
    fn exit(&mut self) -> Result<ChildExit, ExecutionError> {
        let limit = Instant::now() + END_LIMIT;
        loop {
            match self.child.wait(SIGNAL_INTERVAL).map_err(failed)? {
                Some(ended) => return Ok(ended),
                None if Instant::now() > limit => return Err(failed(io::ErrorKind::TimedOut.into())),
                None => {}
            }
        }
    }

    /// The error of a process that closed its output before its last turn.
    fn ended(&mut self) -> Result<ExecutionError, ExecutionError> {
        let ended = self.exit()?;
        self.stderr.seek(SeekFrom::Start(0)).map_err(failed)?;
        self.stderr.read_to_end(&mut self.output).map_err(failed)?;
        let output = String::from_utf8_lossy(&self.output).into_owned();
        Ok(ExecutionError::Failed(format!("the program ended with {}{}", ended.status, last_lines(&output))))
    }
}

fn failed(source: io::Error) -> ExecutionError {
    ExecutionError::Io { program: "the workload".to_owned(), source }
}
