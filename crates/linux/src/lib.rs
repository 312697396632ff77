//! Readings of Linux, and system calls. Readings are not interpreted here.
//!
//! [`sys`] holds all system calls and the only `unsafe` code. Readers of /proc and /sys take a
//! [`root::Root`], so that they also read captured trees of other machines and trees made for tests. No
//! setting is written here.

pub mod action;
pub mod at_boot;
pub mod bounded_run;
pub mod c_library;
pub mod capture;
mod captured_output;
pub mod cgroup;
pub mod cpu;
pub mod elf_sections;
pub mod empty_folder;
pub mod executable;
pub mod facts;
pub mod hugepages;
pub mod interrupt;
pub mod json;
mod native_endian;
pub mod numa;
pub mod pages;
pub mod printable;
pub mod proc;
pub mod reading;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub mod rehearsal;
pub mod root;
pub mod settings;
pub mod shell;
pub mod sys;
pub mod systemd;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tracefs;
pub mod units;
pub mod users;
