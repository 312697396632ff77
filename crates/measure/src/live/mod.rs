//! A running process whose memory is on base pages and on huge pages in turns.
//!
//! A block is a pair of turns, in random order. Before each turn the memory is put on the pages of its arm, and a
//! fixed time passes that does not count: the time that the rates needed to become steady after a transition in
//! the warm-up. Both arms wait for it, also if there was no transition, so that it favours neither. The pairs are
//! analysed like the blocks of other comparisons. The engine is pure; [`LiveProcess`] is the process.

mod rates;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use hugewise_linux::{hugepages::backing::Backing, reading::Reason};

use crate::{
    analysis,
    comparison::{
        Comparison, Figure, Round,
        live::{Ending, LiveTurn, Transition},
    },
    stopping::{MAX_BLOCKS, MIN_BLOCKS},
};

pub use rates::{rates, steady_after};

/// Interval of the samples in a turn.
pub const SAMPLE_INTERVAL: Duration = Duration::from_millis(500);
/// Longest time that a pair may take beyond the limit of the experiment, when it was expected to end in time.
const MAX_OVERTIME: Duration = Duration::from_millis(500);
/// Shortest time between a transition and the begin of a turn that counts.
const MIN_SETTLING: Duration = Duration::from_secs(1);
/// Bounds of the time after each transition of the warm-up, from which the time until the rates are steady
/// follows: else twice a turn.
const WARM_UP: [Duration; 2] = [Duration::from_secs(4), Duration::from_secs(8)];

/// A quantity that is read during the turns.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantity {
    pub figure: Figure,
    pub value: Value,
}

/// How a figure follows from the values of the samples; values have the index in [`Sample::values`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// The rate per second of a counter.
    Rate(usize),
    /// The mean of a gauge.
    Mean(usize),
    /// The increase of one counter for each of another; with `events`, if this third one increased by
    /// [`MIN_EVENTS`] or more.
    Quotient { dividend: usize, divisor: usize, events: Option<usize> },
}

/// Fewest events in a turn with a quotient: of a counter that moves with the events only, so many are known to
/// about a tenth.
pub const MIN_EVENTS: f64 = 10.0;

/// The values at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Time on a monotonic clock.
    pub at: Duration,
    /// `None` if it could not be read.
    pub values: Vec<Option<f64>>,
}

/// The process as the engine sees it.
pub trait LiveProcess {
    /// Puts the memory on base or on huge pages.
    fn switch(&mut self, to: Backing) -> Result<(), Reason>;
    /// Share of the memory on huge pages, 0 to 1.
    fn coverage(&mut self) -> Result<f64, Reason>;
    /// Reads the quantities.
    fn sample(&mut self) -> Sample;
    /// Why the experiment must end now: the process has ended, or the user asks for it.
    fn must_end(&mut self) -> Option<Ending>;
    /// Time on the clock of the samples.
    fn now(&self) -> Duration;
    /// Waits for `time`, or until the experiment must end.
    fn wait(&mut self, time: Duration);
}

/// Parameters of a live comparison.
#[derive(Clone, Copy, Debug)]
pub struct LiveSettings {
    /// Length of a turn.
    pub turn: Duration,
    /// A pair that would not end by this time, from the begin on, is not started, and no work goes on beyond it.
    pub max_time: Duration,
    /// Exact number of pairs; `None` to end when the difference is known.
    pub pairs: Option<usize>,
    /// A longer transition ends the comparison.
    pub max_transition: Duration,
    /// Least coverage with which a turn on huge pages counts, 0 to 1; on base pages, it may be at most the rest.
    pub least_coverage: f64,
}

