//! Page sizes that back the memory of a process: sample, regions, coverage, reason.

pub mod heap;
pub mod observation;
pub mod process;
pub mod proof;
