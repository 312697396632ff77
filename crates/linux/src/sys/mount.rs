//! File systems that are mounted nowhere: only who holds the descriptor sees them.

use std::{
    ffi::CStr,
    fs::File,
    io,
    os::fd::{AsRawFd, FromRawFd},
};

use super::checked;

const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;

/// A file system of type `kind` (as in /proc/filesystems) that no path leads to; it goes with its
/// descriptor. Needs CAP_SYS_ADMIN and Linux 5.2; ENODEV where the kernel has no such type.
pub fn detached(kind: &CStr) -> io::Result<File> {
    // SAFETY: reads one string that is live, and returns a new descriptor.
    let context = owned(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC) })?;
    // SAFETY: the command takes neither a key nor a value.
    checked(unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            FSCONFIG_CMD_CREATE,
            std::ptr::null::<libc::c_char>(),
            std::ptr::null::<libc::c_void>(),
            0,
        )
    })?;
    // SAFETY: no memory is passed; a new descriptor is returned.
    owned(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, 0) })
}

/// The descriptor that a system call has just made.
fn owned(result: libc::c_long) -> io::Result<File> {
    let descriptor = checked(result)?;
    let descriptor = libc::c_int::try_from(descriptor).map_err(io::Error::other)?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}
