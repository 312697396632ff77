//! Statistics of a comparison: ratios of pairs, their intervals, and the differences that can be claimed.
//!
//! Pure functions of numbers; [`crate::analysis`] selects the numbers. docs/method.md describes the method.

#[cfg(test)]
mod tests;

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::comparison::Ratio;

/// Confidence of every printed interval of a ratio.
pub const INTERVAL_CONFIDENCE: f64 = 0.95;

/// Confidence of the interval that a claim needs. It exceeds the printed one because one table compares
/// several backings, and a false claim costs more than a missed one.
pub const CLAIM_CONFIDENCE: f64 = 0.99;

/// Smallest difference that is claimed, as a share; smaller ones do not matter in practice.
pub const SMALLEST_CLAIM: f64 = 0.01;

/// Probability of detecting the smallest visible difference.
pub const POWER: f64 = 0.80;

/// Fewest pairs for an interval.
pub const MIN_PAIRS: usize = 3;

/// Largest number of pairs that is recommended.
pub const MAX_PAIRS: usize = 1000;

/// Least standard deviation of the logarithm of a ratio that a claim is based on.
///
/// Three pairs can agree to the last digit by chance or because of a coarse clock; their standard deviation
/// is 0, and their interval excludes 1. No shared machine repeats itself better than this.
pub const MIN_DEVIATION: f64 = 0.01;

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
#[must_use]
pub fn mean_with_error(values: &[f64], confidence: f64) -> Option<MeanWithError> {
    let mean = mean(values)?;
    let error = deviation(values).and_then(|deviation| {
        let t = student_t(0.5 + confidence / 2.0, values.len() - 1)?;
        Some(t * deviation / (values.len() as f64).sqrt())
    });
    Some(MeanWithError { mean, error })
}

#[must_use]
pub fn mean(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    let sum: f64 = values.iter().sum();
    // Dividing first cannot overflow, but yields 0.999… as the mean of many ones.
    let mean = if sum.is_finite() { sum / count } else { values.iter().map(|value| value / count).sum() };
    (!values.is_empty()).then_some(mean)
}

/// The median: the middle value, or the mean of the two in the middle.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    sorted.get(sorted.len() / 2 - 1).map(|lower| f64::midpoint(*lower, upper))
}

/// Sample standard deviation (divisor n − 1); `None` for fewer than two values.
fn deviation(values: &[f64]) -> Option<f64> {
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
    pairs: usize,
    /// Mean of the logarithms.
    mean: f64,
    /// Standard deviation of the logarithms.
    deviation: f64,
}

impl PairedRatio {
    /// From pairs (reference, value); the ratio is value divided by reference.
    ///
    /// `None` with fewer than [`MIN_PAIRS`], or if a value is zero, negative or not a number.
    #[must_use]
    pub fn of(pairs: &[(f64, f64)]) -> Option<PairedRatio> {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        if pairs.len() < MIN_PAIRS || !pairs.iter().all(|&(a, b)| positive(a) && positive(b)) {
            return None;
        }
        let logs: Vec<f64> = pairs.iter().map(|(reference, value)| value.ln() - reference.ln()).collect();
        Some(PairedRatio { pairs: logs.len(), mean: mean(&logs)?, deviation: deviation(&logs)? })
    }

    /// Geometric mean of the ratios with its Student interval.
    #[must_use]
    pub fn ratio(&self, confidence: f64) -> Option<Ratio> {
        self.interval(confidence, self.deviation)
    }

    /// The ratio, if it can be claimed: the [`CLAIM_CONFIDENCE`] interval, based on at least
    /// [`MIN_DEVIATION`], excludes 1, and the ratio differs from 1 by at least [`SMALLEST_CLAIM`].
    #[must_use]
    pub fn claim(&self) -> Option<f64> {
        let strict = self.interval(CLAIM_CONFIDENCE, self.deviation.max(MIN_DEVIATION))?;
        let excludes_one = strict.low > 1.0 || strict.high < 1.0;
        let matters = (strict.estimate - 1.0).abs() >= SMALLEST_CLAIM;
        (excludes_one && matters).then_some(strict.estimate)
    }

    /// Smallest difference, as a share, that would be claimed with a probability of [`POWER`]: (t₀.₉₉₅ +
    /// t₀.₈₀) · standard error, the usual approximation of the noncentral t, converted from a logarithm to a
    /// share.
    #[must_use]
    pub fn smallest_difference(&self) -> Option<f64> {
        smallest_difference(self.deviation, self.pairs)
    }

    /// Number of pairs with this noise that would detect a difference of `share`; `None` if it exceeds
    /// [`MAX_PAIRS`].
    #[must_use]
    pub fn pairs_to_detect(&self, share: f64) -> Option<usize> {
        (MIN_PAIRS..=MAX_PAIRS)
            .find(|&pairs| smallest_difference(self.deviation, pairs).is_some_and(|seen| seen <= share))
    }

    fn interval(&self, confidence: f64, deviation: f64) -> Option<Ratio> {
        let half = student_t(0.5 + confidence / 2.0, self.pairs - 1)? * standard_error(deviation, self.pairs);
        let high = (self.mean + half).exp();
        // JSON has no infinity.
        high.is_finite().then(|| Ratio { estimate: self.mean.exp(), low: (self.mean - half).exp(), high })
    }
}

fn smallest_difference(deviation: f64, pairs: usize) -> Option<f64> {
    let freedom = pairs.checked_sub(1)?;
    let quantiles = student_t(0.5 + CLAIM_CONFIDENCE / 2.0, freedom)? + student_t(POWER, freedom)?;
    let difference = (quantiles * standard_error(deviation.max(MIN_DEVIATION), pairs)).exp_m1();
    difference.is_finite().then(|| difference.max(SMALLEST_CLAIM))
}

fn standard_error(deviation: f64, count: usize) -> f64 {
    deviation / (count as f64).sqrt()
}
