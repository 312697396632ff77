//! Running a program for its answer, and no longer than a limit.

use std::{
    io::{self, Read},
    net::Shutdown,
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use hugewise_linux::sys::process::GroupLeader;

/// More is not read, and a program that prints more waits for its end in vain.
const LARGEST_ANSWER: u64 = 16 << 20;

/// What a program answered.
pub(crate) struct Printed {
    pub succeeded: bool,
    pub stdout: String,
    pub stderr: String,
}

/// What `command` printed, its input closed; nothing if it did not end within `patience`, after which it
/// and its descendants were killed.
pub(crate) fn printed_by(mut command: Command, patience: Duration) -> io::Result<Option<Printed>> {
    let (stdout, theirs) = UnixStream::pair()?;
    command.stdin(Stdio::null()).stdout(OwnedFd::from(theirs));
    let (stderr, theirs) = UnixStream::pair()?;
    command.stderr(OwnedFd::from(theirs));
    let mut child = GroupLeader::start(&mut command, false)?;
    // Our copies of its ends, without which no end of its output would come.
    drop(command);
    let readers = [&stdout, &stderr].map(|stream| {
        stream.try_clone().map(|stream| {
            thread::spawn(move || {
                let mut bytes = Vec::new();
                let read = stream.take(LARGEST_ANSWER).read_to_end(&mut bytes);
                read.map(|_| String::from_utf8_lossy(&bytes).into_owned())
            })
        })
    });
    let begin = Instant::now();
    let ended = loop {
        let left = patience.saturating_sub(begin.elapsed());
        match child.wait(left)? {
            None if left.is_zero() => break None,
            None => {}
            Some(ended) => break Some(ended),
        }
    };
    drop(child);
    // A process that left the group may hold the other ends for ever. What was printed stays readable.
    for stream in [&stdout, &stderr] {
        let _ = stream.shutdown(Shutdown::Both);
    }
    let [stdout, stderr] =
        readers.map(|reader| reader?.join().map_err(|_| io::Error::other("its output could not be read"))?);
    let (stdout, stderr) = (stdout?, stderr?);
    Ok(ended.map(|ended| Printed { succeeded: ended.status.success(), stdout, stderr }))
}
