//! Generic netlink: messages to and from the kernel.

use std::{
    fs::File,
    io::{self, Read, Write},
    mem::size_of,
    os::fd::AsRawFd,
    time::Duration,
};

use libc::{c_int, c_void, socklen_t};

use super::{owned, wait_readable};

/// A non-blocking socket for generic netlink.
#[derive(Debug)]
pub struct Socket(File);

impl Socket {
    /// Opens a socket with a receive buffer of `buffer` bytes.
    pub fn open(buffer: c_int) -> io::Result<Socket> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: returns a new descriptor.
        let file = owned(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_GENERIC) })?;
        // The first option exceeds the system's limit and needs CAP_NET_ADMIN; the second suffices.
        for option in [libc::SO_RCVBUFFORCE, libc::SO_RCVBUF] {
            // SAFETY: reads one live int, of the given length.
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

    pub fn send(&self, message: &[u8]) -> io::Result<()> {
        // An unconnected netlink socket sends to address 0, which is the kernel's.
        let sent = (&self.0).write(message)?;
        if sent == message.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Reads the next datagram; `None` if there is none. ENOBUFS if messages were lost since the last call.
    pub fn receive(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.0).read(into) {
            Ok(length) => Ok(Some(length)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits at most `timeout` for a datagram; `false` if none arrived.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        wait_readable(&self.0, timeout)
    }
}
