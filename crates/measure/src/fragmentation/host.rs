//! Starts the process that fragments memory, and restores free memory afterwards.

use std::{
    ffi::OsString,
    io::{self, BufRead, BufReader, ErrorKind},
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::PathBuf,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use hugewise_linux::{
    hugepages::{headroom, page_sizes::PageSizes},
    interrupt::Interrupt,
    proc::meminfo,
    reading::{Reading, Reason},
    root::Root,
    sys::{
        file,
        process::{GroupLeader, Program},
    },
    units::{Bytes, Pages},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    engine::FragmentationOutcome,
    plan::{Plan, Refusal, State},
    probe,
    worker::{self, WorkerMessage},
};
use crate::execution::Launch;

/// File that compacts all memory when it is written to; it contains no setting.
const COMPACT: &str = "proc/sys/vm/compact_memory";
/// Interval at which signals are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Time for free memory to merge after the process has ended.
const SETTLE_TIME_LIMIT: Duration = Duration::from_secs(2);
/// Time limit for the process that requests the missing huge pages.
const COMPACTION_TIME_LIMIT: Duration = Duration::from_secs(15);
/// Least share of the former free blocks at which memory counts as restored.
const MIN_RESTORED_SHARE: f64 = 0.9;

/// Fragments memory, any number of times.
#[derive(Debug)]
pub struct Fragmenter {
    /// Path of this program.
    pub program: PathBuf,
    pub root: Root,
    pub sizes: PageSizes,
    /// Requested size of fragmented memory; `None` for the default.
    pub asked: Option<Bytes>,
    /// Fragment only the requested size and leave other free blocks whole, so that other programs still get
    /// huge pages.
    pub share: bool,
    /// The environment of the started processes.
    pub environment: Launch,
}

#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("fragmenting memory: {0}")]
    Failed(Reason),
    #[error("the process that fragments memory cannot be started or read: {0}")]
    Process(#[from] io::Error),
    #[error("interrupted")]
    Interrupted,
}

/// Keeps memory fragmented until it is dropped.
#[derive(Debug)]
pub struct Held {
    process: GroupLeader,
    /// Connected to the process' standard input, whose end makes the process exit.
    _line: UnixStream,
    pub outcome: FragmentationOutcome,
    /// Free memory before the fragmentation.
    pub before: Free,
}

/// Free memory of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Free {
    /// Free whole blocks of the size of a huge page.
    pub blocks: Pages,
    pub bytes: Bytes,
}

/// Free memory before the fragmentation and after the restore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RestoredMemory {
    /// Free whole blocks of the size of a huge page before the fragmentation.
    pub blocks_before: Pages,
    /// Free whole blocks of the size of a huge page now.
    pub blocks_after: Pages,
    /// `MemFree` before the fragmentation, in bytes.
    #[serde(rename = "free_before_bytes")]
    pub free_before: Bytes,
    /// `MemFree` now, in bytes; programs and the page cache may have allocated memory in between.
    #[serde(rename = "free_after_bytes")]
    pub free_after: Bytes,
    /// `yes` if memory was compacted because too few blocks were free again, or `no:` with the reason; null
    /// if no compaction was needed.
    pub compacted: Option<String>,
}

impl RestoredMemory {
    /// Whether free memory is as contiguous as before.
    pub fn is_as_it_was(&self) -> bool {
        // Memory that other programs allocated in between is not expected to be free.
        let there = self.free_after.share_of(self.free_before).unwrap_or(1.0).min(1.0);
        self.blocks_after.0 as f64 >= self.blocks_before.0 as f64 * there * MIN_RESTORED_SHARE
    }
}

impl Fragmenter {
    /// The plan for the current state of the machine, or why memory cannot be fragmented.
    pub fn plan(&self) -> Result<Plan, Refusal> {
        let state = State::read(&self.root, &self.sizes)?;
        let plan = Plan::of(self.asked, &state)?;
        Ok(if self.share { Plan::of_a_share(plan.left, &state) } else { plan })
    }

    /// Fragments memory. `progress` receives the bytes filled so far, and the total.
    pub fn fragment(
        &self,
        interrupt: &Interrupt,
        progress: &mut dyn FnMut(Bytes, Bytes),
    ) -> Result<Held, HostError> {
        let plan = self.plan()?;
        let before = Free::read(&self.root, &self.sizes).map_err(HostError::Failed)?;
        let (ours, theirs) = UnixStream::pair()?;
        let launch = worker::launch(&self.program, &plan);
        let mut command = self.command(&launch.command);
        command
            .stdin(OwnedFd::from(theirs.try_clone()?))
            .stdout(OwnedFd::from(theirs))
            .stderr(Stdio::inherit());
        let mut process = command.start()?;
        ours.set_read_timeout(Some(POLL_INTERVAL))?;
        let outcome = listen(&ours, &mut process, plan.taken, interrupt, progress)?;
        Ok(Held { process, _line: ours, outcome, before })
    }

