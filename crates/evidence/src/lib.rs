//! Which pages the memory of a process lies on: sample, regions, coverage, reason.

pub mod heap;
pub mod observation;
pub mod process;
pub mod proof;
