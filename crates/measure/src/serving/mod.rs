//! Servers and their driver: the servers start on their backings one after the other, each when the one before it is
//! ready, and then a driver puts load on them.
//!
//! The figures are those of the driver's time: its wall time and output, and the CPU time and page faults of each
//! server's processes.

pub mod guard;
mod ports;
mod process;
mod processes;
mod ready;
mod session;
mod taken_unit;
mod unit;

use std::{
    fs, io,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::{Duration, Instant},
};

use hugewise_changes::drop_in::{DropIn, DropInOwner};
use hugewise_evidence::observation::Observer;
use hugewise_linux::{
    interrupt::Interrupt,
    root::Root,
    sys::process::{ChildExit, monotonic_ns, orphans},
    systemd::{self, Unit},
    users::Account,
};

pub use self::{
    ports::{Ports, port_of},
    ready::Ready,
    session::Session,
    taken_unit::TakenUnit,
    unit::last_messages,
};
use self::{
    process::{ServerProcess, UnitProcess},
    processes::{Usage, end_orphans},
};
use crate::execution::{Execution, ExecutionError, Launch, Output};

/// In commands of the server and its driver: a free TCP port, chosen for each run.
pub const PORT: &str = "{port}";
/// Time between two looks whether a server is ready.
const READY_INTERVAL: Duration = Duration::from_millis(20);

/// How a server starts and ends.
#[derive(Clone, Debug)]
pub struct Service {
    /// The systemd service that it is; `None` for a command.
    pub unit: Option<Unit>,
    pub ready: Ready,
    /// Longest time until the server is ready.
    pub ready_timeout: Duration,
    /// Longest time between SIGTERM and SIGKILL at the end of a command.
    pub stop_timeout: Duration,
    /// User as whom the server starts, and `prepare` and `cleanup` run; `None` for the present one.
    pub user: Option<Account>,
    /// Command before each start of the server; empty if there is none.
    pub prepare: Vec<String>,
    /// Command after each end of the server; empty if there is none.
    pub cleanup: Vec<String>,
    /// This program, for the process that ends the server if this one is killed.
    pub program: PathBuf,
}

/// A server to start.
pub(crate) struct ToServe<'r, 's> {
    /// The server in messages: `the server`, or `the server db`.
    pub(crate) called: String,
    pub(crate) launch: Launch,
    pub(crate) session: &'r mut Session<'s>,
    pub(crate) observer: &'r mut Observer,
}

/// Starts the servers, runs the driver once they are ready, and ends them in reverse order.
///
/// Returns an execution for each server, with its CPU time, and with the wall time and the output of the driver, whose
/// files are in `scratch`.
pub(crate) fn run(
    servers: Vec<ToServe<'_, '_>>,
    driver: &[String],
    scratch: &Path,
    timeout: Option<Duration>,
    interrupt: &Interrupt,
) -> Result<Vec<Execution>, ExecutionError> {
    let driver = Launch::aside(driver, None);
    // Without it, a server could leave processes that nothing leads to.
    let _ = orphans::adopt();
    let root = Root::live();
    let orphans = processes::orphans(&root);
    let mut running = Running { servers: Vec::with_capacity(servers.len()), interrupt, root, orphans };
    let begin = Instant::now();
    let started = servers.into_iter().try_for_each(|server| running.start(server));
    let driven = started.and_then(|()| {
        running.drive(&driver, scratch, timeout.map(|limit| limit.saturating_sub(begin.elapsed())))
    });
    let stopped = running.stop();
    let (driven, usages) = driven?;
    let execution = |(stopped, usage): (Stopped, Usage)| Execution {
        started_ns: stopped.started_ns,
        wall: driven.wall,
        ended: ChildExit {
            status: driven.status,
            max_rss: stopped.ended.and_then(|ended| ended.max_rss),
            user: usage.user,
            sys: usage.sys,
            minor_faults: usage.minor_faults,
            major_faults: usage.major_faults,
        },
        output: driven.output.clone(),
    };
    Ok(stopped?.into_iter().zip(usages).map(execution).collect())
}

/// The folder of a server's output.
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
struct Server<'r> {
    called: String,
    name: String,
    service: &'r Service,
    port: u16,
    process: ServerProcess,
    output: Output,
    observer: &'r mut Observer,
    started_ns: u64,
}

/// A server that has ended.
struct Stopped {
    started_ns: u64,
    /// `None` if it did not end by itself.
    ended: Option<ChildExit>,
}