/// Conducts a live comparison: adds its turns to `comparison`, which has one case with the figures of
/// `quantities`, and two arms. `on_pair` receives the number of complete pairs.
pub fn conduct(
    process: &mut impl LiveProcess,
    quantities: &[Quantity],
    settings: &LiveSettings,
    comparison: &mut Comparison,
    on_pair: &mut dyn FnMut(usize),
) {
    let begin = process.now();
    let mut work = Work { process, quantities, settings, begin, settling: MIN_SETTLING, state: None };
    let result = work.pairs(comparison, on_pair);
    let (ending, detail) = match result {
        Ok(ending) => (ending, None),
        Err(End::Now(ending)) => (ending, None),
        Err(End::Failed(reason)) => (Ending::TransitionFailed, Some(String::from(reason))),
    };
    let settling = work.settling;
    if let Some(live) = &mut comparison.live {
        (live.ending, live.detail) = (ending, detail);
        live.settling_seconds = settling.as_secs_f64();
    }
    let blocks = comparison.rounds.iter().filter_map(|round| round.block);
    comparison.design.rounds = blocks.max().map_or(0, |last| last + 1);
}

/// Why the work ends before it is complete.
enum End {
    Now(Ending),
    Failed(Reason),
}

struct Work<'a, P> {
    process: &'a mut P,
    quantities: &'a [Quantity],
    settings: &'a LiveSettings,
    begin: Duration,
    /// Time before each turn that does not count.
    settling: Duration,
    /// The pages on which the memory is; `None` before the first transition.
    state: Option<Backing>,
}

