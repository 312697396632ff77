//! Runs a program within a time limit and captures its output.

use std::{
    io,
    process::ExitStatus,
    time::{Duration, Instant},
};

use crate::{captured_output::CapturedOutput, interrupt::Interrupt, sys::process::Program};

/// Largest part of each output stream that is kept, in bytes.
const MAX_OUTPUT_BYTES: usize = 16 << 20;
/// Time between two looks at the interrupt.
const INTERVAL: Duration = Duration::from_millis(100);

/// Exit status and output of a program; invalid UTF-8 is replaced.
#[derive(Debug)]
pub struct Printed {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

/// Runs `program` with empty standard input. `None` if it did not end within `timeout`; it and its process group are
/// then killed. An error of kind `Interrupted` after SIGINT, SIGTERM or SIGHUP.
pub fn run_with_timeout(program: Program, timeout: Duration) -> io::Result<Option<Printed>> {
    run(program, timeout, &Interrupt::installed())
}

/// Like [`run_with_timeout`], regardless of signals: for steps that put something back.
pub fn run_regardless_of_signals(program: Program, timeout: Duration) -> io::Result<Option<Printed>> {
    run(program, timeout, &Interrupt::default())
}

fn run(mut program: Program, timeout: Duration, interrupt: &Interrupt) -> io::Result<Option<Printed>> {
    program.stdin(std::process::Stdio::null());
    let output = CapturedOutput::of(&mut program, MAX_OUTPUT_BYTES)?;
    let begin = Instant::now();
    let mut child = program.start()?;
    let ended = loop {
        let left = timeout.saturating_sub(begin.elapsed());
        match child.wait(left.min(INTERVAL))? {
            Some(ended) => break Some(ended),
            None if interrupt.signal().is_some() => return Err(interrupted()),
            None if left.is_zero() => break None,
            None => {}
        }
    };
    drop(child);
    let [stdout, stderr] = output.finish()?;
    Ok(ended.map(|ended| Printed { status: ended.status, stdout, stderr }))
}

/// The error of a step that a signal has ended.
pub fn interrupted() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "interrupted")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        let mut program = Program::new("sh");
        program.args(["-c", script]);
        program
    }

    /// A process that has left the process group keeps the output open.
    #[test]
    fn a_signal_ends_a_program_and_the_output_of_what_it_leaves_is_not_waited_for() -> io::Result<()> {
        let begin = Instant::now();
        let (limit, none) = (Duration::from_secs(300), Interrupt::default());
        let ended = run(shell("sleep 300"), limit, &Interrupt::received(15));
        assert!(ended.is_err_and(|error| error.kind() == io::ErrorKind::Interrupted));
        let printed = run(shell("echo a; echo b >&2; setsid sleep 20 & exit 3"), limit, &none)?;
        let printed = printed.map(|of| (of.status.code(), of.stdout, of.stderr));
        assert_eq!(printed, Some((Some(3), "a\n".to_owned(), "b\n".to_owned())));
        assert!(run(shell("setsid sleep 20 & sleep 300"), Duration::from_millis(300), &none)?.is_none());
        assert!(begin.elapsed() < Duration::from_secs(15));
        Ok(())
    }
}
