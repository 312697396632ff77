//! Is somebody hurt? Then the conversion pauses.

use std::{collections::VecDeque, time::Duration};

use schemars::JsonSchema;
use serde::Serialize;

/// What is looked at again and again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// When, on a clock that only goes on.
    pub at: Duration,
    /// Threads of the process that wait in the kernel (state D).
    pub stalled: Option<usize>,
    /// For how long, since boot, somebody on the machine waited for memory (PSI `some`).
    pub waited: Option<Duration>,
    /// Direct reclaims and compactions since boot.
    pub struggles: Option<u64>,
}

/// Why to pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Strain {
    /// Threads of the process wait in the kernel.
    ThreadsStall,
    /// Programs on this machine wait for memory.
    MemoryPressure,
}

impl Strain {
    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Strain::ThreadsStall => "its threads waited in the kernel",
            Strain::MemoryPressure => "programs on this machine waited for memory",
        }
    }
}

/// So many samples in a row with stalled threads are a stall, and not chance.
const IN_A_ROW: usize = 3;
/// The kernel sums up PSI every two seconds.
const SUMMED_UP: Duration = Duration::from_secs(2);
/// Pressure: so large a share of the time somebody waited.
const SHARE: f64 = 0.1;
/// For so long the last word of the counters holds.
const HOLDS: Duration = Duration::from_millis(100);

/// Draws conclusions from samples.
#[derive(Clone, Debug, Default)]
pub struct Judge {
    /// As many threads stall whatever we do.
    usual: Option<usize>,
    recent: VecDeque<usize>,
    /// Was the conversion paused when the last sample was looked at?
    paused: bool,
    /// The last value of `waited`, and when it was new.
    waited: Option<(Duration, Duration)>,
    struggles: Option<u64>,
    pressed_until: Duration,
}

impl Judge {
    /// What the newest sample means; `paused` is whether the conversion rests right now.
    pub fn look(&mut self, sample: &Sample, paused: bool) -> Option<Strain> {
        let stalls = sample.stalled.is_some_and(|stalled| self.stalls(stalled, paused));
        if self.is_pressed(sample) {
            self.pressed_until = sample.at + if sample.waited.is_some() { SUMMED_UP } else { HOLDS };
        }
        if sample.at < self.pressed_until {
            Some(Strain::MemoryPressure)
        } else if stalls {
            Some(Strain::ThreadsStall)
        } else {
            None
        }
    }

    /// Do more threads stall than they did before, in every one of the last samples?
    fn stalls(&mut self, stalled: usize, paused: bool) -> bool {
        let usual = *self.usual.get_or_insert(stalled);
        if self.paused != paused {
            // What was before the pause says nothing of the pause.
            self.paused = paused;
            self.recent.clear();
        }
        self.recent.push_back(stalled);
        if self.recent.len() < IN_A_ROW {
            return paused;
        }
        let least = self.recent.iter().copied().min().unwrap_or(0);
        self.recent.pop_front();
        if least > usual && paused {
            // We do nothing, and they stall all the same: it is not our doing.
            self.usual = Some(least);
        }
        least > usual && !paused
    }

    fn is_pressed(&mut self, sample: &Sample) -> bool {
        if let Some(now) = sample.waited {
            let (before, at) = *self.waited.get_or_insert((now, sample.at));
            if now == before {
                return false;
            }
            self.waited = Some((now, sample.at));
            let during = sample.at.saturating_sub(at).min(SUMMED_UP).as_secs_f64();
            return now.saturating_sub(before).as_secs_f64() > SHARE * during;
        }
        let Some(now) = sample.struggles else { return false };
        self.struggles.replace(now).is_some_and(|before| now > before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(samples: &[(u64, Sample)], paused: bool) -> Vec<Option<Strain>> {
        let mut judge = Judge::default();
        let at = |(ms, sample): &(u64, Sample)| Sample { at: Duration::from_millis(*ms), ..*sample };
        samples.iter().map(|sample| judge.look(&at(sample), paused)).collect()
    }

    fn stalled(count: usize) -> Sample {
        Sample { stalled: Some(count), ..Sample::default() }
    }

    #[test]
    fn stalls_that_last_are_a_reason_to_pause() {
        let stall = Some(Strain::ThreadsStall);
        let seen: Vec<(u64, Sample)> = [1, 2, 2, 1, 2, 2, 2, 3, 1]
            .iter()
            .enumerate()
            .map(|(n, &d)| (n as u64 * 20, stalled(d)))
            .collect();
        assert_eq!(judged(&seen, false), [None, None, None, None, None, None, stall, stall, None]);
    }

    #[test]
    fn stalls_that_go_on_in_the_pause_are_not_ours() {
        let mut judge = Judge::default();
        let mut look = |count, paused| judge.look(&stalled(count), paused);
        let stall = Some(Strain::ThreadsStall);
        assert_eq!(
            [look(0, false), look(2, false), look(2, false), look(2, false)],
            [None, None, None, stall]
        );
        // Three samples of the pause itself tell.
        assert_eq!([look(2, true), look(2, true), look(2, true)], [stall, stall, None]);
        assert_eq!([look(2, false), look(2, false), look(2, false)], [None; 3]);
        assert_eq!([look(3, false), look(3, false), look(3, false)], [None, None, stall]);
        // Where they do not stall in the pause, it was our doing, and is again.
        assert_eq!([look(1, true), look(3, true), look(3, true)], [stall, stall, None]);
        assert_eq!([look(3, false), look(3, false), look(3, false)], [None, None, stall]);
    }

    #[test]
    fn pressure_is_a_share_of_the_time_the_kernel_summed_up() {
        let waited = |ms| Sample { waited: Some(Duration::from_millis(ms)), ..Sample::default() };
        let press = Some(Strain::MemoryPressure);
        // Nothing for ten seconds, then 150 ms of the last two: less than a tenth.
        assert_eq!(judged(&[(0, waited(500)), (10_000, waited(650))], false), [None, None]);
        let seen = [(0, waited(500)), (10_000, waited(750)), (11_000, waited(750)), (12_001, waited(750))];
        assert_eq!(judged(&seen, true), [None, press, press, None]);
    }

    #[test]
    fn where_psi_is_missing_direct_reclaim_and_compaction_speak() {
        let struggles = |count| Sample { struggles: Some(count), ..Sample::default() };
        let seen = [
            (0, struggles(7)),
            (20, struggles(7)),
            (40, struggles(8)),
            (60, struggles(8)),
            (150, struggles(8)),
        ];
        let press = Some(Strain::MemoryPressure);
        assert_eq!(judged(&seen, false), [None, None, press, press, None]);
        // And where nothing can be read, nothing is said.
        assert_eq!(judged(&[(0, Sample::default()), (9, Sample::default())], false), [None, None]);
    }
}
