//! Readings of /proc: the machine, its processes and their threads.

pub mod fields;
pub mod halted;
pub mod limits;
pub mod meminfo;
pub mod mounts;
pub mod overcommit;
pub mod pressure;
pub mod process;
pub mod segments;
pub mod smaps;
pub mod task_stat;
pub mod taskstats;
pub mod threads;
pub mod tree;
pub mod vmstat;
