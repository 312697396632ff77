//! Files below a folder that another user may have filled, such as /proc/PID/root, read aside.

use std::{
    io,
    os::{
        fd::OwnedFd,
        unix::fs::{FileTypeExt, MetadataExt},
    },
    path::Path,
};

use super::{Deadline, ask, ask_for_socket};
use crate::sys::{
    file::{self, inside},
    socket,
};

/// The content of the regular file `path` below `folder`, which belongs to `owner` and lies on a file system that
/// stores files: not on proc. At most `limit` bytes; a longer file is an error.
pub fn read(
    folder: &Path,
    path: &Path,
    owner: u32,
    limit: usize,
    deadline: &Deadline<'_>,
) -> io::Result<Vec<u8>> {
    ask(&[], deadline, limit, || file::content(inside::open_of(folder, path, owner)?, limit as u64))
}

/// A non-blocking connection to the UNIX socket `path` below `folder`, which belongs to `owner`.
///
/// `WouldBlock` if the socket accepts no connection now, because too many wait there.
pub fn connect(folder: &Path, path: &Path, owner: u32, deadline: &Deadline<'_>) -> io::Result<OwnedFd> {
    ask_for_socket(&[], deadline, || {
        // Connecting by name could follow a link.
        let place = inside::entry(folder, path)?;
        let found = place.metadata()?;
        if !found.file_type().is_socket() || found.uid() != owner {
            return Err(io::Error::other(format!("it is not a socket of uid {owner}")));
        }
        socket::connect(&place)
    })
}