    /// Waits until free memory is contiguous again, and compacts it if it is not.
    ///
    /// Other programs may have allocated memory in the pieces. First all memory is compacted; if that is
    /// not enough, a process allocates the missing huge pages, which makes the kernel compact harder, and
    /// frees them again.
    pub fn restore(&self, before: Free, interrupt: &Interrupt) -> Result<RestoredMemory, HostError> {
        let read_free_memory = |compacted: &Option<String>| {
            let after = Free::read(&self.root, &self.sizes).map_err(HostError::Failed)?;
            Ok::<_, HostError>(RestoredMemory {
                blocks_before: before.blocks,
                blocks_after: after.blocks,
                free_before: before.bytes,
                free_after: after.bytes,
                compacted: compacted.clone(),
            })
        };
        let begin = Instant::now();
        let mut returned = read_free_memory(&None)?;
        while !returned.is_as_it_was() && begin.elapsed() < SETTLE_TIME_LIMIT {
            thread::sleep(POLL_INTERVAL);
            returned = read_free_memory(&None)?;
        }
        if returned.is_as_it_was() {
            return Ok(returned);
        }
        let compacted = Some(match file::set(&self.root.path(COMPACT), "1") {
            Ok(()) => "yes".to_owned(),
            Err(error) => format!("no: /{COMPACT}: {error}"),
        });
        returned = read_free_memory(&compacted)?;
        if !returned.is_as_it_was() {
            self.force_compaction(before, interrupt)?;
            returned = read_free_memory(&compacted)?;
        }
        Ok(returned)
    }

    fn force_compaction(&self, before: Free, interrupt: &Interrupt) -> Result<(), HostError> {
        let state = State::read(&self.root, &self.sizes)?;
        // Up to all free memory, minus the reserve.
        let most = Plan::of(None, &state).map_or(Bytes::ZERO, |plan| plan.taken);
        if most == Bytes::ZERO {
            return Ok(());
        }
        let launch = probe::launch(&self.program, (before.blocks * state.thp).min(most));
        let mut process = self.command(&launch.command).start()?;
        let begin = Instant::now();
        while begin.elapsed() < COMPACTION_TIME_LIMIT
            && interrupt.signal().is_none()
            && process.wait(POLL_INTERVAL)?.is_none()
        {}
        Ok(())
    }

    /// A process of this program, with its output discarded.
    fn command(&self, words: &[OsString]) -> Program {
        let mut command = Program::new(&self.program);
        command.args(words.get(1..).unwrap_or_default());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.environment.set_environment(&mut command);
        command
    }
}

fn listen(
    line: &UnixStream,
    process: &mut GroupLeader,
    total: Bytes,
    interrupt: &Interrupt,
    progress: &mut dyn FnMut(Bytes, Bytes),
) -> Result<FragmentationOutcome, HostError> {
    let mut reader = BufReader::new(line);
    let mut text = Vec::new();
    loop {
        if interrupt.signal().is_some() {
            return Err(HostError::Interrupted);
        }
        match reader.read_until(b'\n', &mut text) {
            Ok(0) => {
                let ended = process.wait(SETTLE_TIME_LIMIT)?.map(|ended| ended.status.to_string());
                let how = ended.unwrap_or_else(|| "status unknown".to_owned());
                return Err(HostError::Failed(Reason::new(format!(
                    "the process ended early ({how}): the kernel kills it first when memory runs out"
                ))));
            }
            Ok(_) => {
                let said: WorkerMessage = serde_json::from_slice(&text).map_err(io::Error::from)?;
                text.clear();
                match said {
                    WorkerMessage::Filled(bytes) => progress(bytes, total),
                    WorkerMessage::Ready(outcome) => return Ok(*outcome),
                    WorkerMessage::Failed(reason) => return Err(HostError::Failed(Reason::new(reason))),
                }
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                _ => return Err(error.into()),
            },
        }
    }
}

impl Held {
    /// Whether the process still runs: the kernel kills it first when memory runs out.
    pub fn is_held(&mut self) -> bool {
        matches!(self.process.wait(Duration::ZERO), Ok(None))
    }

    /// Releases all memory; returns the free memory before the fragmentation.
    pub fn end(self) -> Free {
        // The drop kills the process and waits for it, after which its memory is free.
        drop(self.process);
        self.before
    }
}

impl Free {
    pub fn read(root: &Root, sizes: &PageSizes) -> Result<Free, Reason> {
        let Some(thp) = sizes.thp else { return Reason::err("this kernel has no THP") };
        let blocks = headroom::read(root, sizes.base, thp)?.blocks;
        match meminfo::read(root).free {
            Reading::Known(bytes) => Ok(Free { blocks, bytes }),
            Reading::Unknown { unknown } => Reason::err(unknown),
        }
    }
}
