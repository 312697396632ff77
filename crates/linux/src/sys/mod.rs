//! All system calls, and the only `unsafe` code.
//!
//! Each function makes one request and returns the kernel's answer. Callers decide what to request and how to
//! handle errors.
#![allow(unsafe_code)]

pub mod aliases;
pub mod cpuid;
pub mod file;
pub mod handover;
pub mod memory;
pub mod mount;
pub mod netlink;
pub mod pagemap;
pub mod parallel_range;
pub mod pidfd;
pub mod process;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub mod ptrace;
pub mod remote_memory;
pub mod thread;
pub mod unmovable;

use std::io;

fn last_error() -> io::Error {
    io::Error::last_os_error()
}

/// Converts the result -1 of a system call to the error in errno.
fn checked<T: PartialEq + From<i8>>(result: T) -> io::Result<T> {
    if result == T::from(-1) { Err(last_error()) } else { Ok(result) }
}
