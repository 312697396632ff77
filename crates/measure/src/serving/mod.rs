//! A server and its driver: the server starts on a backing, and a driver puts load on it once it is ready.
//!
//! The figures are those of the driver's time: its wall time and output, and the CPU time and page faults of the
//! server's processes.

pub mod guard;
mod processes;
mod ready;
mod session;

use std::{
    fs, io,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::{Duration, Instant},
};

use hugewise_evidence::observation::Observer;
use hugewise_linux::{
    interrupt::Interrupt,
    root::Root,
    sys::process::{ChildExit, GroupLeader, monotonic_ns},
    users::Account,
};

use self::processes::Usage;
pub(crate) use self::session::with_port;
pub use self::{ready::Ready, session::Session};
use crate::execution::{Execution, ExecutionError, Launch, Output, last_lines};

/// In commands of the server and its driver: a free TCP port, chosen for each run.
pub const PORT: &str = "{port}";
/// Time between two looks whether a server is ready.
const READY_INTERVAL: Duration = Duration::from_millis(20);

/// What is run with a server.
#[derive(Clone, Debug)]
pub struct Service {
    pub ready: Ready,
    /// Longest time until the server is ready.
    pub ready_timeout: Duration,
    /// Longest time between SIGTERM and SIGKILL at its end.
    pub stop_timeout: Duration,
    /// The driver and its arguments.
    pub driver: Vec<String>,
    /// User as whom the server starts, and `prepare` and `cleanup` run; `None` for the present one.
    pub user: Option<Account>,
    /// Command before each start of the server; empty if there is none.
    pub prepare: Vec<String>,
    /// Command after each end of the server; empty if there is none.
    pub cleanup: Vec<String>,
    /// This program, for the process that ends the server if this one is killed.
    pub program: PathBuf,
}

/// Starts `server`, runs the driver once it is ready, and ends it.
///
/// Output is in files in `scratch`; that of the execution is the driver's.
pub fn run(
    server: &Launch,
    session: &mut Session<'_>,
    observer: &mut Observer,
    scratch: &Path,
    timeout: Option<Duration>,
    interrupt: &Interrupt,
) -> Result<Execution, ExecutionError> {
    let io = |source| ExecutionError::Io { program: server.name(), source };
    let (service, port) = (session.service, session.port);
    let command = server.command.iter().map(|word| match word.to_str() {
        Some(text) => text.replace(PORT, &port.to_string()).into(),
        None => word.clone(),
    });
    let server = Launch { command: command.collect(), user: service.user.clone(), ..server.clone() };
    let driver = Launch::aside(&with_port(&service.driver, port), None);
    let folder = output_folder(scratch);
    fs::create_dir_all(&folder).map_err(io)?;
    let output = Output::in_folder(&folder).map_err(io)?;
    let (stdout, stderr) = output.handles().map_err(io)?;
    if interrupt.signal().is_some() {
        return Err(ExecutionError::Interrupted);
    }
    let started_ns = monotonic_ns();
    let child = server.start(Stdio::null(), stdout.into(), stderr.into())?;
    session.guard.watch(child.pid()).map_err(io)?;
    let mut run = Run { server: child, output, observer, name: server.name(), interrupt, root: Root::live() };
    let begin = Instant::now();
    let driven = run.await_ready(service, port).and_then(|()| {
        run.drive(&driver, scratch, timeout.map(|limit| limit.saturating_sub(begin.elapsed())))
    });
    let stopped = run.stop(service.stop_timeout).map_err(io)?;
    let (driven, usage) = driven?;
    let ended = ChildExit {
        status: driven.status,
        max_rss: stopped.and_then(|stopped| stopped.max_rss),
        user: usage.user,
        sys: usage.sys,
        minor_faults: usage.minor_faults,
        major_faults: usage.major_faults,
    };
    Ok(Execution { started_ns, wall: driven.wall, ended, output: driven.output })
}

/// The folder of the server's output.
fn output_folder(scratch: &Path) -> PathBuf {
    scratch.join("server")
}

