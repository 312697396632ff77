//! Detached mounts: file systems reached through a descriptor only.

use std::{ffi::CStr, fs::File, io, os::fd::AsRawFd, ptr};

use super::{checked, owned};

/// Mounts a file system of type `kind` (as in /proc/filesystems) at no path; closing the descriptor unmounts
/// it. Needs CAP_SYS_ADMIN and Linux 5.2; ENODEV for an unknown type.
pub fn detached(kind: &CStr) -> io::Result<File> {
    // SAFETY: reads a live string and returns a new descriptor.
    let context = owned(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), libc::FSOPEN_CLOEXEC) })?;
    // SAFETY: the command takes neither a key nor a value.
    checked(unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            libc::FSCONFIG_CMD_CREATE,
            ptr::null::<libc::c_char>(),
            ptr::null::<libc::c_void>(),
            0,
        )
    })?;
    // SAFETY: no memory is passed; a new descriptor is returned.
    owned(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), libc::FSMOUNT_CLOEXEC, 0) })
}
