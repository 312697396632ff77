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
    pressure_pauses::Interference,
    rate_limit::Pace,
    refusals::{self, Refusal, RefusalReason},
};

/// The process and the machine as the engine sees them.
pub trait CollapseHost {
    /// Collapses these addresses into one huge page.
    fn collapse(&mut self, addresses: &Range<u64>) -> io::Result<()>;
    /// True once the process has exited.
    fn has_ended(&mut self) -> bool;
    /// Whether any page of these addresses is resident; `None` if unknown.
    fn is_present(&mut self, addresses: &Range<u64>) -> Option<bool>;
    /// Huge pages available without reclaim and compaction; `None` if unknown.
    fn room(&mut self) -> Option<Pages>;
    /// Interference that requires a pause now; `None` to continue.
    fn interference(&mut self) -> Option<Interference>;
    /// Called with `true` when a pause begins and with `false` when it ends.
    fn pause(&mut self, paused: bool);
    /// True once the user asked to stop.
    fn is_interrupted(&self) -> bool;
    /// Time on a monotonic clock.
    fn now(&self) -> Duration;
    /// Waits for `time`, or until [`CollapseHost::is_interrupted`].
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
    /// Whether to continue even if the kernel must reclaim or compact memory.
    pub allow_reclaim: bool,
}

/// Why a collapse ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CollapseOutcome {
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
pub struct CollapseResult {
    /// Why it ended.
    pub outcome: CollapseOutcome,
    /// Huge pages collapsed.
    pub collapsed: Pages,
    /// Bytes of them that were resident before.
    pub present: Bytes,
    /// Candidates that were not collapsed, in the order of the attempts.
    pub refusals: Vec<Refusal>,
    /// Candidates whose memory the program released before their turn, in huge pages.
    pub gone: Pages,
    /// Wall time of the whole work.
    pub lasted: Duration,
    /// Duration of the longest call: an upper bound of a single wait that the collapse causes in a thread of
    /// the process.
    pub longest_call: Duration,
    /// Pauses by reason.
    pub pauses: BTreeMap<Interference, Pauses>,
}

impl CollapseResult {
    /// Adds another attempt at `again` pages of `collapsed`, which the kernel skipped without an error.
    pub fn add_pass(&mut self, again: Pages, pass: CollapseResult) {
        self.outcome = pass.outcome;
        self.collapsed.0 = (self.collapsed.0 + pass.collapsed.0).saturating_sub(again.0);
        self.refusals.extend(pass.refusals);
        self.gone.0 += pass.gone.0;
        self.lasted += pass.lasted;
        self.longest_call = self.longest_call.max(pass.longest_call);
        for (reason, pauses) in pass.pauses {
            let sum = self.pauses.entry(reason).or_default();
            sum.times += pauses.times;
            sum.lasted += pauses.lasted;
        }
    }
}

/// Consecutive failures of one kind that end the work.
const MAX_FAILURES: u32 = 2;
/// Consecutive ENOMEM failures that end the work if the kernel may reclaim: some of its attempts succeed.
const MAX_FAILURES_WITH_RECLAIM: u32 = 4;
/// Consecutive EAGAIN failures that end the work if no free blocks are left either. Pinned pages alone do
/// not predict the result of the next candidate.
const MAX_PINNED_FAILURES: u32 = 8;
/// Longest pause before the work ends.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// Interval at which a pause checks whether to go on.
const PAUSE_CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum number of huge pages between two readings of free memory.
const MAX_PAGES_PER_READING: u64 = 32;

/// Collapses `candidates` in order.
pub fn collapse_all(
    host: &mut impl CollapseHost,
    candidates: &[Candidate],
    settings: Settings,
) -> CollapseResult {
    let begin = host.now();
    let mut work = Work {
        host,
        settings,
        pace: Pace::new(settings.rate),
        until_reading: 0,
        failures: Failures::default(),
        done: CollapseResult {
            outcome: CollapseOutcome::Finished,
            collapsed: Pages(0),
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
                refusals::add(&mut work.done.refusals, left.addresses.clone(), RefusalReason::NotTried);
            }
            break;
        }
        work.host.progress(n + 1, candidates.len());
    }
    let mut done = work.done;
    done.lasted = host.now().saturating_sub(begin);
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
    host: &'a mut W,
    settings: Settings,
    pace: Pace,
    /// Huge pages to collapse before free memory is read again.
    until_reading: u64,
    failures: Failures,
    done: CollapseResult,
}