/// A run of the driver.
struct Driven {
    wall: Duration,
    status: ExitStatus,
    output: String,
}

/// A server that was started.
struct Run<'a> {
    server: GroupLeader,
    output: Output,
    observer: &'a mut Observer,
    name: String,
    interrupt: &'a Interrupt,
    root: Root,
}

impl Run<'_> {
    fn io(&self, source: io::Error) -> ExecutionError {
        ExecutionError::Io { program: self.name.clone(), source }
    }

    /// The server has failed: why, and the end of its output.
    fn failed(&mut self, why: &str) -> ExecutionError {
        let output = self.output.read().unwrap_or_default();
        ExecutionError::Failed(format!("the server {why}{}", last_lines(&output)))
    }

    fn await_ready(&mut self, service: &Service, port: u16) -> Result<(), ExecutionError> {
        let begin = Instant::now();
        loop {
            if self.server.wait_for_end(READY_INTERVAL).map_err(|error| self.io(error))? {
                return Err(self.failed("ended before it was ready"));
            }
            if self.interrupt.signal().is_some() {
                return Err(ExecutionError::Interrupted);
            }
            if service.ready.is_met(port, &mut || self.output.read()) {
                return Ok(());
            }
            if begin.elapsed() >= service.ready_timeout {
                let seconds = service.ready_timeout.as_secs_f64();
                return Err(
                    self.failed(&format!("was not ready after {seconds} s (--ready, --ready-timeout)"))
                );
            }
            self.observer.sample_if_due(self.server.pid());
        }
    }

    /// Runs the driver to its end; returns what the server used meanwhile, too.
    fn drive(
        &mut self,
        driver: &Launch,
        scratch: &Path,
        timeout: Option<Duration>,
    ) -> Result<(Driven, Usage), ExecutionError> {
        let io = |source| ExecutionError::Io { program: driver.name(), source };
        let mut output = Output::in_folder(scratch).map_err(io)?;
        let (stdout, stderr) = output.handles().map_err(io)?;
        let before = Usage::read(&self.root, self.server.pid());
        let begin = Instant::now();
        let mut child = driver.start(Stdio::null(), stdout.into(), stderr.into())?;
        loop {
            let interval = self.observer.reading_interval();
            let left = timeout.map(|limit| limit.saturating_sub(begin.elapsed()));
            if child.wait_for_end(left.map_or(interval, |left| left.min(interval))).map_err(io)? {
                break;
            }
            if self.interrupt.signal().is_some() {
                return Err(ExecutionError::Interrupted);
            }
            if let Some(limit) = timeout.filter(|limit| begin.elapsed() >= *limit) {
                return Err(ExecutionError::TimedOut { limit, output: output.read().map_err(io)? });
            }
            if self.server.wait_for_end(Duration::ZERO).map_err(|error| self.io(error))? {
                return Err(self.failed("ended while the driver ran"));
            }
            self.observer.sample_if_due(self.server.pid());
        }
        let wall = begin.elapsed();
        let usage = Usage::read(&self.root, self.server.pid()).since(&before);
        self.observer.sample(self.server.pid());
        let status =
            child.wait(Duration::ZERO).map_err(io)?.map_or(ExitStatus::from_raw(0), |end| end.status);
        Ok((Driven { wall, status, output: output.read().map_err(io)? }, usage))
    }

    /// Ends the server in order, and then what is left of it; `None` if it did not end by itself.
    fn stop(mut self, timeout: Duration) -> io::Result<Option<ChildExit>> {
        let remaining = processes::of(&self.root, self.server.pid());
        self.server.terminate();
        let begin = Instant::now();
        let mut ended = None;
        while ended.is_none() && begin.elapsed() < timeout {
            ended = self.server.wait(timeout.saturating_sub(begin.elapsed()).min(READY_INTERVAL))?;
        }
        drop(self.server);
        processes::kill(&self.root, &remaining);
        Ok(ended)
    }
}
