//! The verdict on a backing: its conditions, and the probabilities behind them (docs/method.md).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::statistics::{
    INTERVAL_CONFIDENCE, MAX_PAIRS, MIN_PAIRS, PairedRatio, Ratio, standard_error, student_t,
};

/// Confidence of the interval that a claim needs. It exceeds the printed one because one table compares
/// several backings, and a false claim costs more than a missed one.
pub const CLAIM_CONFIDENCE: f64 = 0.99;

/// Smallest difference that is claimed, as a share; smaller differences are insignificant in practice.
pub const MIN_CLAIMED_DIFFERENCE: f64 = 0.01;

/// Probability of detecting the smallest visible difference.
pub const POWER: f64 = 0.80;

/// Least standard deviation of the logarithm of a ratio that a claim is based on.
///
/// Three pairs can agree to the last digit by chance or because of a coarse clock; their standard deviation
/// is 0, and their interval excludes 1. No shared machine has less noise than this.
pub const MIN_DEVIATION: f64 = 0.01;

/// Largest detectable difference, as a share, of a verdict "no difference"; beyond it the rounds are
/// inconclusive.
pub const MAX_DETECTABLE_DIFFERENCE: f64 = 0.20;

/// Difference, as a share, that the recommended number of rounds would detect.
pub const TARGET_DIFFERENCE: f64 = 0.10;

/// Verdict on one backing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The reference.
    Base,
    /// Better than the reference.
    Faster,
    /// Worse than the reference.
    Slower,
    /// No difference detected; `smallest_difference_ratio` could have been detected.
    NoDifference,
    /// The noise would have hidden even a large difference.
    Inconclusive,
    /// At least half of the rounds did not get their pages.
    FellBack,
    /// Not run; `detail` has the reason.
    LeftOut,
}

impl PairedRatio {
    /// The ratio, if it can be claimed: the [`CLAIM_CONFIDENCE`] interval, based on at least
    /// [`MIN_DEVIATION`], excludes 1, and the ratio differs from 1 by at least [`MIN_CLAIMED_DIFFERENCE`].
    pub fn claim(&self) -> Option<f64> {
        let strict = self.interval(CLAIM_CONFIDENCE, self.deviation.max(MIN_DEVIATION))?;
        let excludes_one = strict.low > 1.0 || strict.high < 1.0;
        let matters = (strict.estimate - 1.0).abs() >= MIN_CLAIMED_DIFFERENCE;
        (excludes_one && matters).then_some(strict.estimate)
    }

    /// Smallest difference, as a share, that would be claimed with a probability of [`POWER`]: (t₀.₉₉₅ +
    /// t₀.₈₀) · standard error, the usual approximation of the noncentral t, converted from a logarithm to a
    /// share.
    pub fn smallest_difference(&self) -> Option<f64> {
        smallest_difference(self.deviation, self.pairs)
    }

    /// Number of pairs with this noise that would detect a difference of `share`; `None` if it exceeds
    /// [`MAX_PAIRS`].
    pub fn pairs_to_detect(&self, share: f64) -> Option<usize> {
        (MIN_PAIRS..=MAX_PAIRS)
            .find(|&pairs| smallest_difference(self.deviation, pairs).is_some_and(|seen| seen <= share))
    }
}

pub(crate) fn smallest_difference(deviation: f64, pairs: usize) -> Option<f64> {
    let freedom = pairs.checked_sub(1)?;
    let quantiles = student_t(0.5 + CLAIM_CONFIDENCE / 2.0, freedom)? + student_t(POWER, freedom)?;
    let difference = (quantiles * standard_error(deviation.max(MIN_DEVIATION), pairs)).exp_m1();
    difference.is_finite().then(|| difference.max(MIN_CLAIMED_DIFFERENCE))
}

/// A verdict with its basis.
pub(crate) struct ArmVerdict {
    pub(crate) verdict: Verdict,
    pub(crate) ratio: Option<Ratio>,
    pub(crate) smallest_difference: Option<f64>,
    pub(crate) reason: Option<String>,
}

impl ArmVerdict {
    pub(crate) fn plain(verdict: Verdict, reason: Option<String>) -> ArmVerdict {
        ArmVerdict { verdict, ratio: None, smallest_difference: None, reason }
    }

    pub(crate) fn from_ratio(paired: &PairedRatio, pairs: usize) -> ArmVerdict {
        let smallest = paired.smallest_difference();
        let (verdict, reason) = match paired.claim() {
            Some(ratio) => (
                if ratio < 1.0 { Verdict::Faster } else { Verdict::Slower },
                format!(
                    "{pairs} pairs of rounds: the {:.0} % interval of the ratio excludes 1",
                    CLAIM_CONFIDENCE * 100.0
                ),
            ),
            None if smallest.is_none_or(|smallest| smallest > MAX_DETECTABLE_DIFFERENCE) => {
                (Verdict::Inconclusive, inconclusive(paired, smallest))
            }
            None => {
                let share = percent(smallest.unwrap_or_default());
                let reason =
                    format!("a difference of {share} would have been detected four times out of five");
                (Verdict::NoDifference, reason)
            }
        };
        ArmVerdict {
            verdict,
            ratio: paired.ratio(INTERVAL_CONFIDENCE),
            smallest_difference: smallest,
            reason: Some(reason),
        }
    }
}

fn inconclusive(paired: &PairedRatio, smallest: Option<f64>) -> String {
    let seen = match smallest.map(percent) {
        Some(share) => format!("only a difference of {share} or more would have been detected"),
        None => "no difference could have been detected".to_owned(),
    };
    let target = percent(TARGET_DIFFERENCE);
    let advice = match paired.pairs_to_detect(TARGET_DIFFERENCE) {
        Some(pairs) => format!("detecting {target} at this noise takes about {pairs} rounds of each backing"),
        None => "stop other programs and measure again".to_owned(),
    };
    format!("{seen}; {advice}")
}

/// A share as text: `3.1 %` below 10 %, `24 %` above.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 9.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}
