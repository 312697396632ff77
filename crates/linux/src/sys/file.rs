//! Files that only their owner can have created, file locks, and terminals.

use std::{
    ffi::{CStr, CString},
    fs::{DirBuilder, File, OpenOptions},
    io,
    mem::MaybeUninit,
    os::{
        fd::AsRawFd,
        unix::{
            ffi::OsStrExt,
            fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
        },
    },
    path::Path,
};

use super::{checked, owned, process};

/// Opens the folder `path`, creating it with mode 0700 if missing.
///
/// Fails for a link, a folder of another owner, and a folder in which other users can create files.
pub fn private_dir(path: &Path) -> io::Result<File> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let dir = OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(path)?;
    let found = dir.metadata()?;
    if found.uid() != process::effective_uid() || found.mode() & 0o022 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("it belongs to uid {} with mode {:o}", found.uid(), found.mode() & 0o7777),
        ));
    }
    Ok(dir)
}

/// A file in memory of `size` zero bytes, inherited by child processes. Its mappings have `name` in
/// /proc/PID/maps.
pub fn inherited_memory(name: &CStr, size: u64) -> io::Result<File> {
    // SAFETY: reads a live string and returns a new descriptor.
    let file = owned(unsafe { libc::memfd_create(name.as_ptr(), 0) })?;
    file.set_len(size)?;
    Ok(file)
}

/// Opens a regular file for reading. Does not block on a pipe or device in its place.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

/// Releases the disk space of the first `bytes` of a file and keeps its length. EOPNOTSUPP if the file system
/// cannot.
pub fn release_beginning(file: &File, bytes: u64) -> io::Result<()> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let bytes = libc::off_t::try_from(bytes).map_err(io::Error::other)?;
    // SAFETY: fallocate takes a descriptor that we own and no memory.
    checked(unsafe { libc::fallocate(file.as_raw_fd(), mode, 0, bytes) }).map(drop)
}

/// Takes the exclusive lock of an open file; `false` if another process holds it.
///
/// The lock is released when the file is closed or the process ends.
pub fn try_lock(file: &File) -> io::Result<bool> {
    // SAFETY: flock takes a descriptor that we own and no memory.
    match checked(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// True if the program file has file capabilities; `false` if they cannot be read.
pub fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: two strings with a final zero byte and no buffer: only the size of the attribute is read.
    unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

/// Columns of the terminal `file`; `None` if `file` is not a terminal or does not report its size.
pub fn terminal_columns(file: &impl AsRawFd) -> Option<usize> {
    let mut size = MaybeUninit::<libc::winsize>::zeroed();
    // SAFETY: writes one live winsize, for which zero is valid.
    let size = unsafe {
        checked(libc::ioctl(file.as_raw_fd(), libc::TIOCGWINSZ, size.as_mut_ptr())).ok()?;
        size.assume_init()
    };
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}
