//! Readings of Linux, and system calls. No policy: nothing here decides what a reading means.
//!
//! [`sys`] holds every system call and the only `unsafe` code. Readers of /proc and /sys take the
//! [`root::Root`] they read from, so that a captured tree of another machine, or one made for a
//! test, is read the same way. Nothing here writes a setting.

pub mod c_library;
pub mod capture;
pub mod cgroup;
pub mod cpu;
pub mod facts;
pub mod hugepages;
pub mod interrupt;
mod native_endian;
pub mod numa;
pub mod pages;
pub mod proc;
pub mod reading;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub mod rehearsal;
pub mod root;
pub mod settings;
pub mod sys;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tracefs;
pub mod units;
