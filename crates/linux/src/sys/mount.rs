//! Detached mounts: file systems reached through a descriptor only.

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

/// Mounts a file system of type `kind` (as in /proc/filesystems) at no path; closing the descriptor unmounts
/// it. Needs CAP_SYS_ADMIN and Linux 5.2; ENODEV for an unknown type.
pub fn detached(kind: &CStr) -> io::Result<File> {
    // SAFETY: reads a live string and returns a new descriptor.
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

/// Takes ownership of the descriptor that a system call returned.
fn owned(result: libc::c_long) -> io::Result<File> {
    let descriptor = checked(result)?;
    let descriptor = libc::c_int::try_from(descriptor).map_err(io::Error::other)?;
    // SAFETY: the descriptor is new and not shared.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}
