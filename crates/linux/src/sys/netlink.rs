//! Generic netlink: datagrams to and from the kernel.

use std::{
    fs::File,
    io::{self, Read, Write},
    mem::size_of,
    os::fd::{AsRawFd, FromRawFd},
};

use libc::{c_int, c_void, socklen_t};

use super::checked;

/// A socket of the generic netlink, which never waits.
#[derive(Debug)]
pub struct Socket(File);

impl Socket {
    /// Opens it, with room for `buffer` bytes of messages that were not read yet.
    pub fn open(buffer: c_int) -> io::Result<Socket> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: returns a new descriptor.
        let descriptor = checked(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_GENERIC) })?;
        // SAFETY: the descriptor is new and nobody else's.
        let file = unsafe { File::from_raw_fd(descriptor) };
        // The larger one takes CAP_NET_ADMIN; what the system allows will do without.
        for option in [libc::SO_RCVBUFFORCE, libc::SO_RCVBUF] {
            // SAFETY: reads one int that is live, of the length that is told.
            let done = unsafe {
                libc::setsockopt(
                    file.as_raw_fd(),
                    libc::SOL_SOCKET,
                    option,
                    (&raw const buffer).cast::<c_void>(),
                    size_of::<c_int>() as socklen_t,
                )
            };
            if done == 0 {
                break;
            }
        }
        Ok(Socket(file))
    }

    /// Sends one message to the kernel.
    pub fn send(&self, message: &[u8]) -> io::Result<()> {
        // An address of zeros is the kernel's, and that of a socket that was connected to nobody.
        let sent = (&self.0).write(message)?;
        if sent == message.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// The next datagram; nothing where none waits. ENOBUFS where some were lost since the last call.
    pub fn receive(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.0).read(into) {
            Ok(length) => Ok(Some(length)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits up to `milliseconds` for a datagram.
    pub fn wait(&self, milliseconds: c_int) -> io::Result<bool> {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd that is live.
        checked(unsafe { libc::poll(&raw mut poll, 1, milliseconds) }).map(|ready| ready > 0)
    }
}
