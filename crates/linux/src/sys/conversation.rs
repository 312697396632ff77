//! Conversations over sockets that another process may not serve: nothing waits beyond a deadline.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    thread,
    time::Duration,
};

use super::{aside::Deadline, socket, wait_readable, wait_writable};

/// Time between two attempts to connect to a socket whose queue is full, and between two checks for a signal.
const PAUSE: Duration = Duration::from_millis(20);

/// Connects to the UNIX stream socket that was opened as a place (`O_PATH`); the connection is non-blocking. The kernel
/// refuses a socket of another type (EPROTOTYPE). Waits until `deadline` for a place in a queue that is full.
pub fn connect(place: &File, deadline: &Deadline<'_>) -> io::Result<UnixStream> {
    loop {
        match socket::connect(place) {
            Ok(connection) => return Ok(UnixStream::from(connection)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let left = deadline.left().map_err(|error| match error.kind() {
                    io::ErrorKind::TimedOut => {
                        io::Error::new(error.kind(), "its queue of connections is full")
                    }
                    _ => error,
                })?;
                thread::sleep(left.min(PAUSE));
            }
            Err(error) => return Err(error),
        }
    }
}

/// Writes all `bytes` to a non-blocking connection until `deadline`.
pub fn send(mut stream: &UnixStream, mut bytes: &[u8], deadline: &Deadline<'_>) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(error) if is_early(&error) => drop(wait_writable(stream, deadline.left()?.min(PAUSE))?),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads from a non-blocking connection to its end, until `deadline`; fails beyond `limit` bytes. `check` is called
/// while it waits, and can end it.
pub fn receive(
    mut stream: &UnixStream,
    limit: usize,
    deadline: &Deadline<'_>,
    check: impl Fn() -> io::Result<()>,
) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    let mut piece = vec![0; 1 << 16];
    loop {
        // Before each read: there may be no end of bytes.
        let left = deadline.left()?;
        match stream.read(&mut piece) {
            Ok(0) => return Ok(all),
            Ok(read) => all.extend_from_slice(piece.get(..read).unwrap_or_default()),
            Err(error) if is_early(&error) => {
                if !wait_readable(stream, left.min(PAUSE))? {
                    check()?;
                }
            }
            Err(error) => return Err(error),
        }
        if all.len() > limit {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("longer than {limit} bytes")));
        }
    }
}

fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::{
        os::{
            fd::AsRawFd,
            unix::net::{UnixDatagram, UnixListener},
        },
        path::Path,
        time::Instant,
    };

    use super::*;
    use crate::sys::{checked, file::inside};

    fn place(folder: &tempfile::TempDir) -> io::Result<File> {
        inside::entry(folder.path(), Path::new("socket"))
    }

    /// Far more than a machine under load needs.
    const LONG: Duration = Duration::from_secs(30);

    fn soon() -> Deadline<'static> {
        Deadline::after(Duration::from_millis(200), None)
    }

    #[test]
    fn a_full_queue_is_not_waited_for_beyond_the_deadline() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let listener = UnixListener::bind(folder.path().join("socket"))?;
        let place = place(&folder)?;
        // SAFETY: makes the queue of a socket that we own shorter.
        checked(unsafe { libc::listen(listener.as_raw_fd(), 0) })?;
        let begin = Instant::now();
        let mut connected = Vec::new();
        let refused = loop {
            match connect(&place, &soon()) {
                Ok(stream) => connected.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        assert!(!connected.is_empty() && begin.elapsed() < LONG);
        drop(listener.accept()?);
        assert!(connect(&place, &Deadline::after(LONG, None)).is_ok(), "there is a place again");
        Ok(())
    }

    #[test]
    fn bytes_that_drip_have_one_deadline() -> io::Result<()> {
        let (ours, mut theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let begin = Instant::now();
        let drips = thread::spawn(move || {
            while theirs.write_all(b"x").is_ok() && begin.elapsed() < LONG {
                thread::sleep(Duration::from_millis(10));
            }
        });
        let received = receive(&ours, 1 << 20, &soon(), || Ok(()));
        assert_eq!(received.map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
        drop(ours);
        assert!(drips.join().is_ok() && begin.elapsed() < LONG);
        Ok(())
    }

    #[test]
    fn a_reader_that_does_not_read_and_a_writer_without_end_are_bounded() -> io::Result<()> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let sent = send(&ours, &vec![0; 16 << 20], &soon());
        assert_eq!(sent.map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
        theirs.set_nonblocking(true)?;
        let received = receive(&theirs, 1000, &soon(), || Ok(()));
        assert_eq!(received.map_err(|error| error.kind()), Err(io::ErrorKind::FileTooLarge));
        let checked =
            receive(&ours, 1000, &Deadline::after(LONG, None), || Err(io::Error::other("it is stopped")));
        assert!(checked.is_err_and(|error| error.to_string() == "it is stopped"));
        Ok(())
    }

    #[test]
    fn a_socket_of_another_type_is_refused() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let _datagrams = UnixDatagram::bind(folder.path().join("socket"))?;
        let refused = connect(&place(&folder)?, &soon()).map_err(|error| error.raw_os_error());
        assert_eq!(refused.err(), Some(Some(libc::EPROTOTYPE)));
        Ok(())
    }
}
