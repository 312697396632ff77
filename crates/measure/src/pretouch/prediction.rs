//! How long a pretouch will take: an interval, which grows with the distance from what was measured.

use hugewise_linux::{hugepages::backing::Backing, units::Bytes};
use schemars::JsonSchema;
use serde::Serialize;

use super::model::{GIB, Model};
use crate::statistics::{INTERVAL_CONFIDENCE, student_t};

/// How long one pretouch by a new process will take.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Prediction {
    /// How much.
    pub bytes: Bytes,
    /// On what.
    #[schemars(with = "String")]
    pub backing: Backing,
    /// By how many threads.
    pub threads: usize,
    /// Lower end of the interval, in seconds.
    pub low_seconds: f64,
    /// The middle; nothing where the number of threads was not measured, for then only bounds are known.
    pub seconds: Option<f64>,
    /// Upper end of the interval, in seconds.
    pub high_seconds: f64,
    /// How the number of threads was dealt with.
    pub threads_are: Threads,
}

/// How a number of threads relates to those that were measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Threads {
    /// It was measured.
    Measured,
    /// Fewer and more were measured: the interval spans both.
    Between,
    /// Only fewer were measured: from a gain in proportion to no gain.
    Beyond,
    /// Only more were measured: from no loss to a loss in proportion.
    Below,
}

/// Why there is no prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PredictionError {
    /// No line of it.
    #[error("{0} was not measured")]
    NotMeasured(Backing),
    /// How times grow with the size is not known at all.
    #[error("only one size was measured: how times grow with the size is not known")]
    OneSize,
}

/// An interval, in seconds.
#[derive(Clone, Copy)]
struct Interval {
    low: f64,
    middle: f64,
    high: f64,
}

impl Model {
    /// The interval in which the time of a new process lies, with a confidence of
    /// [`INTERVAL_CONFIDENCE`] as far as the future is like what was measured.
    pub fn predict(
        &self,
        bytes: Bytes,
        backing: Backing,
        threads: usize,
    ) -> Result<Prediction, PredictionError> {
        let gib = bytes.0.max(1) as f64 / GIB;
        let mut lines: Vec<(usize, usize)> =
            self.lines_of(backing).map(|(index, line)| (line.threads, index)).collect();
        lines.sort_unstable();
        let of = |line: &(usize, usize)| self.interval(line.1, gib);
        let fewer = lines.iter().rev().find(|line| line.0 < threads);
        let more = lines.iter().find(|line| line.0 > threads);
        let same = lines.iter().find(|line| line.0 == threads);
        let ratio = |line: &(usize, usize)| line.0 as f64 / threads.max(1) as f64;
        let (low, middle, high, threads_are) = match (same, fewer, more) {
            (Some(same), ..) => {
                let at = of(same)?;
                (at.low, Some(at.middle), at.high, Threads::Measured)
            }
            (None, Some(fewer), Some(more)) => {
                let (slow, fast) = (of(fewer)?, of(more)?);
                (fast.low.min(slow.low), None, slow.high.max(fast.high), Threads::Between)
            }
            (None, Some(fewer), None) => {
                let at = of(fewer)?;
                (at.low * ratio(fewer), None, at.high, Threads::Beyond)
            }
            (None, None, Some(more)) => {
                let at = of(more)?;
                (at.low, None, at.high * ratio(more), Threads::Below)
            }
            (None, None, None) => return Err(PredictionError::NotMeasured(backing)),
        };
        Ok(Prediction {
            bytes,
            backing,
            threads,
            low_seconds: low,
            seconds: middle,
            high_seconds: high,
            threads_are,
        })
    }

    fn interval(&self, line: usize, gib: f64) -> Result<Interval, PredictionError> {
        let exponent = self.spread.of_exponent.ok_or(PredictionError::OneSize)?;
        let (ln, of_fit) = self.at(line, gib);
        let distance = (gib / self.lines[line].middle).ln();
        let variance = self.spread.one_process + of_fit + distance * distance * exponent;
        let quantile = student_t(0.5 + INTERVAL_CONFIDENCE / 2.0, self.freedom.max(1));
        let half = quantile.ok_or(PredictionError::OneSize)? * variance.sqrt();
        // What made one slow may make all of a larger one so: memory that the host must get first.
        let slowest = self.lines[line].slowest;
        Ok(Interval { low: (ln - half).exp(), middle: ln.exp(), high: (ln + half).exp() * slowest })
    }
}

/// A prediction beside what was then measured.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Check {
    /// What was predicted, without these times.
    pub prediction: Prediction,
    /// The times, in seconds.
    pub measured_seconds: Vec<f64>,
    /// Their median.
    pub median_seconds: f64,
    /// Does the median lie in the interval?
    pub inside: bool,
    /// How many of the times do.
    pub times_inside: usize,
}

impl Check {
    /// Holds times against a prediction; nothing without times.
    #[must_use]
    pub fn of(prediction: Prediction, measured_seconds: Vec<f64>) -> Option<Check> {
        let median_seconds = crate::statistics::median(&measured_seconds)?;
        let inside = |time: &f64| (prediction.low_seconds..=prediction.high_seconds).contains(time);
        Some(Check {
            median_seconds,
            inside: inside(&median_seconds),
            times_inside: measured_seconds.iter().filter(|time| inside(time)).count(),
            prediction,
            measured_seconds,
        })
    }
}