impl<P: LiveProcess> Work<'_, P> {
    fn pairs(&mut self, comparison: &mut Comparison, on_pair: &mut dyn FnMut(usize)) -> Result<Ending, End> {
        self.warm_up(comparison)?;
        let mut random = fastrand::Rng::with_seed(comparison.design.seed);
        let mut longest = Duration::ZERO;
        let most = self.settings.pairs.unwrap_or(MAX_BLOCKS);
        for block in 0..most {
            let start = self.elapsed();
            if self.settings.pairs.is_none() && start + longest > self.settings.max_time {
                return Ok(Ending::OutOfTime);
            }
            let mut order = [0, 1];
            random.shuffle(&mut order);
            for arm in order {
                self.turn(arm, Some(block), comparison)?;
            }
            longest = longest.max(self.elapsed().saturating_sub(start));
            on_pair(block + 1);
            if self.settings.pairs.is_none() && block + 1 >= MIN_BLOCKS {
                if [0, 1].iter().any(|arm| has_fallen_back(*arm, &comparison.rounds)) {
                    return Ok(Ending::FellBack);
                }
                if analysis::suffices(comparison, 0) {
                    return Ok(Ending::Decided);
                }
            }
        }
        Ok(Ending::OutOfTime)
    }

    /// A transition to each arm, from which the time until the rates are steady follows.
    fn warm_up(&mut self, comparison: &mut Comparison) -> Result<(), End> {
        let mut steady = true;
        for arm in [0, 1] {
            self.switch(arm, comparison)?;
            let samples = self.samples((self.settings.turn * 2).clamp(WARM_UP[0], WARM_UP[1]))?;
            let decisive = self.quantities.first().map(|quantity| quantity.value.of_any_number());
            let of_pair = |two: &[Sample]| decisive?.of(two);
            let seen: Vec<f64> = samples.windows(2).filter_map(of_pair).collect();
            match steady_after(&seen) {
                Some(after) => self.settling = self.settling.max(SAMPLE_INTERVAL * after as u32),
                None => steady = false,
            }
        }
        if let Some(live) = &mut comparison.live {
            live.is_steady = steady;
        }
        Ok(())
    }

    fn switch(&mut self, arm: usize, comparison: &mut Comparison) -> Result<(), End> {
        let to = comparison.design.arms[arm].backing();
        let begin = self.process.now();
        let switched = self.process.switch(to);
        let lasted = self.process.now().saturating_sub(begin);
        self.ensure_goes_on()?;
        switched.map_err(End::Failed)?;
        if self.state.replace(to) != Some(to) {
            let transition = Transition {
                to_huge: to != Backing::Base,
                begin_seconds: begin.saturating_sub(self.begin).as_secs_f64(),
                duration_seconds: lasted.as_secs_f64(),
            };
            if let Some(live) = &mut comparison.live {
                live.transitions.push(transition);
            }
        }
        if lasted > self.settings.max_transition {
            return Err(End::Failed(Reason::new(format!(
                "a transition to {to} took {:.1} s, longer than --max-transition",
                lasted.as_secs_f64()
            ))));
        }
        Ok(())
    }

    fn turn(&mut self, arm: usize, block: Option<usize>, comparison: &mut Comparison) -> Result<(), End> {
        self.switch(arm, comparison)?;
        let settling = self.settling.min(self.left());
        self.process.wait(settling);
        self.ensure_goes_on()?;
        let begin = self.elapsed();
        let samples = self.samples(self.settings.turn)?;
        let end = self.elapsed();
        let coverage = self.process.coverage();
        // If the process ended meanwhile, the samples are incomplete.
        self.ensure_goes_on()?;
        let backing = comparison.design.arms[arm].backing();
        let fell_back = fell_back(backing, &coverage, self.settings.least_coverage);
        comparison.rounds.push(Round {
            case: 0,
            arm,
            block,
            fell_back,
            figures: rates(&samples, self.quantities),
            turns: None,
            coverage: coverage.ok(),
            off_heap_coverage: None,
            server_coverage: Vec::new(),
            huge_pages_left: None,
        });
        let round = comparison.rounds.len() - 1;
        if let Some(live) = &mut comparison.live {
            let (begin_seconds, end_seconds) = (begin.as_secs_f64(), end.as_secs_f64());
            live.turns.push(LiveTurn { round, begin_seconds, end_seconds });
        }
        Ok(())
    }

    /// Samples over `time`, one at its begin and one at its end.
    fn samples(&mut self, time: Duration) -> Result<Vec<Sample>, End> {
        let end = self.process.now() + time;
        let mut samples = vec![self.process.sample()];
        loop {
            let left = end.saturating_sub(self.process.now());
            if left.is_zero() {
                return Ok(samples);
            }
            let time = left.min(SAMPLE_INTERVAL).min(self.left());
            self.process.wait(time);
            self.ensure_goes_on()?;
            samples.push(self.process.sample());
        }
    }

    fn ensure_goes_on(&mut self) -> Result<(), End> {
        let ending = self.process.must_end().or_else(|| self.left().is_zero().then_some(Ending::OutOfTime));
        ending.map_or(Ok(()), |ending| Err(End::Now(ending)))
    }

    /// The time until the experiment ends, also within a pair that takes longer than expected. With a number of pairs
    /// there is no limit.
    fn left(&self) -> Duration {
        match self.settings.pairs {
            None => (self.settings.max_time + MAX_OVERTIME).saturating_sub(self.elapsed()),
            Some(_) => Duration::MAX,
        }
    }

    fn elapsed(&self) -> Duration {
        self.process.now().saturating_sub(self.begin)
    }
}

/// Whether no turn of an arm counts.
fn has_fallen_back(arm: usize, rounds: &[Round]) -> bool {
    rounds.iter().filter(|round| round.arm == arm).all(|round| round.fell_back.is_some())
}

/// Why a turn does not count; `None` if its memory was on the pages of its arm.
fn fell_back(backing: Backing, coverage: &Result<f64, Reason>, least: f64) -> Option<String> {
    match coverage {
        Err(reason) => Some(format!("the coverage is unknown: {reason}")),
        Ok(share) if backing == Backing::Base && *share > 1.0 - least => Some(format!(
            "{:.0} % of the memory was on huge pages: khugepaged or the program put it there",
            share * 100.0
        )),
        Ok(share) if backing != Backing::Base && *share < least => {
            Some(format!("only {:.0} % of the memory was on huge pages", share * 100.0))
        }
        Ok(_) => None,
    }
}

/// The value of each figure by name; those that are unknown are absent.
pub type Rates = BTreeMap<String, f64>;
