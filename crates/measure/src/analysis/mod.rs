//! What a comparison means: from the rounds to a verdict for each backing.
//!
//! Pure: the same rounds always give the same verdicts. The experiment is a randomised block
//! design; every figure is compared within its block, so that what slows the whole machine for a
//! while slows both sides of a ratio. docs/method.md says how and why.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::{
    comparison::{BackingResult, Better, Case, Comparison, Figure, FigureSummary, Ratio, Round, Verdict},
    statistics::{self, CLAIM_CONFIDENCE, FEWEST_PAIRS, INTERVAL_CONFIDENCE, MOST_PAIRS, PairedRatio},
};

/// Where a difference of this share would not have been seen, the rounds are called too noisy.
pub const TOO_NOISY: f64 = 0.20;

/// The difference that the advice on how many rounds to run aims at, as a share.
pub const WORTH_SEEING: f64 = 0.10;

/// Draws the conclusions: fills [`Comparison::backings`], a row for each case and arm, from the
/// rounds and from what was left out.
pub fn analyse(comparison: &mut Comparison) {
    let arms = comparison.design.arms.len();
    comparison.backings = comparison
        .cases
        .iter()
        .enumerate()
        .flat_map(|(case, _)| (0..arms).map(move |arm| (case, arm)))
        .filter_map(|(case, arm)| judge(comparison, case, arm))
        .collect();
}

/// How many more blocks it would take, with the noise so far, until a difference of `share` in the
/// first figure would be seen in every arm of `case`; 0 where it already would.
///
/// It looks at the spread and never at the difference: running on until it says 0 keeps the false
/// claims of simulated experiments at 1 % or below. Arms without enough pairs to know their spread are passed over.
#[must_use]
pub fn blocks_to_see(comparison: &Comparison, case: usize, share: f64) -> usize {
    let Some(figure) = comparison.cases.get(case).and_then(|case| case.figures.first()) else { return 0 };
    let reference = Arm::of(comparison, case, 0);
    (1..comparison.design.arms.len())
        .filter_map(|arm| {
            let pairs = pairs(&reference, &Arm::of(comparison, case, arm), figure);
            let needed = PairedRatio::of(&pairs)?.pairs_to_see(share).unwrap_or(MOST_PAIRS);
            Some(needed.saturating_sub(pairs.len()))
        })
        .max()
        .unwrap_or(0)
}

/// What the rounds say of one arm in one case.
struct Arm<'a> {
    counted: Vec<&'a Round>,
    fallen_back: Vec<&'a Round>,
}

impl<'a> Arm<'a> {
    fn of(comparison: &'a Comparison, case: usize, arm: usize) -> Arm<'a> {
        let (counted, fallen_back) = comparison
            .rounds
            .iter()
            .filter(|round| round.case == case && round.arm == arm && round.block.is_some())
            .partition(|round| round.fell_back.is_none());
        Arm { counted, fallen_back }
    }

    /// Did no more than half of the rounds count, because of rounds that fell back?
    fn fell_back(&self) -> bool {
        !self.fallen_back.is_empty() && self.counted.len() <= self.fallen_back.len()
    }

    /// How many fell back and the most common cause; of equals, the one that came first.
    fn fallback(&self) -> Option<String> {
        let mut causes: Vec<(&str, usize)> = Vec::new();
        for cause in self.fallen_back.iter().filter_map(|round| round.fell_back.as_deref()) {
            match causes.iter_mut().find(|(known, _)| *known == cause) {
                Some((_, times)) => *times += 1,
                None => causes.push((cause, 1)),
            }
        }
        let most = causes.iter().map(|(_, times)| *times).max()?;
        let (cause, _) = causes.iter().find(|(_, times)| *times == most)?;
        let all = self.counted.len() + self.fallen_back.len();
        Some(format!("{} of {all} rounds did not get their pages: {cause}", self.fallen_back.len()))
    }

    fn values(&self, figure: &str) -> Vec<f64> {
        self.counted.iter().filter_map(|round| value(round, figure)).collect()
    }

    fn by_block(&self, figure: &str) -> BTreeMap<usize, f64> {
        self.counted.iter().filter_map(|round| Some((round.block?, value(round, figure)?))).collect()
    }

    /// Mean coverage of the rounds that count, or else of those that fell back.
    fn coverage(&self) -> Option<f64> {
        let rounds = if self.counted.is_empty() { &self.fallen_back } else { &self.counted };
        let shares: Vec<f64> =
            rounds.iter().filter_map(|round| round.coverage).filter(|share| share.is_finite()).collect();
        statistics::mean(&shares)
    }
}

/// A figure of one round, if it was read and is a number.
fn value(round: &Round, figure: &str) -> Option<f64> {
    round.figures.get(figure).copied().filter(|value| value.is_finite())
}

/// The figures of both arms in the blocks where both count: (reference, value), turned so that a
/// ratio of value over reference is below 1 where the value is better.
fn pairs(reference: &Arm<'_>, arm: &Arm<'_>, figure: &Figure) -> Vec<(f64, f64)> {
    let references = reference.by_block(&figure.name);
    arm.by_block(&figure.name)
        .into_iter()
        .filter_map(|(block, value)| Some((*references.get(&block)?, value)))
        .map(|(reference, value)| match figure.better {
            Better::Lower => (reference, value),
            Better::Higher => (value, reference),
        })
        .collect()
}

fn judge(comparison: &Comparison, case_index: usize, arm_index: usize) -> Option<BackingResult> {
    let case = comparison.cases.get(case_index)?;
    let backing = *comparison.design.arms.get(arm_index)?;
    let arm = Arm::of(comparison, case_index, arm_index);
    let reference = (arm_index > 0).then(|| Arm::of(comparison, case_index, 0));
    let left_out = comparison.left_out.iter().find(|left| left.case == case_index && left.arm == arm_index);

    let judged = match (left_out, &reference) {
        (Some(left), _) => Judged::plain(Verdict::LeftOut, Some(left.reason.clone())),
        _ if arm.fell_back() => Judged::plain(Verdict::FellBack, arm.fallback()),
        (None, None) => Judged::plain(Verdict::Base, arm.fallback()),
        (None, Some(reference)) => Judged::of(reference, &arm, case),
    };
    Some(BackingResult {
        workload: case.workload.clone(),
        parameters: case.parameters.clone(),
        backing,
        verdict: judged.verdict,
        figure: case.figures.first().map(|figure| figure.name.clone()).unwrap_or_default(),
        ratio: judged.ratio,
        smallest_difference: judged.smallest_difference,
        coverage: arm.coverage(),
        rounds: arm.counted.len(),
        rounds_fallen_back: arm.fallen_back.len(),
        reason: judged.reason,
        figures: case.figures.iter().filter_map(|f| summary(f, &arm, reference.as_ref())).collect(),
    })
}

fn summary(figure: &Figure, arm: &Arm<'_>, reference: Option<&Arm<'_>>) -> Option<FigureSummary> {
    let values = arm.values(&figure.name);
    let ratio = reference
        .and_then(|reference| PairedRatio::of(&pairs(reference, arm, figure)))
        .and_then(|paired| paired.ratio(INTERVAL_CONFIDENCE));
    Some(FigureSummary {
        name: figure.name.clone(),
        unit: figure.unit.clone(),
        mean: statistics::mean(&values)?,
        min: values.iter().copied().reduce(f64::min)?,
        median: statistics::median(&values)?,
        max: values.iter().copied().reduce(f64::max)?,
        ratio,
    })
}

/// A verdict with what it rests on.
struct Judged {
    verdict: Verdict,
    ratio: Option<Ratio>,
    smallest_difference: Option<f64>,
    reason: Option<String>,
}

impl Judged {
    fn plain(verdict: Verdict, reason: Option<String>) -> Judged {
        Judged { verdict, ratio: None, smallest_difference: None, reason }
    }

