//! Every system call, and the only `unsafe` code.
//!
//! Each function does one thing to the kernel and tells what the kernel answered. What to ask for,
//! and what to do when it refuses, is decided above.
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

/// The errno of the last failed call, as an error.
fn last_error() -> io::Error {
    io::Error::last_os_error()
}

/// Turns the `-1` of a system call into its error.
fn checked<T: PartialEq + From<i8>>(result: T) -> io::Result<T> {
    if result == T::from(-1) { Err(last_error()) } else { Ok(result) }
}
