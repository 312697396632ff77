//! Runs a program within a time limit and captures its output.

use std::{
    io::{self, Read},
    net::Shutdown,
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{sys::process::GroupLeader, users::User};

/// Limit of each output stream, in bytes; a program that prints more blocks until the time limit.
const MAX_OUTPUT_BYTES: u64 = 16 << 20;

/// Exit status and output of a program; invalid UTF-8 is replaced.
pub struct Printed {
    pub succeeded: bool,
    pub stdout: String,
    pub stderr: String,
}

/// Runs `command` with empty standard input, as [`GroupLeader::start_as`] if there is a `user`. `None` if it did not
/// end within `timeout`; it and its process group are then killed.
pub fn run_with_timeout(
    mut command: Command,
    user: Option<User>,
    timeout: Duration,
) -> io::Result<Option<Printed>> {
    let (stdout, theirs) = UnixStream::pair()?;
    command.stdin(Stdio::null()).stdout(OwnedFd::from(theirs));
    let (stderr, theirs) = UnixStream::pair()?;
    command.stderr(OwnedFd::from(theirs));
    let mut child = match user {
        Some(user) => GroupLeader::start_as(&mut command, user)?,
        None => GroupLeader::start(&mut command, false)?,
    };
    // Closes this process' copies of the write ends; otherwise the readers would never see the end of file.
    drop(command);
    let readers = [&stdout, &stderr].map(|stream| {
        stream.try_clone().map(|stream| {
            thread::spawn(move || {
                let mut bytes = Vec::new();
                let read = stream.take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes);
                read.map(|_| String::from_utf8_lossy(&bytes).into_owned())
            })
        })
    });
    let begin = Instant::now();
    let ended = loop {
        let left = timeout.saturating_sub(begin.elapsed());
        match child.wait(left)? {
            None if left.is_zero() => break None,
            None => {}
            Some(ended) => break Some(ended),
        }
    };
    drop(child);
    // A process that left the group may keep its write ends open. Bytes already written stay readable.
    for stream in [&stdout, &stderr] {
        let _ = stream.shutdown(Shutdown::Both);
    }
    let [stdout, stderr] =
        readers.map(|reader| reader?.join().map_err(|_| io::Error::other("the output could not be read"))?);
    let (stdout, stderr) = (stdout?, stderr?);
    Ok(ended.map(|ended| Printed { succeeded: ended.status.success(), stdout, stderr }))
}
