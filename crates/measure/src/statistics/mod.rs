//! Statistics of a comparison: ratios of pairs and their intervals.
//!
//! Pure functions of numbers; [`crate::analysis`] selects the numbers. docs/method.md describes the method.

#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Confidence of every printed interval of a ratio.
pub const INTERVAL_CONFIDENCE: f64 = 0.95;

/// Fewest pairs for an interval.
pub const MIN_PAIRS: usize = 3;

/// Least standard deviation of the logarithm of a ratio on which an interval is based.
///
/// Three pairs can agree to the last digit by chance or because of a coarse clock; their standard deviation
/// is 0, and their interval excludes 1. No shared machine has less noise than this.
pub const MIN_DEVIATION: f64 = 0.01;

/// Largest number of pairs that is recommended.
pub const MAX_PAIRS: usize = 1000;

/// A ratio with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ratio {
    /// Geometric mean of the ratios within blocks.
    pub estimate: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// A mean with the half-width of its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeanWithError {
    /// Arithmetic mean, in the unit of the values.
    pub mean: f64,
    /// Half-width of the interval, in the unit of the values; `None` for a single value.
    pub error: Option<f64>,
}

/// The mean of `values` with the half-width of its Student interval, as JMH prints its score (there with a
/// confidence of 0.999). `None` without values.
///
/// Student, "The probable error of a mean", Biometrika 6 (1908).
pub fn mean_with_error(values: &[f64], confidence: f64) -> Option<MeanWithError> {
    let mean = mean(values)?;
    let error = deviation(values).and_then(|deviation| {
        let t = student_t(0.5 + confidence / 2.0, values.len() - 1)?;
        Some(t * deviation / (values.len() as f64).sqrt())
    });
    Some(MeanWithError { mean, error })
}

pub fn mean(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    let sum: f64 = values.iter().sum();
    // Dividing first cannot overflow, but yields 0.999… as the mean of many ones.
    let mean = if sum.is_finite() { sum / count } else { values.iter().map(|value| value / count).sum() };
    (!values.is_empty()).then_some(mean)
}

/// The median: the middle value, or the mean of the two in the middle.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    sorted.get(sorted.len() / 2 - 1).map(|lower| f64::midpoint(*lower, upper))
}

/// Mean without the lowest and the highest fifth of the values: short stops of the machine do not count, and
/// it varies less than the median. `None` without values.
pub fn trimmed_mean(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let trim = sorted.len() / 5;
    mean(&sorted[trim..sorted.len() - trim])
}

/// Variance of the [`trimmed_mean`] of independent values (Yuen, Biometrika 61, 1974); `None` for fewer than two.
pub fn variance_of_trimmed_mean(values: &[f64]) -> Option<f64> {
    let mut winsorised = values.to_vec();
    winsorised.sort_by(f64::total_cmp);
    let (count, trim) = (values.len(), values.len() / 5);
    let (low, high) = (*winsorised.get(trim)?, *winsorised.get(count - 1 - trim)?);
    winsorised.iter_mut().for_each(|value| *value = value.clamp(low, high));
    let kept = (count - 2 * trim) as f64 / count as f64;
    Some(deviation(&winsorised)?.powi(2) / (kept * kept * count as f64))
}

/// Sample standard deviation (divisor n − 1); `None` for fewer than two values.
pub(crate) fn deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (values.len() - 1) as f64).sqrt())
}

/// Quantile of Student's t distribution with `freedom` degrees of freedom.
pub(crate) fn student_t(probability: f64, freedom: usize) -> Option<f64> {
    let inside = probability > 0.0 && probability < 1.0;
    let t = StudentsT::new(0.0, 1.0, freedom as f64).ok()?;
    inside.then(|| t.inverse_cdf(probability))
}

/// Ratios of pairs on the logarithmic scale, where a ratio and its inverse are equally far from 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairedRatio {
    pub(crate) pairs: usize,
    /// Mean of the logarithms.
    pub(crate) mean: f64,
    /// Standard deviation of the logarithms, at least [`MIN_DEVIATION`].
    pub(crate) deviation: f64,
}

impl PairedRatio {
    /// From pairs (reference, value); the ratio is value divided by reference.
    ///
    /// `None` with fewer than [`MIN_PAIRS`], or if a value is zero, negative or not a number.
    pub fn of(pairs: &[(f64, f64)]) -> Option<PairedRatio> {
        let logarithms: Vec<f64> =
            pairs.iter().map(|&(reference, value)| value.ln() - reference.ln()).collect();
        PairedRatio::of_logarithms(&logarithms)
    }

    /// From the logarithms of the ratios; `None` with fewer than [`MIN_PAIRS`], or if one is not finite.
    pub fn of_logarithms(logarithms: &[f64]) -> Option<PairedRatio> {
        if logarithms.len() < MIN_PAIRS || !logarithms.iter().all(|value| value.is_finite()) {
            return None;
        }
        let deviation = deviation(logarithms)?.max(MIN_DEVIATION);
        Some(PairedRatio { pairs: logarithms.len(), mean: mean(logarithms)?, deviation })
    }

    /// Geometric mean of the ratios with its Student interval.
    pub fn ratio(&self, confidence: f64) -> Option<Ratio> {
        let half = self.half_width(confidence)?;
        let high = (self.mean + half).exp();
        // JSON has no infinity.
        high.is_finite().then(|| Ratio { estimate: self.mean.exp(), low: (self.mean - half).exp(), high })
    }

    /// Half-width of the Student interval of the mean logarithm.
    pub(crate) fn half_width(&self, confidence: f64) -> Option<f64> {
        Some(student_t(0.5 + confidence / 2.0, self.pairs - 1)? * standard_error(self.deviation, self.pairs))
    }
}

pub(crate) fn standard_error(deviation: f64, count: usize) -> f64 {
    deviation / (count as f64).sqrt()
}
