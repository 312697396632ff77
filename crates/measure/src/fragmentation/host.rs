//! Starts the process that fragments memory, and sees to it that everything comes back.

use std::{
    ffi::OsString,
    fs,
    io::{self, BufRead, BufReader},
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use hugewise_linux::{
    hugepages::{headroom, page_sizes::PageSizes},
    interrupt::Interrupt,
    proc::meminfo,
    root::Root,
    sys::process::GroupLeader,
    units::{Bytes, Pages},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    engine::Outcome,
    plan::{Plan, Refusal, State},
    probe,
    worker::{self, Said},
};
use crate::execution::Launch;

/// Asks the kernel to compact all memory; it is no setting.
const COMPACT: &str = "proc/sys/vm/compact_memory";
/// A signal for us is noticed after so long.
const GLANCE: Duration = Duration::from_millis(100);
/// So long free memory may take to come together after the process has ended.
const SETTLING: Duration = Duration::from_secs(2);
/// So long the kernel may try to make the missing blocks whole.
const TRYING: Duration = Duration::from_secs(15);
/// Less of the blocks than this share is not what it was.
const AS_IT_WAS: f64 = 0.9;

/// Fragments memory, as often as it is asked to.
#[derive(Debug)]
pub struct Fragmenter {
    /// This program.
    pub program: PathBuf,
    /// The machine.
    pub root: Root,
    /// Its page sizes.
    pub sizes: PageSizes,
    /// What the user asked for.
    pub asked: Option<Bytes>,
    /// Take only that from the machine, and leave all else as it is, so that others find huge pages there.
    pub share: bool,
    /// The environment of what is started.
    pub environment: Launch,
}

/// Why memory is not fragmented.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// It was not begun.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It could not be done.
    #[error("fragmenting memory: {0}")]
    Failed(String),
    /// The process could not be started or heard.
    #[error("the process that fragments memory: {0}")]
    Process(#[from] io::Error),
    /// A signal came for us.
    #[error("interrupted")]
    Interrupted,
}

/// Memory is fragmented as long as this lives.
#[derive(Debug)]
pub struct Held {
    process: GroupLeader,
    /// The other end is the process' standard input: it ends with it, too.
    _line: UnixStream,
    /// What was done.
    pub outcome: Outcome,
    /// What was free before: whole blocks, and all.
    pub before: Free,
}

/// What is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Free {
    /// Whole blocks of the size of a huge page.
    pub blocks: Pages,
    /// `MemFree`.
    pub bytes: Bytes,
}

/// What was given back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Returned {
    /// Whole blocks of the size of a huge page that were free before.
    pub blocks_before: Pages,
    /// Those that are free now.
    pub blocks_after: Pages,
    /// `MemFree` before, in bytes.
    pub free_before: Bytes,
    /// The same now: programs and the page cache may have taken some meanwhile.
    pub free_after: Bytes,
    /// Was the kernel asked to compact memory, because too few came back by themselves; or why it was not.
    pub compacted: Option<String>,
}

impl Returned {
    /// Does as much of what is free lie in whole blocks as before?
    #[must_use]
    pub fn is_as_it_was(&self) -> bool {
        // What others took meanwhile cannot come back.
        let there = self.free_after.share_of(self.free_before).unwrap_or(1.0).min(1.0);
        self.blocks_after.0 as f64 >= self.blocks_before.0 as f64 * there * AS_IT_WAS
    }
}

impl Fragmenter {
    /// What would be done now, or why nothing would.
    pub fn plan(&self) -> Result<Plan, Refusal> {
        let state = State::read(&self.root, &self.sizes)?;
        let plan = Plan::of(self.asked, &state)?;
        Ok(if self.share { Plan::of_a_share(plan.left, &state) } else { plan })
    }

    /// Does it. `progress` hears of bytes filled, and of how many there will be.
    pub fn fragment(
        &self,
        interrupt: &Interrupt,
        progress: &mut dyn FnMut(Bytes, Bytes),
    ) -> Result<Held, HostError> {
        let plan = self.plan()?;
        let before = Free::read(&self.root, &self.sizes)?;
        let (ours, theirs) = UnixStream::pair()?;
        let launch = worker::launch(&self.program, &plan);
        let mut command = self.command(&launch.command);
        command
            .stdin(OwnedFd::from(theirs.try_clone()?))
            .stdout(OwnedFd::from(theirs))
            .stderr(Stdio::inherit());
        let mut process = GroupLeader::start(&mut command, false)?;
        // And with it our copy of their end, so that the process' end is the end of the line.
        drop(command);
        ours.set_read_timeout(Some(GLANCE))?;
        let outcome = listen(&ours, &mut process, plan.taken, interrupt, progress)?;
        Ok(Held { process, _line: ours, outcome, before })
    }
}

