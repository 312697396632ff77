//! UNIX sockets that are opened before they are connected to.

use std::{
    fs::File,
    io, mem,
    os::fd::{AsRawFd, OwnedFd},
};

use super::{checked, owned};

/// A non-blocking connection to the socket that was opened as a place (`O_PATH`). Does not wait: `WouldBlock` if the
/// backlog of the socket is full.
pub fn connect(place: &File) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes numbers only, and returns a new descriptor.
    let socket = owned(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?;
    // SAFETY: zero is a valid value of each field.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let path = format!("/proc/self/fd/{}", place.as_raw_fd());
    for (to, from) in address.sun_path.iter_mut().zip(path.bytes()) {
        *to = from as libc::c_char;
    }
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: reads one live address of the given length, whose path ends in a zero.
    checked(unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    Ok(socket.into())
}
