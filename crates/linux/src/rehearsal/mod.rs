//! Runs a program with simulated hugetlb pools: every request for hugetlb pages is intercepted, and granted
//! or refused from the simulated pools. No page of the real pools is used.
//!
//! Granted requests get ordinary memory, which uses no pages before the first touch. A rehearsal thus shows a
//! program's requests, their order, and its behaviour if a pool is too small, also on a machine without
//! pools.

mod simulated_pools;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    io,
    os::fd::AsRawFd,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use self::simulated_pools::{PoolSimulator, WATCHED_CALLS};
use crate::{
    captured_output::CapturedOutput,
    hugepages::page_sizes::PageSizes,
    interrupt::Interrupt,
    sys::{file, process::Program, ptrace},
    units::{Bytes, PageSize, Pages},
};

/// Maximum output kept of each stream, in bytes.
const MAX_OUTPUT_BYTES: usize = 1 << 20;

/// Pages of each simulated pool; unlimited for a missing size.
pub type SimulatedPools = BTreeMap<PageSize, Pages>;

/// The conditions under which a program is rehearsed.
#[derive(Clone, Copy, Debug)]
pub struct Conditions<'a> {
    pub sizes: &'a PageSizes,
    pub pools: &'a SimulatedPools,
    pub placement: Placement,
    pub ending: Ending,
    /// Time after which all processes are killed.
    pub timeout: Duration,
}

/// The addresses of granted `mmap` requests without an address of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Apart from each other.
    Upwards,
    /// Each directly below the others, as the kernel does if no gap is large enough. The first one ends `offset` bytes
    /// above a multiple of all page sizes.
    Downwards { offset: Bytes },
}

/// The end of a rehearsal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The program exits.
    Exit,
    /// The program is killed when it first reads its standard input, if it has not exited before.
    FirstRead,
}

/// The requests of a program, and its exit status and output.
#[derive(Debug)]
pub struct Rehearsal {
    /// The requests for hugetlb pages, in order.
    pub requests: Vec<HugetlbRequest>,
    pub status: ExitStatus,
    /// Whether it reached [`Ending::FirstRead`], with the memory that it then held.
    pub is_stopped: bool,
    /// The first part of its standard output.
    pub stdout: String,
    /// The first part of its standard error.
    pub stderr: String,
}

/// A request for hugetlb pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HugetlbRequest {
    /// The process id.
    pub process: u32,
    pub page_size: PageSize,
    /// The system call.
    pub means: HugetlbCall,
    /// The start address; `None` for a file, which may be mapped several times.
    pub start: Option<u64>,
    /// The requested bytes.
    pub asked: Bytes,
    /// True if the memory is executable.
    pub executable: bool,
    pub granted: bool,
    /// Bytes still held when the process ended.
    pub held: Bytes,
    /// The size of a file, which limits its requests; `None` for other calls.
    pub limit: Option<Bytes>,
}

/// The system calls that request hugetlb pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugetlbCall {
    Anonymous,
    File,
    SharedMemory,
}

/// Runs `program` with simulated pools and empty standard input.
pub fn rehearse(mut program: Program, conditions: &Conditions<'_>) -> io::Result<Rehearsal> {
    let output = CapturedOutput::of(program.stdin(Stdio::null()), MAX_OUTPUT_BYTES)?;
    let largest = conditions.sizes.hugetlb.iter().map(|size| size.bytes().0).max().unwrap_or_default();
    let hugepage_file = file::inherited_memory(c"anon_hugepage", largest)?;
    let mut simulator = PoolSimulator::new(conditions, hugepage_file.as_raw_fd());
    program.keep(&hugepage_file);
    let interrupt = Interrupt::installed();
    let is_interrupted = || interrupt.signal().is_some();
    let status =
        ptrace::supervise(program, &WATCHED_CALLS, conditions.timeout, &is_interrupted, &mut simulator)?;
    let [stdout, stderr] = output.finish()?;
    let is_stopped = simulator.is_stopped;
    Ok(Rehearsal { requests: simulator.into_requests(), status, is_stopped, stdout, stderr })
}
