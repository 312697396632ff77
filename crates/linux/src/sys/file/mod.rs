//! Files: the only module that opens them. Also locks of files, and terminals.
//!
//! What another user or a captured tree can shape is opened without waiting, checked by its descriptor, and read up to
//! a limit: [`read`], [`inside`] (below a folder that another may have filled, no link is followed) and [`in_root`] (a
//! captured tree, whose links lead to places inside it).

mod folder;
pub mod in_root;
pub mod inside;
mod output;
mod owners;
pub mod patient;
mod read;
mod storage;
mod write;

use std::{
    ffi::{CStr, CString},
    fs::File,
    io,
    mem::MaybeUninit,
    os::{fd::AsRawFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use super::{checked, owned};

pub use folder::Folder;
pub use output::{Output, Readers};
pub use owners::check_owners;
pub(crate) use read::text;
pub use read::{content, link, names, open, open_named, read, read_text};
pub use storage::stores_files;
pub use write::{create, create_new, open_folder, open_private, open_stream, open_to_add, private_dir, set};

/// The path of an open file, which leads to it whatever its name is now.
pub fn path_of(file: &impl AsRawFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Opens a file of this process for reading and writing. Allocates no memory: for a child between fork and exec.
pub(super) fn open_after_fork(path: &CStr) -> io::Result<File> {
    // SAFETY: reads a live string and returns a new descriptor.
    owned(unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) })
}

/// A file in memory of `size` zero bytes, inherited by child processes. Its mappings have `name` in
/// /proc/PID/maps.
pub fn inherited_memory(name: &CStr, size: u64) -> io::Result<File> {
    // SAFETY: reads a live string and returns a new descriptor.
    let file = owned(unsafe { libc::memfd_create(name.as_ptr(), 0) })?;
    file.set_len(size)?;
    Ok(file)
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
