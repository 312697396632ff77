//! Collapses candidates one after the other, until all are done or a failure ends the work.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, io, ops::Range, time::Duration};

use hugewise_linux::units::{Bytes, PageSize, Pages};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    RESERVED_HUGE_PAGES,
    candidates::Candidate,
    interference::Interference,
    pace::Pace,
    refusals::{self, Reason, Refusal},
};

/// The process and the machine as the engine sees them.
pub trait World {
    /// Collapses these addresses into one huge page.
    fn collapse(&mut self, addresses: &Range<u64>) -> io::Result<()>;
    /// True once the process has exited.
    fn has_ended(&mut self) -> bool;
    /// Whether any page of these addresses is resident; `None` if unknown.
    fn is_present(&mut self, addresses: &Range<u64>) -> Option<bool>;
    /// Huge pages available without reclaim and compaction; `None` if unknown.
    fn room(&mut self) -> Option<Pages>;
    /// Why to pause now; `None` to go on.
    fn strain(&mut self) -> Option<Interference>;
    /// Called with `true` when the engine begins to pause and with `false` when it goes on.
    fn pause(&mut self, paused: bool);
    /// True once the user asked to stop.
    fn is_interrupted(&self) -> bool;
    /// Time on a monotonic clock.
    fn now(&self) -> Duration;
    /// Waits for `time`, or until [`World::is_interrupted`].
    fn wait(&mut self, time: Duration);
    /// Reports that `done` of `total` candidates were tried.
    fn progress(&mut self, done: usize, total: usize);
}

/// Options of a collapse.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The size of a huge page.
    pub size: PageSize,
    /// Maximum rate, in bytes per second; `None` for no limit.
    pub rate: Option<f64>,
    /// Go on even if the kernel must reclaim or compact memory.
    pub allow_reclaim: bool,
}

/// Why a collapse ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every candidate was tried.
    Finished,
    /// The process exited.
    ProcessEnded,
    /// The user asked to stop.
    Interrupted,
    /// No huge page is available without reclaim or compaction.
    NoRoom,
    /// The kernel failed to allocate huge pages several times in a row.
    Fragmented,
    /// The memory limit of the process's control group is reached.
    GroupLimit,
    /// The kernel does not permit `process_madvise`.
    NotAllowed,
    /// Memory pressure on the machine lasted although the collapse paused.
    MemoryPressure,
}

/// The pauses for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pauses {
    /// Number of pauses.
    pub times: u64,
    /// Their total duration.
    pub lasted: Duration,
}

/// The result of a collapse.
#[derive(Clone, Debug)]
pub struct Conversion {
    /// Why it ended.
    pub outcome: Outcome,
    /// Huge pages collapsed.
    pub converted: Pages,
    /// Bytes of them that were resident before.
    pub present: Bytes,
    /// Candidates that were not collapsed, in the order of the attempts.
    pub refusals: Vec<Refusal>,
    /// Candidates whose memory the program released before their turn, in huge pages.
    pub gone: Pages,
    /// Wall time of the whole work.
    pub lasted: Duration,
    /// Duration of the longest call, and so the longest single wait that the collapse can cause a thread of
    /// the process.
    pub longest_call: Duration,
    /// Pauses by reason.
    pub pauses: BTreeMap<Interference, Pauses>,
}

/// Consecutive failures of one kind that end the work.
const MAX_FAILURES: u32 = 2;
/// Consecutive ENOMEM failures that end the work if the kernel may reclaim: some of its attempts succeed.
const MAX_FAILURES_WITH_RECLAIM: u32 = 4;
/// Consecutive EAGAIN failures that end the work if no free blocks are left either. Held pages alone say
/// nothing about the next candidate.
const MAX_PINNED_FAILURES: u32 = 8;
/// Longest pause before the work ends.
const PATIENCE: Duration = Duration::from_secs(30);
/// Interval at which a pause checks whether to go on.
const GAP: Duration = Duration::from_millis(20);
/// Maximum number of huge pages between two readings of free memory.
const LOOK: u64 = 32;

/// Collapses `candidates` in order.
pub fn convert(world: &mut impl World, candidates: &[Candidate], settings: Settings) -> Conversion {
    let begin = world.now();
    let mut work = Work {
        world,
        settings,
        pace: Pace::new(settings.rate),
        until_look: 0,
        failures: Failures::default(),
        done: Conversion {
            outcome: Outcome::Finished,
            converted: Pages(0),
            present: Bytes::ZERO,
            refusals: Vec::new(),
            gone: Pages(0),
            lasted: Duration::ZERO,
            longest_call: Duration::ZERO,
            pauses: BTreeMap::new(),
        },
    };
    for (n, candidate) in candidates.iter().enumerate() {
        let ended = match work.ready() {
            Err(outcome) => Some((outcome, n)),
            // The candidate that ended the work has its own refusal already.
            Ok(()) => {
                work.one(candidate).err().map(|(outcome, reported)| (outcome, n + usize::from(reported)))
            }
        };
        if let Some((outcome, left)) = ended {
            work.done.outcome = outcome;
            for left in &candidates[left..] {
                refusals::add(&mut work.done.refusals, left.addresses.clone(), Reason::NotTried);
            }
            break;
        }
        work.world.progress(n + 1, candidates.len());
    }
    let mut done = work.done;
    done.lasted = world.now().saturating_sub(begin);
    done
}

