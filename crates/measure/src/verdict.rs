//! The verdict on a backing: its conditions, and the probabilities behind them (docs/method.md).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::statistics::{
    INTERVAL_CONFIDENCE, MAX_PAIRS, MIN_PAIRS, PairedRatio, Ratio, standard_error, student_t,
};

/// Probability of a false claim anywhere in the table, from the last look at the rounds. With the looks
/// before it, whose number is not known beforehand, the simulated probability is about 0.01.
pub const FALSE_CLAIM_PROBABILITY: f64 = 0.008;

/// Smallest difference that is claimed, as a share; smaller differences are insignificant in practice.
pub const MIN_CLAIMED_DIFFERENCE: f64 = 0.01;

/// Probability of detecting the smallest visible difference.
pub const POWER: f64 = 0.80;

/// Bounds of the 95 % interval of a verdict "no difference", as a share; a wider one is inconclusive.
pub const EQUALITY_MARGIN: f64 = 0.10;

/// Fewest pairs of a verdict "no difference": fewer can agree by chance although the ratio is another.
pub const MIN_EQUAL_PAIRS: usize = 5;

/// Difference, as a share, that the recommended number of rounds would detect.
pub const TARGET_DIFFERENCE: f64 = 0.10;

/// The direction in which a figure improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Lower is better, as for a time.
    Lower,
    /// Higher is better, as for a throughput.
    Higher,
}

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
    /// No difference claimed, and the 95 % interval of the ratio, from at least five pairs, lies between 0.9 and
    /// 1.1.
    NoDifference,
    /// No difference claimed, and the 95 % interval of the ratio does not lie between 0.9 and 1.1, is of fewer
    /// than five pairs, or is unknown.
    Inconclusive,
    /// At least half of the rounds did not get their pages, or their coverage is unknown.
    FellBack,
    /// Not run; `detail` has the reason.
    LeftOut,
}

impl PairedRatio {
    /// The ratio, if it can be claimed in a table of `claims` arms beside the reference; the arms share
    /// [`FALSE_CLAIM_PROBABILITY`] (Bonferroni).
    pub fn claim(&self, claims: usize) -> Option<f64> {
        self.claim_at(FALSE_CLAIM_PROBABILITY / claims.max(1) as f64)
    }

    /// The ratio, if its interval of confidence 1 − `probability` excludes 1 and it differs from 1 by at
    /// least [`MIN_CLAIMED_DIFFERENCE`].
    pub(crate) fn claim_at(&self, probability: f64) -> Option<f64> {
        let interval = self.ratio(1.0 - probability)?;
        let excludes_one = interval.low > 1.0 || interval.high < 1.0;
        let matters = (interval.estimate - 1.0).abs() >= MIN_CLAIMED_DIFFERENCE;
        (excludes_one && matters).then_some(interval.estimate)
    }

    /// Smallest difference, as a share, that would be claimed with a probability of [`POWER`]: the sum of the
    /// two quantiles of t times the standard error, the usual approximation of the noncentral t, converted
    /// from a logarithm to a share.
    pub fn smallest_difference(&self, claims: usize) -> Option<f64> {
        smallest_difference(self.deviation, self.pairs, claims)
    }

    /// Number of pairs with this noise that would detect a difference of `share`; `None` if it exceeds
    /// [`MAX_PAIRS`].
    pub fn pairs_to_detect(&self, share: f64, claims: usize) -> Option<usize> {
        (MIN_PAIRS..=MAX_PAIRS).find(|&pairs| {
            smallest_difference(self.deviation, pairs, claims).is_some_and(|seen| seen <= share)
        })
    }
}

pub(crate) fn smallest_difference(deviation: f64, pairs: usize, claims: usize) -> Option<f64> {
    let freedom = pairs.checked_sub(1)?;
    let claimed = 1.0 - FALSE_CLAIM_PROBABILITY / claims.max(1) as f64 / 2.0;
    let quantiles = student_t(claimed, freedom)? + student_t(POWER, freedom)?;
    let difference = (quantiles * standard_error(deviation, pairs)).exp_m1();
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

    /// In a table of `claims` arms beside the reference.
    pub(crate) fn from_ratio(paired: &PairedRatio, claims: usize, better: Better) -> ArmVerdict {
        let ratio = paired.ratio(INTERVAL_CONFIDENCE);
        let (verdict, reason) = match (paired.claim(claims), ratio) {
            (Some(claimed), _) => (
                if claimed < 1.0 { Verdict::Faster } else { Verdict::Slower },
                format!(
                    "{} pairs: the {:.2} % interval of the ratio excludes 1",
                    paired.pairs,
                    100.0 * (1.0 - FALSE_CLAIM_PROBABILITY / claims.max(1) as f64)
                ),
            ),
            (None, Some(ratio)) if is_near_one(&ratio) && paired.pairs >= MIN_EQUAL_PAIRS => {
                (Verdict::NoDifference, bounds(&ratio, better))
            }
            (None, ratio) => (Verdict::Inconclusive, inconclusive(paired, ratio, claims, better)),
        };
        ArmVerdict {
            verdict,
            ratio,
            smallest_difference: paired.smallest_difference(claims),
            reason: Some(reason),
        }
    }
}

fn is_near_one(ratio: &Ratio) -> bool {
    ratio.low >= 1.0 - EQUALITY_MARGIN && ratio.high <= 1.0 + EQUALITY_MARGIN
}

fn inconclusive(paired: &PairedRatio, ratio: Option<Ratio>, claims: usize, better: Better) -> String {
    let bounds = ratio.map_or_else(
        || "the interval of the ratio has no finite upper bound".to_owned(),
        |ratio| bounds(&ratio, better),
    );
    if ratio.as_ref().is_some_and(is_near_one) {
        return format!(
            "{bounds}; 'no difference' needs {MIN_EQUAL_PAIRS} pairs, and there are {}",
            paired.pairs
        );
    }
    let advice = paired.pairs_to_detect(TARGET_DIFFERENCE, claims).map_or_else(
        || "stop other programs and measure again".to_owned(),
        |rounds| {
            format!(
                "a difference of {} is detected after about {rounds} rounds of each backing at this noise",
                percent(TARGET_DIFFERENCE)
            )
        },
    );
    format!("{bounds}; {advice}")
}

/// The 95 % interval in words: `between 13 % better and 2.0 % worse`.
fn bounds(ratio: &Ratio, better: Better) -> String {
    let end = |ratio: f64| {
        let change = match better {
            Better::Lower => ratio - 1.0,
            Better::Higher => 1.0 / ratio - 1.0,
        };
        let direction = if ratio < 1.0 { "better" } else { "worse" };
        match change.abs() {
            none if none < 0.0005 => "no change".to_owned(),
            many if many >= 10.0 => format!("a factor of {:.0} {direction}", many + 1.0),
            share => format!("{} {direction}", percent(share)),
        }
    };
    let likely = match (ratio.low, ratio.high) {
        (_, high) if high < 1.0 => "probably better: ",
        (low, _) if low > 1.0 => "probably worse: ",
        _ => "",
    };
    format!("{likely}between {} and {} (95 % interval)", end(ratio.low), end(ratio.high))
}

/// A share as text: `3.1 %` below 10 %, `24 %` above.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 9.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}
