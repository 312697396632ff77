//! A program run as if the hugetlb pools held what we say: every request for explicit huge pages
//! is seen, and granted or refused from pretended pools; not one page of the real ones is taken.
//!
//! What is granted is served from ordinary memory, which costs nothing before it is touched. So a
//! rehearsal tells what a program asks for, in which order, and what it does when a pool is
//! short, on a machine that has no pool at all.

mod pretended_pools;

use std::{
    collections::BTreeMap,
    io::{self, Read},
    os::fd::AsRawFd,
    process::{Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use self::pretended_pools::{Stage, WATCHED};
use crate::{
    hugepages::page_sizes::PageSizes,
    sys::{file, ptrace},
    units::{Bytes, PageSize, Pages},
};

/// Of what a program prints, as much is kept.
const KEPT_OUTPUT: u64 = 1 << 20;

/// What a pretended pool holds; a size that is missing is held without limit.
pub type Pretended = BTreeMap<PageSize, Pages>;

/// What a program asked for, and how it ended.
#[derive(Debug)]
pub struct Rehearsal {
    /// Its requests for explicit huge pages, in their order.
    pub requests: Vec<Request>,
    /// How it ended.
    pub status: ExitStatus,
    /// The first of what it printed.
    pub stdout: String,
    /// And to its standard error.
    pub stderr: String,
}

/// A request for explicit huge pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The process that made it.
    pub process: u32,
    /// The size of the pages.
    pub page_size: PageSize,
    /// By which call.
    pub means: Means,
    /// Where it lies; nothing for a file, which may be mapped in many places.
    pub start: Option<u64>,
    /// How much was asked for.
    pub asked: Bytes,
    /// May it be executed?
    pub executable: bool,
    /// Was it granted?
    pub granted: bool,
    /// What the process still held of it when it ended.
    pub held: Bytes,
    /// Of a file: the size up to which it may grow.
    pub limit: Option<Bytes>,
}

/// The calls that explicit huge pages are asked for with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// `mmap` with MAP_HUGETLB.
    Anonymous,
    /// `memfd_create` with MFD_HUGETLB.
    File,
    /// `shmget` with SHM_HUGETLB.
    SharedMemory,
}

/// Runs `command` with pretended pools, for `patience` at most. Its standard input is empty.
pub fn rehearse(
    mut command: Command,
    sizes: &PageSizes,
    pools: &Pretended,
    patience: Duration,
) -> io::Result<Rehearsal> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let largest = sizes.hugetlb.iter().map(|size| size.bytes().0).max().unwrap_or_default();
    let named = file::inherited_memory(c"anon_hugepage", largest)?;
    let mut stage = Stage::new(sizes, pools, named.as_raw_fd());
    let mut outputs = None;
    let started = |child: &mut std::process::Child| {
        outputs = Some((listen(child.stdout.take()), listen(child.stderr.take())));
    };
    let status = ptrace::supervise(command, &WATCHED, patience, started, &mut stage)?;
    let (stdout, stderr) = outputs.map_or_else(Default::default, |(out, err)| {
        (out.join().unwrap_or_default(), err.join().unwrap_or_default())
    });
    Ok(Rehearsal { requests: stage.into_requests(), status, stdout, stderr })
}

/// Reads what comes through a pipe to its end, and keeps the first of it.
fn listen(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let Some(mut pipe) = pipe else { return String::new() };
        let mut kept = Vec::new();
        let _ = pipe.by_ref().take(KEPT_OUTPUT).read_to_end(&mut kept);
        let _ = io::copy(&mut pipe, &mut io::sink());
        String::from_utf8_lossy(&kept).into_owned()
    })
}
