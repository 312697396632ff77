//! Processes and threads: names, usage, and total waits.

use hugewise_linux::proc::taskstats::Delays;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A recorded process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Process {
    /// Time of the sample, in nanoseconds of CLOCK_MONOTONIC.
    pub ns: u64,
    /// PID.
    pub pid: u32,
    /// Name, from /proc/PID/comm.
    pub name: String,
    /// Command line.
    pub command: Vec<String>,
    /// PID in the process' own PID namespace; null if it has no other.
    pub pid_inside: Option<u32>,
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Thread {
    /// Time of the sample, in nanoseconds of CLOCK_MONOTONIC.
    pub ns: u64,
    /// TID.
    pub tid: u32,
    /// PID of its process.
    pub pid: u32,
    /// Name, truncated to 15 bytes by the kernel.
    pub name: String,
    /// Start, in clock ticks since boot; distinguishes threads that reuse a TID.
    pub started_ticks: u64,
}

/// Usage of threads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Time of the sample, in nanoseconds of CLOCK_MONOTONIC.
    pub ns: u64,
    /// Usage by thread.
    pub threads: Vec<ThreadUsage>,
}

/// Usage of a thread since its start (/proc/PID/task/TID/stat).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadUsage {
    /// TID.
    pub tid: u32,
    /// CPU time in user space, in nanoseconds; the kernel counts it in ticks, usually of 10 ms.
    pub user_ns: u64,
    /// CPU time in the kernel, in nanoseconds, counted in ticks.
    pub sys_ns: u64,
    /// Page faults without I/O.
    pub minor_faults: u64,
    /// Page faults with I/O.
    pub major_faults: u64,
}

/// Waits of threads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DelaysOfThreads {
    /// Time of the sample, in nanoseconds of CLOCK_MONOTONIC.
    pub ns: u64,
    /// Waits by thread.
    pub threads: Vec<ThreadDelays>,
}

/// Waits of a thread since its start, from delay accounting (taskstats).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadDelays {
    /// TID.
    pub tid: u32,
    /// Waits by cause. All except `cpu` are 0 for a thread that started before delay accounting was on (see
    /// the header's `evidence`).
    #[serde(flatten)]
    pub delays: Delays,
}

/// Direct compaction and direct reclaim, in nanoseconds.
pub fn memory_waits_ns(delays: &Delays) -> (u64, u64) {
    (delays.compact.map_or(0, |delay| delay.ns), delays.reclaim.ns)
}

/// Final usage and waits of an exited thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadEnd {
    /// Time of the report, in nanoseconds of CLOCK_MONOTONIC; later than the exit by up to a sampling
    /// interval.
    pub ns: u64,
    /// PID of its process; null before Linux 5.19.
    pub pid: Option<u32>,
    /// Name at its exit.
    pub name: String,
    /// Total usage.
    #[serde(flatten)]
    pub usage: ThreadUsage,
    /// Total waits.
    pub delays: Delays,
}
