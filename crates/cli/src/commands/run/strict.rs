//! `run --strict`: the program is a child of hugewise, whose exit status says whether it got its pages.

use std::{
    ffi::OsString,
    fs::File,
    io::{IsTerminal, stdin},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        process::ExitStatusExt,
    },
    process::{Child, ExitCode, ExitStatus},
    time::Duration,
};

use anyhow::Context;
use hugewise_linux::{
    interrupt::{Interrupt, SIGINT},
    sys::{
        pidfd,
        process::{Program, pass_on},
    },
};

use super::{assignment::ObserverTask, observer, report::Verdict, target::Handover};
use crate::{NEGATIVE, output::standard_error};

/// Interval in which a signal to this process is noticed.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// Starts the program and its observer, and waits for both. Returns the program's status, or 1 if that is 0 and the
/// program has not what was requested.
pub fn run(handover: Handover, task: ObserverTask, file: Option<File>) -> anyhow::Result<ExitCode> {
    let interrupt = Interrupt::install().context("cannot handle signals")?;
    let mut program = start(handover)?;
    let pid = program.id();
    let observed = observer::start_beside(&ObserverTask { pid, ..task }, file);
    let status = wait(&mut program, &interrupt)?;
    let verdict = match observed.and_then(observer::verdict_of) {
        Ok(verdict) => verdict,
        Err(error) => {
            standard_error::say(format!("whether it got its pages is unknown: {error:#}"));
            Verdict::default()
        }
    };
    if verdict != Verdict::NotShort {
        standard_error::say("--strict: the program did not get the pages that were requested");
    }
    let is_short = status.success() && verdict != Verdict::NotShort;
    Ok(if is_short { ExitCode::from(NEGATIVE) } else { ExitCode::from(as_of_shell(status)) })
}

fn start(Handover { program, words, environment }: Handover) -> anyhow::Result<Child> {
    let name = program.to_string_lossy().into_owned();
    let mut command = Program::new(program);
    command.named(words.first().context("no program was named")?).args(&words[1..]).env_clear();
    for assignment in &environment {
        let bytes = assignment.as_bytes();
        let at = bytes.iter().position(|byte| *byte == b'=').unwrap_or(bytes.len());
        let (variable, value) = bytes.split_at(at);
        let value = value.strip_prefix(b"=").unwrap_or_default();
        command.env(OsString::from_vec(variable.to_vec()), OsString::from_vec(value.to_vec()));
    }
    command.start_in_foreground().with_context(|| format!("{name} could not be started"))
}

/// Waits for the end of the program, and passes a signal that requests termination on to it.
fn wait(program: &mut Child, interrupt: &Interrupt) -> anyhow::Result<ExitStatus> {
    let handle = pidfd::open(program.id()).context("observing the program")?;
    let mut is_passed_on = false;
    while !pidfd::has_ended(&handle, SIGNAL_INTERVAL)? {
        let Some(signal) = interrupt.signal().filter(|_| !is_passed_on) else { continue };
        is_passed_on = true;
        // A terminal sends SIGINT to the program as well.
        if signal != SIGINT || !stdin().is_terminal() {
            pass_on(program.id(), signal).context("ending the program")?;
        }
    }
    program.wait().context("waiting for the program")
}

/// The status of a program as shells report it: 128 and the signal that ended it.
fn as_of_shell(status: ExitStatus) -> u8 {
    let of_signal = || 128 + status.signal().unwrap_or_default();
    u8::try_from(status.code().unwrap_or_else(of_signal)).unwrap_or(NEGATIVE)
}
