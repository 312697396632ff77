//! All system calls, and the only `unsafe` code.
//!
//! Each function makes one request and returns the kernel's answer. Callers decide what to request and how to
//! handle errors.
#![allow(unsafe_code)]

pub mod aliases;
pub mod aside;
pub mod conversation;
pub mod cpuid;
pub mod exit_stop;
pub mod file;
pub mod memory;
pub mod mount;
pub mod namespace;
pub mod netlink;
pub mod pagemap;
pub mod parallel_range;
pub mod pidfd;
pub mod process;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub mod ptrace;
pub mod remote_memory;
pub mod socket;
pub mod stream;
pub mod thread;
pub mod unmovable;

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, FromRawFd},
    ptr,
    time::Duration,
};

/// Converts the result -1 of a system call to the error in errno.
fn checked<T: PartialEq + From<i8>>(result: T) -> io::Result<T> {
    if result == T::from(-1) { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn no_memory() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOMEM)
}

/// Takes ownership of the new descriptor that a system call returned.
fn owned(result: impl Into<libc::c_long>) -> io::Result<File> {
    let descriptor = libc::c_int::try_from(checked(result.into())?).map_err(io::Error::other)?;
    // SAFETY: the descriptor is new and not shared.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// A pipe: the end to read, and the end to write.
pub fn pipe() -> io::Result<(File, File)> {
    let mut ends = [0; 2];
    // SAFETY: writes two descriptors, which are new.
    unsafe {
        checked(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC))?;
        Ok((File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])))
    }
}

/// Waits at most `timeout` until `file` is readable; a signal to this process ends the wait early.
pub fn wait_readable(file: &impl AsRawFd, timeout: Duration) -> io::Result<bool> {
    wait_for(file, libc::POLLIN, timeout)
}

/// Waits at most `timeout` until `file` is writable; a signal to this process ends the wait early.
pub fn wait_writable(file: &impl AsRawFd, timeout: Duration) -> io::Result<bool> {
    wait_for(file, libc::POLLOUT, timeout)
}

fn wait_for(file: &impl AsRawFd, events: libc::c_short, timeout: Duration) -> io::Result<bool> {
    let mut poll = libc::pollfd { fd: file.as_raw_fd(), events, revents: 0 };
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // SAFETY: one pollfd and one timespec, both live; no signal mask.
    match checked(unsafe { libc::ppoll(&raw mut poll, 1, &raw const timeout, ptr::null()) }) {
        Ok(ready) => Ok(ready > 0),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        Err(error) => Err(error),
    }
}
