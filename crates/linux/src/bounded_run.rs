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
    run(program, timeout, &Interrupt::installed().cloned().unwrap_or_default())
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
