//! One run of a service: its ports, its guard, and the commands before the server's start and after its end.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Stdio,
};

use hugewise_changes::journal::RUN_VARIABLE;
use hugewise_linux::interrupt::Interrupt;

use super::{
    Ports, READY_INTERVAL, Service,
    guard::{Guard, Work},
    output_folder,
};
use crate::execution::{ExecutionError, Launch, Output, last_lines};

/// What surrounds one start of a server.
#[derive(Debug)]
pub struct Session<'a> {
    pub(super) service: &'a Service,
    pub(crate) ports: Ports,
    pub(super) guard: Guard,
    /// The environment of the commands.
    environment: Vec<(String, Option<OsString>)>,
    /// The folder of its files.
    pub(crate) scratch: PathBuf,
}

impl<'a> Session<'a> {
    /// Runs the command before the start, with the environment of `marked`. It must be closed.
    pub(crate) fn open(
        service: &'a Service,
        ports: Ports,
        marked: Launch,
        scratch: &Path,
        interrupt: &Interrupt,
    ) -> Result<Session<'a>, ExecutionError> {
        if interrupt.signal().is_some() {
            return Err(ExecutionError::Interrupted);
        }
        service.ready.check_absent().map_err(ExecutionError::Failed)?;
        let io = |source| ExecutionError::Io { program: service.program.display().to_string(), source };
        let run_id = marked.environment.iter().find(|(name, _)| name == RUN_VARIABLE);
        let work = Work {
            cleanup: ports.in_words(&service.cleanup),
            user: service.user.clone(),
            run_id: run_id.and_then(|(_, value)| value.as_ref()?.to_str()).map(str::to_owned),
            unit: None,
            journal: None,
        };
        let guard = Guard::start(&service.program, &work).map_err(io)?;
        let session =
            Session { service, ports, guard, environment: marked.environment, scratch: scratch.to_owned() };
        match session.run_aside("--prepare", &service.prepare, Some(interrupt)) {
            Ok(()) => Ok(session),
            Err(error) => {
                session.close()?;
                Err(error)
            }
        }
    }

    /// The file with the standard output of a server that starts as another user.
    pub(crate) fn output_of_other_user(&self) -> Option<PathBuf> {
        self.service.user.is_some().then(|| Output::stdout_in(&output_folder(&self.scratch)))
    }

    /// Runs the command after the server's end, also after an error or Ctrl-C.
    pub fn close(self) -> Result<(), ExecutionError> {
        let cleaned = self.run_aside("--cleanup", &self.service.cleanup, None);
        self.guard.release();
        cleaned
    }

    /// Runs a command to its end, or to an interrupt.
    fn run_aside(
        &self,
        option: &str,
        command: &[String],
        interrupt: Option<&Interrupt>,
    ) -> Result<(), ExecutionError> {
        if command.is_empty() {
            return Ok(());
        }
        let launch = Launch {
            environment: self.environment.clone(),
            ..Launch::aside(&self.ports.in_words(command), self.service.user.clone())
        };
        let io = |source| ExecutionError::Io { program: launch.name(), source };
        let mut output = Output::in_folder(&self.scratch).map_err(io)?;
        let (stdout, stderr) = output.handles().map_err(io)?;
        let mut child = launch.start(Stdio::null(), stdout.into(), stderr.into())?;
        let ended = loop {
            if let Some(ended) = child.wait(READY_INTERVAL).map_err(io)? {
                break ended;
            }
            if interrupt.is_some_and(|interrupt| interrupt.signal().is_some()) {
                return Err(ExecutionError::Interrupted);
            }
        };
        if ended.status.success() {
            return Ok(());
        }
        let printed = output.read().map_err(io)?;
        let status = ended.status;
        Err(ExecutionError::Failed(format!(
            "the command of {option} ended with {status}{}",
            last_lines(&printed)
        )))
    }
}