/// Consecutive failures by kind.
#[derive(Default)]
struct Failures {
    no_memory: u32,
    limit: u32,
    held: u32,
}

struct Work<'a, W> {
    world: &'a mut W,
    settings: Settings,
    pace: Pace,
    /// Huge pages to collapse before free memory is read again.
    until_look: u64,
    failures: Failures,
    done: Conversion,
}

impl<W: World> Work<'_, W> {
    /// Waits until the next collapse may begin, or returns why none may.
    fn ready(&mut self) -> Result<(), Outcome> {
        self.rest()?;
        if self.world.is_interrupted() {
            return Err(Outcome::Interrupted);
        }
        if self.settings.allow_reclaim {
            return Ok(());
        }
        if self.until_look == 0 {
            // If free memory is unknown, only failures end the work.
            let room = self.world.room().map_or(RESERVED_HUGE_PAGES + LOOK, |room| room.0);
            let spare = room.saturating_sub(RESERVED_HUGE_PAGES);
            if spare == 0 {
                return Err(Outcome::NoRoom);
            }
            // Half of it: other programs allocate, too.
            self.until_look = (spare / 2).clamp(1, LOOK);
        }
        self.until_look -= 1;
        Ok(())
    }

    /// Pauses while threads stall or memory is under pressure.
    fn rest(&mut self) -> Result<(), Outcome> {
        let Some(reason) = self.world.strain() else { return Ok(()) };
        let begin = self.world.now();
        self.world.pause(true);
        let mut outcome = Ok(());
        while outcome.is_ok() && self.world.strain().is_some() {
            self.world.wait(GAP);
            if self.world.is_interrupted() {
                outcome = Err(Outcome::Interrupted);
            } else if self.world.has_ended() {
                outcome = Err(Outcome::ProcessEnded);
            } else if self.world.now().saturating_sub(begin) >= PATIENCE {
                outcome = Err(Outcome::MemoryPressure);
            }
        }
        self.world.pause(false);
        let pauses = self.done.pauses.entry(reason).or_default();
        pauses.times += 1;
        pauses.lasted += self.world.now().saturating_sub(begin);
        // Others may have taken free memory during the pause.
        self.until_look = 0;
        outcome
    }

    /// Collapses one candidate, with one retry after EAGAIN. The error is the outcome that ends the work, and
    /// whether the refusal of this candidate is recorded.
    fn one(&mut self, candidate: &Candidate) -> Result<(), (Outcome, bool)> {
        let begin = self.world.now();
        let mut answer = self.call(candidate);
        if answer.as_ref().is_err_and(|error| Reason::of(error) == Reason::Held) {
            answer = self.call(candidate);
        }
        match answer {
            Ok(()) => {
                self.failures = Failures::default();
                self.done.converted.0 += 1;
                self.done.present += candidate.present;
            }
            Err(error) => self.failed(candidate, &error)?,
        }
        let wait = self.pace.wait(self.settings.size.bytes(), begin, self.world.now());
        if wait > Duration::ZERO {
            self.world.wait(wait);
        }
        Ok(())
    }

    fn call(&mut self, candidate: &Candidate) -> io::Result<()> {
        let begin = self.world.now();
        let answer = self.world.collapse(&candidate.addresses);
        self.done.longest_call = self.done.longest_call.max(self.world.now().saturating_sub(begin));
        answer
    }

    /// Records the refusal, and decides whether it ends the work.
    fn failed(&mut self, candidate: &Candidate, error: &io::Error) -> Result<(), (Outcome, bool)> {
        let reason = Reason::of(error);
        if self.world.has_ended() || reason == Reason::NoProcess {
            return Err((Outcome::ProcessEnded, false));
        }
        // The kernel returns the same errors for memory that was released.
        let may_be_gone = matches!(reason, Reason::Unsuitable | Reason::NoMemory);
        if may_be_gone && self.world.is_present(&candidate.addresses) == Some(false) {
            self.done.gone.0 += 1;
            return Ok(());
        }
        refusals::add(&mut self.done.refusals, candidate.addresses.clone(), reason);
        self.is_the_end(reason).map_or(Ok(()), |outcome| Err((outcome, true)))
    }

    /// The outcome if refusals for this reason end the work.
    fn is_the_end(&mut self, reason: Reason) -> Option<Outcome> {
        let in_a_row = match reason {
            Reason::NoMemory => &mut self.failures.no_memory,
            Reason::GroupLimit => &mut self.failures.limit,
            Reason::Held => &mut self.failures.held,
            Reason::NotAllowed | Reason::NoSuchCall => return Some(Outcome::NotAllowed),
            Reason::Unsuitable | Reason::NoProcess | Reason::Other(_) | Reason::NotTried => return None,
        };
        *in_a_row += 1;
        let in_a_row = *in_a_row;
        let no_room = self.world.room().is_some_and(|room| room.0 <= RESERVED_HUGE_PAGES);
        let enough = match reason {
            Reason::NoMemory if self.settings.allow_reclaim => in_a_row >= MAX_FAILURES_WITH_RECLAIM,
            Reason::NoMemory => in_a_row >= MAX_FAILURES || no_room,
            Reason::Held => in_a_row >= MAX_PINNED_FAILURES && no_room,
            _ => in_a_row >= MAX_FAILURES,
        };
        let outcome = if reason == Reason::GroupLimit { Outcome::GroupLimit } else { Outcome::Fragmented };
        enough.then_some(outcome)
    }
}