impl<W: CollapseHost> Work<'_, W> {
    /// Waits until the next collapse may begin, or returns why none may.
    fn ready(&mut self) -> Result<(), CollapseOutcome> {
        self.rest()?;
        if self.host.is_interrupted() {
            return Err(CollapseOutcome::Interrupted);
        }
        if self.settings.allow_reclaim {
            return Ok(());
        }
        if self.until_reading == 0 {
            // If free memory is unknown, only failures end the work.
            let room = self.host.room().map_or(RESERVED_HUGE_PAGES + MAX_PAGES_PER_READING, |room| room.0);
            let spare = room.saturating_sub(RESERVED_HUGE_PAGES);
            if spare == 0 {
                return Err(CollapseOutcome::NoRoom);
            }
            // Half of it: other programs allocate, too.
            self.until_reading = (spare / 2).clamp(1, MAX_PAGES_PER_READING);
        }
        self.until_reading -= 1;
        Ok(())
    }

    /// Pauses while threads stall or memory is under pressure.
    fn rest(&mut self) -> Result<(), CollapseOutcome> {
        let Some(reason) = self.host.interference() else { return Ok(()) };
        let begin = self.host.now();
        self.host.pause(true);
        let mut outcome = Ok(());
        while outcome.is_ok() && self.host.interference().is_some() {
            self.host.wait(PAUSE_CHECK_INTERVAL);
            if self.host.is_interrupted() {
                outcome = Err(CollapseOutcome::Interrupted);
            } else if self.host.has_ended() {
                outcome = Err(CollapseOutcome::ProcessEnded);
            } else if self.host.now().saturating_sub(begin) >= MAX_PAUSE {
                outcome = Err(CollapseOutcome::MemoryPressure);
            }
        }
        self.host.pause(false);
        let pauses = self.done.pauses.entry(reason).or_default();
        pauses.times += 1;
        pauses.lasted += self.host.now().saturating_sub(begin);
        // Other programs may have allocated memory during the pause.
        self.until_reading = 0;
        outcome
    }

    /// Collapses one candidate, with one retry after EAGAIN. The error is the outcome that ends the work, and
    /// whether the refusal of this candidate is recorded.
    fn one(&mut self, candidate: &Candidate) -> Result<(), (CollapseOutcome, bool)> {
        let begin = self.host.now();
        let mut answer = self.call(candidate);
        if answer.as_ref().is_err_and(|error| RefusalReason::of(error) == RefusalReason::Held) {
            answer = self.call(candidate);
        }
        match answer {
            Ok(()) => {
                self.failures = Failures::default();
                self.done.collapsed.0 += 1;
                self.done.present += candidate.present;
            }
            Err(error) => self.failed(candidate, &error)?,
        }
        let wait = self.pace.wait(self.settings.size.bytes(), begin, self.host.now());
        if wait > Duration::ZERO {
            self.host.wait(wait);
        }
        Ok(())
    }

    fn call(&mut self, candidate: &Candidate) -> io::Result<()> {
        let begin = self.host.now();
        let answer = self.host.collapse(&candidate.addresses);
        self.done.longest_call = self.done.longest_call.max(self.host.now().saturating_sub(begin));
        answer
    }

    /// Records the refusal, and decides whether it ends the work.
    fn failed(&mut self, candidate: &Candidate, error: &io::Error) -> Result<(), (CollapseOutcome, bool)> {
        let reason = RefusalReason::of(error);
        if self.host.has_ended() || reason == RefusalReason::NoProcess {
            return Err((CollapseOutcome::ProcessEnded, false));
        }
        // The kernel returns the same errors for memory that was released.
        let may_be_gone = matches!(reason, RefusalReason::Unsuitable | RefusalReason::NoMemory);
        if may_be_gone && self.host.is_present(&candidate.addresses) == Some(false) {
            self.done.gone.0 += 1;
            return Ok(());
        }
        refusals::add(&mut self.done.refusals, candidate.addresses.clone(), reason);
        self.is_the_end(reason).map_or(Ok(()), |outcome| Err((outcome, true)))
    }

    /// The outcome if refusals for this reason end the work.
    fn is_the_end(&mut self, reason: RefusalReason) -> Option<CollapseOutcome> {
        let in_a_row = match reason {
            RefusalReason::NoMemory => &mut self.failures.no_memory,
            RefusalReason::GroupLimit => &mut self.failures.limit,
            RefusalReason::Held => &mut self.failures.held,
            RefusalReason::NotAllowed | RefusalReason::NoSuchCall => {
                return Some(CollapseOutcome::NotAllowed);
            }
            _ => return None,
        };
        *in_a_row += 1;
        let in_a_row = *in_a_row;
        let no_room = self.host.room().is_some_and(|room| room.0 <= RESERVED_HUGE_PAGES);
        let enough = match reason {
            RefusalReason::NoMemory if self.settings.allow_reclaim => in_a_row >= MAX_FAILURES_WITH_RECLAIM,
            RefusalReason::NoMemory => in_a_row >= MAX_FAILURES || no_room,
            RefusalReason::Held => in_a_row >= MAX_PINNED_FAILURES && no_room,
            _ => in_a_row >= MAX_FAILURES,
        };
        enough.then_some(match reason {
            RefusalReason::GroupLimit => CollapseOutcome::GroupLimit,
            _ => CollapseOutcome::Fragmented,
        })
    }
}
