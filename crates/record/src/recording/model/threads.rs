//! Processes and threads: who they are, what they used, and what they waited for in all.

use hugewise_linux::proc::taskstats::Delays;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A process of the recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Process {
    /// When this was read.
    pub ns: u64,
    /// Its number.
    pub pid: u32,
    /// What it calls itself.
    pub name: String,
    /// Its command line.
    pub command: Vec<String>,
    /// Its number in its own PID name space, where that is another one.
    pub pid_inside: Option<u32>,
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Thread {
    /// When this was read.
    pub ns: u64,
    /// Its number.
    pub tid: u32,
    /// That of its process.
    pub pid: u32,
    /// Its name, of which the kernel keeps 15 bytes.
    pub name: String,
    /// Its start in clock ticks since boot, which tells it from a later one of its number.
    pub started_ticks: u64,
}

/// What threads have used so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// When this was read.
    pub ns: u64,
    /// Thread by thread, since its start.
    pub threads: Vec<ThreadUsage>,
}

/// What a thread has used since its start: /proc/PID/task/TID/stat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadUsage {
    /// The thread.
    pub tid: u32,
    /// CPU time in user space; the kernel tells it in ticks, of 10 ms nearly everywhere.
    pub user_ns: u64,
    /// CPU time in the kernel.
    pub sys_ns: u64,
    /// Page faults that needed no I/O.
    pub minor_faults: u64,
    /// Page faults that needed I/O.
    pub major_faults: u64,
}

/// What threads have waited for so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DelaysOfThreads {
    /// When this was read.
    pub ns: u64,
    /// Thread by thread, since its start.
    pub threads: Vec<ThreadDelays>,
}

/// What a thread has waited for since its start, by taskstats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadDelays {
    /// The thread.
    pub tid: u32,
    /// What it waited for. All of it but `cpu` is zero, whatever it waited for, where the thread was
    /// made before the kernel began to account (see the header's evidence).
    #[serde(flatten)]
    pub delays: Delays,
}

/// The last that the kernel told of a thread, when it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadEnd {
    /// When this was read: up to a look later than its end.
    pub ns: u64,
    /// That of its process, since Linux 5.19.
    pub pid: Option<u32>,
    /// Its name at its end.
    pub name: String,
    /// What it used.
    #[serde(flatten)]
    pub usage: ThreadUsage,
    /// What it waited for.
    pub delays: Delays,
}
