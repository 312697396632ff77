//! One huge page after the other, until all are made or something is in the way.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, io, ops::Range, time::Duration};

use hugewise_linux::units::{Bytes, PageSize, Pages};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    KEPT,
    candidates::Candidate,
    interference::Strain,
    pace::Pace,
    refusals::{self, Reason, Refusal},
};

/// What the engine does to the world, and sees of it.
pub trait World {
    /// Makes these addresses one huge page.
    fn collapse(&mut self, addresses: &Range<u64>) -> io::Result<()>;
    /// Has the process ended?
    fn has_ended(&mut self) -> bool;
    /// Is anything present there, still? Nothing where that cannot be told.
    fn is_present(&mut self, addresses: &Range<u64>) -> Option<bool>;
    /// Huge pages that can be taken without reclaim and compaction; nothing where that cannot be told.
    fn room(&mut self) -> Option<Pages>;
    /// Is somebody hurt right now?
    fn strain(&mut self) -> Option<Strain>;
    /// From now on nothing is done, or something is again.
    fn pause(&mut self, paused: bool);
    /// Are we told to stop?
    fn is_interrupted(&self) -> bool;
    /// Time on a clock that only goes on.
    fn now(&self) -> Duration;
    /// Waits, and less where we are told to stop.
    fn wait(&mut self, time: Duration);
    /// So many of all were tried.
    fn progress(&mut self, done: usize, total: usize);
}

/// How to convert.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The size of a huge page.
    pub size: PageSize,
    /// At most so many bytes a second.
    pub rate: Option<f64>,
    /// Go on where the kernel must reclaim or compact memory for it.
    pub allow_reclaim: bool,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every huge page was tried.
    Finished,
    /// The process ended.
    ProcessEnded,
    /// We were told to stop.
    Interrupted,
    /// No huge pages are left that can be had without reclaim or compaction.
    NoRoom,
    /// The kernel could make none any more, whatever it did.
    Fragmented,
    /// The memory limit of its control group was reached.
    GroupLimit,
    /// We may not do that.
    NotAllowed,
    /// Programs on this machine went on waiting for memory, though we paused.
    MemoryPressure,
}

/// Pauses for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pauses {
    /// How many.
    pub times: u64,
    /// How long, together.
    pub lasted: Duration,
}

/// What was done.
#[derive(Clone, Debug)]
pub struct Conversion {
    /// How it ended.
    pub outcome: Outcome,
    /// Huge pages made.
    pub converted: Pages,
    /// What of them was present before.
    pub present: Bytes,
    /// What was not converted, and why; in the order it was tried.
    pub refusals: Vec<Refusal>,
    /// Huge pages' worth of addresses whose memory was given back before their turn: nobody misses them.
    pub gone: Pages,
    /// From the first call to the end.
    pub lasted: Duration,
    /// The longest single call: for so long the process could have to wait for us at once.
    pub longest_call: Duration,
    /// When it rested, and why.
    pub pauses: BTreeMap<Strain, Pauses>,
}

/// Failures of this kind in a row that say that there is no point in going on.
const NO_POINT: u32 = 2;
/// The same for huge pages that could not be made, where the kernel may reclaim memory for them: a part
/// of what it tries succeeds.
const NO_POINT_IN_RECLAIM: u32 = 4;
/// The same where pages are held: that is mostly those pages' own matter, unless no blocks are free.
const HELD: u32 = 8;
/// No longer is waited for the pressure to pass.
const PATIENCE: Duration = Duration::from_secs(30);
/// What is waited between two looks.
const GAP: Duration = Duration::from_millis(20);
/// Room is looked at again after so many huge pages at the latest.
const LOOK: u64 = 32;

/// Converts `candidates`, in their order.
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
            // Of one that is refused, its refusal tells.
            Ok(()) => work.one(candidate).err().map(|(outcome, told)| (outcome, n + usize::from(told))),
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

/// Failures in a row.
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
    /// Huge pages that may still be taken before room is looked at again.
    until_look: u64,
    failures: Failures,
    done: Conversion,
}

impl<W: World> Work<'_, W> {
    /// Waits until the next one may be made; the outcome where none may any more.
    fn ready(&mut self) -> Result<(), Outcome> {
        self.rest()?;
        if self.world.is_interrupted() {
            return Err(Outcome::Interrupted);
        }
        if self.settings.allow_reclaim {
            return Ok(());
        }
        if self.until_look == 0 {
            // Where it cannot be told, failures will.
            let room = self.world.room().map_or(KEPT + LOOK, |room| room.0);
            let spare = room.saturating_sub(KEPT);
            if spare == 0 {
                return Err(Outcome::NoRoom);
            }
            // Others take from it, too.
            self.until_look = (spare / 2).clamp(1, LOOK);
        }
        self.until_look -= 1;
        Ok(())
    }

    /// Pauses as long as somebody is hurt.
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
        // What was free before may be taken.
        self.until_look = 0;
        outcome
    }

    /// One call, and a second one where the first asks for it. Where that is the end of all, the outcome,
    /// and whether this one's refusal was noted.
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

    /// What a refusal means: for this huge page, or for all that are left.
    fn failed(&mut self, candidate: &Candidate, error: &io::Error) -> Result<(), (Outcome, bool)> {
        let reason = Reason::of(error);
        if self.world.has_ended() || reason == Reason::NoProcess {
            return Err((Outcome::ProcessEnded, false));
        }
        // The kernel has the same numbers for memory that is no more.
        let may_be_gone = matches!(reason, Reason::Unsuitable | Reason::NoMemory);
        if may_be_gone && self.world.is_present(&candidate.addresses) == Some(false) {
            self.done.gone.0 += 1;
            return Ok(());
        }
        refusals::add(&mut self.done.refusals, candidate.addresses.clone(), reason);
        self.is_the_end(reason).map_or(Ok(()), |outcome| Err((outcome, true)))
    }

    /// Is there no point in going on after a refusal for this reason?
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
        let no_room = self.world.room().is_some_and(|room| room.0 <= KEPT);
        let enough = match reason {
            Reason::NoMemory if self.settings.allow_reclaim => in_a_row >= NO_POINT_IN_RECLAIM,
            Reason::NoMemory => in_a_row >= NO_POINT || no_room,
            Reason::Held => in_a_row >= HELD && no_room,
            _ => in_a_row >= NO_POINT,
        };
        let outcome = if reason == Reason::GroupLimit { Outcome::GroupLimit } else { Outcome::Fragmented };
        enough.then_some(outcome)
    }
}