fn listen(
    line: &UnixStream,
    process: &mut GroupLeader,
    total: Bytes,
    interrupt: &Interrupt,
    progress: &mut dyn FnMut(Bytes, Bytes),
) -> Result<Outcome, HostError> {
    let mut reader = BufReader::new(line);
    let mut text = Vec::new();
    loop {
        if interrupt.signal().is_some() {
            return Err(HostError::Interrupted);
        }
        match reader.read_until(b'\n', &mut text) {
            Ok(0) => {
                let ended = process.wait(SETTLING)?.map(|ended| ended.status.to_string());
                let how = ended.unwrap_or_else(|| "without a word".to_owned());
                return Err(HostError::Failed(format!(
                    "the process ended early ({how}): where memory runs short, the kernel ends it before all others"
                )));
            }
            Ok(_) => {
                let said: Said = serde_json::from_slice(&text).map_err(io::Error::from)?;
                text.clear();
                match said {
                    Said::Filled(bytes) => progress(bytes, total),
                    Said::Ready(outcome) => return Ok(*outcome),
                    Said::Failed(reason) => return Err(HostError::Failed(reason)),
                }
            }
            Err(error)
                if [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut, io::ErrorKind::Interrupted]
                    .contains(&error.kind()) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

impl Held {
    /// Is it still held? The kernel ends it before all others where memory runs short.
    pub fn is_held(&mut self) -> bool {
        matches!(self.process.wait(Duration::ZERO), Ok(None))
    }

    /// Gives everything back; what was free before.
    pub fn end(self) -> Free {
        // Ended, and waited for: its memory is free.
        drop(self.process);
        self.before
    }
}

impl Fragmenter {
    /// Looks whether free memory lies as it did, and sees to it as far as the kernel can.
    ///
    /// What others took meanwhile lies in the pieces. The kernel is asked to compact all memory; where that
    /// is not enough, a process asks for huge pages in place of those that are missing, for which the kernel
    /// tries harder, and gives them back.
    pub fn restore(&self, before: Free, interrupt: &Interrupt) -> Result<Returned, HostError> {
        let look = |compacted: &Option<String>| {
            let after = Free::read(&self.root, &self.sizes)?;
            Ok::<_, HostError>(Returned {
                blocks_before: before.blocks,
                blocks_after: after.blocks,
                free_before: before.bytes,
                free_after: after.bytes,
                compacted: compacted.clone(),
            })
        };
        let begin = Instant::now();
        let mut returned = look(&None)?;
        while !returned.is_as_it_was() && begin.elapsed() < SETTLING {
            thread::sleep(GLANCE);
            returned = look(&None)?;
        }
        if !returned.is_as_it_was() {
            let compacted = Some(match fs::write(self.root.path(COMPACT), "1") {
                Ok(()) => "yes".to_owned(),
                Err(error) => format!("no: /{COMPACT}: {error}"),
            });
            returned = look(&compacted)?;
            if !returned.is_as_it_was() {
                self.try_harder(before, interrupt)?;
                returned = look(&compacted)?;
            }
        }
        Ok(returned)
    }

    fn try_harder(&self, before: Free, interrupt: &Interrupt) -> Result<(), HostError> {
        let state = State::read(&self.root, &self.sizes)?;
        // All of what is free may be asked for, and no more than leaves a reserve.
        let most = Plan::of(None, &state).map_or(Bytes::ZERO, |plan| plan.taken);
        let launch = probe::launch(&self.program, (before.blocks * state.thp).min(most));
        if most == Bytes::ZERO {
            return Ok(());
        }
        let mut process = GroupLeader::start(&mut self.command(&launch.command), false)?;
        let begin = Instant::now();
        while begin.elapsed() < TRYING && interrupt.signal().is_none() && process.wait(GLANCE)?.is_none() {}
        Ok(())
    }

    /// One of our own processes, whose output nobody reads.
    fn command(&self, words: &[OsString]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words.get(1..).unwrap_or_default());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        for (variable, value) in &self.environment.environment {
            if let Some(value) = value {
                command.env(variable, value);
            }
        }
        command
    }
}

impl Free {
    /// Reads it.
    pub fn read(root: &Root, sizes: &PageSizes) -> Result<Free, HostError> {
        let failed = |reason: &str| HostError::Failed(reason.to_owned());
        let thp = sizes.thp.ok_or_else(|| failed("this kernel has no THP"))?;
        let room = headroom::read(root, sizes.base, thp).map_err(|error| failed(&error.to_string()))?;
        let free = meminfo::read(root).free;
        let bytes = *free.known().ok_or_else(|| failed(free.reason().unwrap_or("MemFree is unknown")))?;
        Ok(Free { blocks: room.blocks, bytes })
    }
}