    fn of(reference: &Arm<'_>, arm: &Arm<'_>, case: &Case) -> Judged {
        let Some(figure) = case.figures.first() else {
            return Judged::plain(
                Verdict::TooNoisy,
                Some("the workload gives no figure to compare".to_owned()),
            );
        };
        let pairs = pairs(reference, arm, figure);
        let mut judged = match PairedRatio::of(&pairs) {
            Some(paired) => Judged::from_ratio(&paired, pairs.len()),
            None => Judged::plain(
                Verdict::TooNoisy,
                Some(without_ratio(reference, arm, &figure.name, pairs.len())),
            ),
        };
        if let (Some(reason), Some(fallback)) = (&mut judged.reason, arm.fallback()) {
            *reason += "; ";
            *reason += &fallback;
        }
        judged
    }

    fn from_ratio(paired: &PairedRatio, pairs: usize) -> Judged {
        let smallest = paired.smallest_difference();
        let (verdict, reason) = match paired.claim() {
            Some(ratio) => (
                if ratio < 1.0 { Verdict::Faster } else { Verdict::Slower },
                format!(
                    "{pairs} pairs of rounds: the {:.0} % interval of the ratio excludes 1",
                    CLAIM_CONFIDENCE * 100.0
                ),
            ),
            None if smallest.is_none_or(|smallest| smallest > TOO_NOISY) => {
                (Verdict::TooNoisy, too_noisy(paired, smallest))
            }
            None => (
                Verdict::NoDifference,
                format!(
                    "a difference of {} would have been seen four times out of five",
                    percent(smallest.unwrap_or_default())
                ),
            ),
        };
        Judged {
            verdict,
            ratio: paired.ratio(INTERVAL_CONFIDENCE),
            smallest_difference: smallest,
            reason: Some(reason),
        }
    }
}

fn too_noisy(paired: &PairedRatio, smallest: Option<f64>) -> String {
    let seen = smallest.map_or_else(
        || "no difference could have been seen".to_owned(),
        |smallest| format!("only a difference of {} would have been seen", percent(smallest)),
    );
    let advice = paired.pairs_to_see(WORTH_SEEING).map_or_else(
        || "quieten the machine".to_owned(),
        |rounds| {
            format!("with this noise {} takes about {rounds} rounds on each side", percent(WORTH_SEEING))
        },
    );
    format!("{seen}; {advice}")
}

fn without_ratio(reference: &Arm<'_>, arm: &Arm<'_>, figure: &str, pairs: usize) -> String {
    if pairs >= FEWEST_PAIRS {
        return format!("'{figure}' is zero or below in some rounds, so that it has no ratio");
    }
    match reference.fallback() {
        Some(fallback) => format!(
            "only {pairs} blocks have both sides, {FEWEST_PAIRS} are needed; of the reference, {fallback}"
        ),
        None => format!(
            "only {pairs} blocks have '{figure}' on both sides ({} rounds here, {} of the reference), \
             {FEWEST_PAIRS} are needed",
            arm.counted.len(),
            reference.counted.len()
        ),
    }
}

/// A share in words: `3.1 %` below ten per cent, `24 %` above.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 9.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}
