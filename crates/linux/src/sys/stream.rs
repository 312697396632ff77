//! Standard output and standard error, whose reader may not read: a terminal that is stopped, or a full pipe.

use std::{
    io,
    os::fd::AsRawFd,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use super::{checked, wait_writable};
use crate::{bounded_run::interrupted, interrupt::Interrupt};

/// Largest write for which a stream that is ready has room (pipe(7)).
const PIECE_BYTES: usize = libc::PIPE_BUF;
/// Interval of the checks for a signal.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Longest wait for a reader after a signal.
const AFTER_SIGNAL: Duration = Duration::from_millis(300);

/// Whether a wait for a reader was given up: the next ones do not wait.
static GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// Writes all of `bytes`. Waits for the reader; an error of kind `Interrupted` if it does not read after SIGINT, SIGTERM
/// or SIGHUP.
pub fn write_all(stream: &impl AsRawFd, mut bytes: &[u8]) -> io::Result<()> {
    let mut signalled: Option<Instant> = None;
    while !bytes.is_empty() {
        if wait_writable(stream, CHECK_INTERVAL)? {
            bytes = bytes.get(write(stream, bytes)?..).unwrap_or_default();
            signalled = None;
        } else if Interrupt::installed().signal().is_some() {
            let since = signalled.get_or_insert_with(Instant::now);
            if GIVEN_UP.load(Ordering::Relaxed) || since.elapsed() >= AFTER_SIGNAL {
                GIVEN_UP.store(true, Ordering::Relaxed);
                return Err(interrupted());
            }
        }
    }
    Ok(())
}

/// Writes what a stream that is ready has room for, and returns its length.
fn write(stream: &impl AsRawFd, bytes: &[u8]) -> io::Result<usize> {
    let piece = bytes.get(..PIECE_BYTES).unwrap_or(bytes);
    // SAFETY: reads a live buffer of this length.
    match checked(unsafe { libc::write(stream.as_raw_fd(), piece.as_ptr().cast(), piece.len()) }) {
        Ok(length) => Ok(length.unsigned_abs()),
        Err(error) => match error.kind() {
            // Another process may have taken the room, or made the stream non-blocking.
            io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => Ok(0),
            _ => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read, thread};

    use super::*;
    use crate::sys::pipe;

    #[test]
    fn a_slow_reader_gets_everything() -> io::Result<()> {
        let (mut from, to) = pipe()?;
        let bytes: Vec<u8> = (0..300_000u32).map(|n| n as u8).collect();
        let sent = bytes.clone();
        let writer = thread::spawn(move || write_all(&to, &sent));
        let mut read = Vec::new();
        from.read_to_end(&mut read)?;
        assert!(writer.join().is_ok_and(|written| written.is_ok()) && read == bytes);
        let (from, to) = pipe()?;
        drop(from);
        assert_eq!(write_all(&to, b"x").map_err(|error| error.kind()), Err(io::ErrorKind::BrokenPipe));
        Ok(())
    }
}