impl<'r> Server<'r> {
    fn start(server: ToServe<'r, '_>) -> Result<Server<'r>, ExecutionError> {
        let ToServe { called, launch, session, observer } = server;
        let io = |source| ExecutionError::Io { program: launch.name(), source };
        let (service, ports) = (session.service, &session.ports);
        let command = launch.command.iter().map(|word| match word.to_str() {
            Some(text) => ports.in_text(text).into(),
            None => word.clone(),
        });
        let launch = Launch { command: command.collect(), user: service.user.clone(), ..launch.clone() };
        let folder = output_folder(&session.scratch);
        fs::create_dir_all(&folder).map_err(io)?;
        let output = Output::in_folder(&folder).map_err(io)?;
        let (stdout, stderr) = output.handles().map_err(io)?;
        let started_ns = monotonic_ns();
        let process = match &service.unit {
            Some(unit) => {
                DropIn::of(unit, DropInOwner::Compare).set(&launch.environment).map_err(io)?;
                let start = systemd::start(unit, stdout.into(), stderr.into()).map_err(io)?;
                ServerProcess::Unit(UnitProcess::starting(unit.clone(), start))
            }
            None => {
                let leader = launch.start(Stdio::null(), stdout.into(), stderr.into())?;
                session.guard.watch(leader.pid()).map_err(io)?;
                ServerProcess::Child(leader)
            }
        };
        let (name, port) = (launch.name(), ports.own);
        Ok(Server { called, name, service, port, process, output, observer, started_ns })
    }

    fn io(&self, source: io::Error) -> ExecutionError {
        ExecutionError::Io { program: self.name.clone(), source }
    }

    /// The server has failed: why, and the end of its output.
    fn failed(&mut self, why: &str) -> ExecutionError {
        let output = self.output.read().unwrap_or_default();
        ExecutionError::Failed(format!("{} {why}{}", self.called, self.process.last_lines(&output)))
    }

    /// Fails if the server has ended, `when`.
    fn check_runs(&mut self, root: &Root, wait: Duration, when: &str) -> Result<(), ExecutionError> {
        match self.process.wait_for_end(wait, root).map_err(|error| self.io(error))? {
            true => Err(self.failed(&format!("ended {when}"))),
            false => Ok(()),
        }
    }

    fn is_ready(&mut self) -> bool {
        self.process.pid().is_some() && self.service.ready.is_met(self.port, &mut || self.output.read())
    }

    /// Ends the server in order, and then what is left of it.
    fn stop(self, root: &Root) -> io::Result<Stopped> {
        let ended = self.process.stop(self.service.stop_timeout, root)?;
        Ok(Stopped { started_ns: self.started_ns, ended })
    }

    /// Samples its memory if that is due, once it has a process.
    fn sample_if_due(&mut self) {
        if let Some(pid) = self.process.pid() {
            self.observer.sample_if_due(pid);
        }
    }
}

/// The servers of a run that were started, in this order.
struct Running<'r> {
    servers: Vec<Server<'r>>,
    interrupt: &'r Interrupt,
    root: Root,
    /// Those that were adopted before.
    orphans: Vec<u32>,
}

impl<'r> Running<'r> {
    /// Starts a server, and waits until it is ready.
    fn start(&mut self, server: ToServe<'r, '_>) -> Result<(), ExecutionError> {
        if self.interrupt.signal().is_some() {
            return Err(ExecutionError::Interrupted);
        }
        self.servers.push(Server::start(server)?);
        let begin = Instant::now();
        loop {
            let Some((server, before)) = self.servers.split_last_mut() else { return Ok(()) };
            server.check_runs(&self.root, READY_INTERVAL, "before it was ready")?;
            if self.interrupt.signal().is_some() {
                return Err(ExecutionError::Interrupted);
            }
            if server.is_ready() {
                return Ok(());
            }
            if begin.elapsed() >= server.service.ready_timeout {
                let seconds = server.service.ready_timeout.as_secs_f64();
                return Err(
                    server.failed(&format!("was not ready after {seconds} s (--ready, --ready-timeout)"))
                );
            }
            let when = format!("before {} was ready", server.called);
            server.sample_if_due();
            let root = &self.root;
            before.iter_mut().try_for_each(|server| server.check_runs(root, Duration::ZERO, &when))?;
        }
    }

    /// Runs the driver to its end; returns what each server used during that time, too.
    fn drive(
        &mut self,
        driver: &Launch,
        scratch: &Path,
        timeout: Option<Duration>,
    ) -> Result<(Driven, Vec<Usage>), ExecutionError> {
        let io = |source| ExecutionError::Io { program: driver.name(), source };
        let mut output = Output::in_folder(scratch).map_err(io)?;
        let (stdout, stderr) = output.handles().map_err(io)?;
        let before = self.usages();
        let begin = Instant::now();
        let mut child = driver.start(Stdio::null(), stdout.into(), stderr.into())?;
        loop {
            let intervals = self.servers.iter().map(|server| server.observer.reading_interval());
            let interval = intervals.min().unwrap_or(READY_INTERVAL);
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
            for server in &mut self.servers {
                server.check_runs(&self.root, Duration::ZERO, "while the driver ran")?;
                server.sample_if_due();
            }
        }
        let wall = begin.elapsed();
        let usages = self.usages().into_iter().zip(&before).map(|(after, before)| after.since(before));
        let usages = usages.collect();
        for server in &mut self.servers {
            if let Some(pid) = server.process.pid() {
                server.observer.sample(pid);
            }
        }
        let status =
            child.wait(Duration::ZERO).map_err(io)?.map_or(ExitStatus::from_raw(0), |end| end.status);
        Ok((Driven { wall, status, output: output.read().map_err(io)? }, usages))
    }

    fn usages(&self) -> Vec<Usage> {
        let read = |pid| Usage::read(&self.root, pid);
        let usage = |server: &Server<'_>| server.process.pid().map(read).unwrap_or_default();
        self.servers.iter().map(usage).collect()
    }

    /// Ends the servers in reverse order; all of them, also after an error.
    fn stop(self) -> Result<Vec<Stopped>, ExecutionError> {
        let stop = |server: Server<'_>| {
            let program = server.name.clone();
            server.stop(&self.root).map_err(|source| ExecutionError::Io { program, source })
        };
        let stopped: Vec<_> = self.servers.into_iter().rev().map(stop).collect();
        end_orphans(&self.root, &self.orphans);
        stopped.into_iter().rev().collect()
    }
}
