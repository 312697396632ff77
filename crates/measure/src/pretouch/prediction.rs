//! Prediction of the time of a pretouch: an interval that widens with the distance from the measured sizes.

use hugewise_linux::{hugepages::backing::Backing, units::Bytes};
use schemars::JsonSchema;
use serde::Serialize;

use super::model::{GIB, Model};
use crate::statistics::{INTERVAL_CONFIDENCE, student_t};

/// Predicted time of one pretouch by a new process.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Prediction {
    /// Size of the memory, in bytes.
    pub bytes: Bytes,
    /// The backing.
    #[schemars(with = "String")]
    pub backing: Backing,
    /// Number of threads.
    pub threads: usize,
    /// Lower end of the interval, in seconds.
    pub low_seconds: f64,
    /// Middle of the interval, in seconds; null if this number of threads was not measured, so that only
    /// bounds are known.
    pub seconds: Option<f64>,
    /// Upper end of the interval, in seconds.
    pub high_seconds: f64,
    /// How the interval was derived for this number of threads.
    pub threads_are: Threads,
}

/// Relation of a number of threads to the measured numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Threads {
    /// This number was measured.
    Measured,
    /// Smaller and larger numbers were measured: the interval spans both.
    Between,
    /// Only smaller numbers were measured: the interval reaches from a proportional gain to no gain.
    Beyond,
    /// Only larger numbers were measured: the interval reaches from no loss to a proportional loss.
    Below,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PredictionError {
    #[error("{0} was not measured")]
    NotMeasured(Backing),
    #[error("only one size was measured: the growth with the size is unknown; give two or more sizes")]
    OneSize,
}

#[derive(Clone, Copy)]
struct Interval {
    low: f64,
    middle: f64,
    high: f64,
}

impl Model {
    /// The interval that contains the time of a new process with a confidence of [`INTERVAL_CONFIDENCE`],
    /// provided that the machine behaves as during the measurement.
    pub fn predict(
        &self,
        bytes: Bytes,
        backing: Backing,
        threads: usize,
    ) -> Result<Prediction, PredictionError> {
        let gib = bytes.0.max(1) as f64 / GIB;
        let lines: Vec<(usize, usize)> =
            self.lines_of(backing).map(|(index, line)| (line.threads, index)).collect();
        let of = |line: &(usize, usize)| self.interval(line.1, gib);
        let fewer = lines.iter().rev().find(|line| line.0 < threads);
        let more = lines.iter().find(|line| line.0 > threads);
        let same = lines.iter().find(|line| line.0 == threads);
        let ratio = |line: &(usize, usize)| line.0 as f64 / threads.max(1) as f64;
        let (low_seconds, seconds, high_seconds, threads_are) = match (same, fewer, more) {
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
        Ok(Prediction { bytes, backing, threads, low_seconds, seconds, high_seconds, threads_are })
    }

    fn interval(&self, line: usize, gib: f64) -> Result<Interval, PredictionError> {
        let exponent = self.spread.of_exponent.ok_or(PredictionError::OneSize)?;
        let (ln, of_fit) = self.at(line, gib);
        let distance = (gib / self.lines[line].middle).ln();
        let variance = self.spread.one_process + of_fit + distance * distance * exponent;
        let quantile = student_t(0.5 + INTERVAL_CONFIDENCE / 2.0, self.freedom.max(1));
        let half = quantile.ok_or(PredictionError::OneSize)? * variance.sqrt();
        // A cause that slowed one process may slow all of a larger one: memory that the host must provide
        // first.
        let slowest = self.lines[line].slowest;
        Ok(Interval { low: (ln - half).exp(), middle: ln.exp(), high: (ln + half).exp() * slowest })
    }
}

/// A prediction compared with times measured for the check.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Check {
    /// The prediction, made without these times.
    pub prediction: Prediction,
    /// The measured times, in seconds.
    pub measured_seconds: Vec<f64>,
    /// Median of the measured times, in seconds.
    pub median_seconds: f64,
    /// Whether the median lies in the interval.
    pub inside: bool,
    /// Number of measured times in the interval.
    pub times_inside: usize,
}

impl Check {
    /// Compares a prediction with measured times; `None` without times.
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
