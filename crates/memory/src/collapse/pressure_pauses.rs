//! Decides whether a collapse must pause because it disturbs the process or the machine.

use std::{collections::VecDeque, time::Duration};

use schemars::JsonSchema;
use serde::Serialize;

/// A sample of the process and the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Time of the sample on a monotonic clock.
    pub at: Duration,
    /// Threads of the process in uninterruptible sleep (state D); `None` if unknown.
    pub stalled: Option<usize>,
    /// Total time since boot in which at least one task waited for memory (PSI `some`); `None` without PSI.
    pub waited: Option<Duration>,
    /// Direct reclaims and compactions since boot; `None` if PSI is used instead or the counters are missing.
    pub direct_reclaims: Option<u64>,
}

/// Reason for a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Interference {
    /// Threads of the process are in uninterruptible sleep.
    ThreadsStall,
    /// Tasks on this machine wait for memory.
    MemoryPressure,
}

impl Interference {
    /// A phrase for messages.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Interference::ThreadsStall => "threads of the process waited in the kernel",
            Interference::MemoryPressure => "programs on this machine waited for memory",
        }
    }
}

/// Consecutive samples with stalled threads that count as a stall.
const STALL_SAMPLES: usize = 3;
/// Interval at which the kernel updates PSI.
const PSI_INTERVAL: Duration = Duration::from_secs(2);
/// Minimum share of PSI `some` in the elapsed time that counts as pressure.
const MIN_PRESSURE_RATIO: f64 = 0.1;
/// How long an increase of the counters counts as pressure.
const COUNTER_HOLD: Duration = Duration::from_millis(100);

/// Decides from samples whether to pause.
#[derive(Clone, Debug, Default)]
pub struct InterferenceDetector {
    /// Number of stalled threads without a collapse; `None` before the first sample.
    usual: Option<usize>,
    recent: VecDeque<usize>,
    /// Whether the collapse was paused at the previous sample.
    paused: bool,
    /// The last value of `waited`, and the time when it changed.
    waited: Option<(Duration, Duration)>,
    direct_reclaims: Option<u64>,
    pressed_until: Duration,
}

impl InterferenceDetector {
    /// Evaluates the newest sample. `paused` is true while the collapse pauses.
    pub fn evaluate(&mut self, sample: &Sample, paused: bool) -> Option<Interference> {
        let stalls = sample.stalled.is_some_and(|stalled| self.stalls(stalled, paused));
        if self.is_pressed(sample) {
            self.pressed_until =
                sample.at + if sample.waited.is_some() { PSI_INTERVAL } else { COUNTER_HOLD };
        }
        if sample.at < self.pressed_until {
            Some(Interference::MemoryPressure)
        } else if stalls {
            Some(Interference::ThreadsStall)
        } else {
            None
        }
    }

    /// True if more threads than usual are stalled in each of the last samples.
    fn stalls(&mut self, stalled: usize, paused: bool) -> bool {
        let usual = *self.usual.get_or_insert(stalled);
        if self.paused != paused {
            // Samples before a pause do not count during the pause.
            self.paused = paused;
            self.recent.clear();
        }
        self.recent.push_back(stalled);
        if self.recent.len() < STALL_SAMPLES {
            return paused;
        }
        let least = self.recent.iter().copied().min().unwrap_or(0);
        self.recent.pop_front();
        if least > usual && paused {
            // The threads also stall during a pause: the collapse is not the cause.
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
            let during = sample.at.saturating_sub(at).min(PSI_INTERVAL).as_secs_f64();
            return now.saturating_sub(before).as_secs_f64() > MIN_PRESSURE_RATIO * during;
        }
        let Some(now) = sample.direct_reclaims else { return false };
        self.direct_reclaims.replace(now).is_some_and(|before| now > before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(samples: &[(u64, Sample)], paused: bool) -> Vec<Option<Interference>> {
        let mut judge = InterferenceDetector::default();
        let at = |(ms, sample): &(u64, Sample)| Sample { at: Duration::from_millis(*ms), ..*sample };
        samples.iter().map(|sample| judge.evaluate(&at(sample), paused)).collect()
    }

    fn stalled(count: usize) -> Sample {
        Sample { stalled: Some(count), ..Sample::default() }
    }

    #[test]
    fn stalls_that_last_are_a_reason_to_pause() {
        let stall = Some(Interference::ThreadsStall);
        let seen: Vec<(u64, Sample)> = [1, 2, 2, 1, 2, 2, 2, 3, 1]
            .iter()
            .enumerate()
            .map(|(n, &d)| (n as u64 * 20, stalled(d)))
            .collect();
        assert_eq!(judged(&seen, false), [None, None, None, None, None, None, stall, stall, None]);
    }

    #[test]
    fn stalls_that_last_during_the_pause_have_another_cause() {
        let mut judge = InterferenceDetector::default();
        let mut evaluate = |count, paused| judge.evaluate(&stalled(count), paused);
        let stall = Some(Interference::ThreadsStall);
        assert_eq!(
            [evaluate(0, false), evaluate(2, false), evaluate(2, false), evaluate(2, false)],
            [None, None, None, stall]
        );
        // It takes three samples of the pause itself.
        assert_eq!([evaluate(2, true), evaluate(2, true), evaluate(2, true)], [stall, stall, None]);
        assert_eq!([evaluate(2, false), evaluate(2, false), evaluate(2, false)], [None; 3]);
        assert_eq!([evaluate(3, false), evaluate(3, false), evaluate(3, false)], [None, None, stall]);
        // Fewer stalls in the pause: the collapse caused them, and causes them again.
        assert_eq!([evaluate(1, true), evaluate(3, true), evaluate(3, true)], [stall, stall, None]);
        assert_eq!([evaluate(3, false), evaluate(3, false), evaluate(3, false)], [None, None, stall]);
    }

    #[test]
    fn pressure_is_a_share_of_the_time_the_kernel_summed_up() {
        let waited = |ms| Sample { waited: Some(Duration::from_millis(ms)), ..Sample::default() };
        let press = Some(Interference::MemoryPressure);
        // No wait for ten seconds, then 150 ms in the last two: less than a tenth.
        assert_eq!(judged(&[(0, waited(500)), (10_000, waited(650))], false), [None, None]);
        let seen = [(0, waited(500)), (10_000, waited(750)), (11_000, waited(750)), (12_001, waited(750))];
        assert_eq!(judged(&seen, true), [None, press, press, None]);
    }

    #[test]
    fn without_psi_direct_reclaim_and_compaction_count() {
        let direct_reclaims = |count| Sample { direct_reclaims: Some(count), ..Sample::default() };
        let seen = [
            (0, direct_reclaims(7)),
            (20, direct_reclaims(7)),
            (40, direct_reclaims(8)),
            (60, direct_reclaims(8)),
            (150, direct_reclaims(8)),
        ];
        let press = Some(Interference::MemoryPressure);
        assert_eq!(judged(&seen, false), [None, None, press, press, None]);
        // Without any counter there is no pause.
        assert_eq!(judged(&[(0, Sample::default()), (9, Sample::default())], false), [None, None]);
    }
}
