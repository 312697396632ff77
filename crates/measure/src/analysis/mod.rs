//! The results of a comparison: a verdict for each backing, derived from the rounds.
//!
//! Pure: equal rounds give equal verdicts. The experiment is a randomised block design; every figure is
//! compared within its block, so that a temporary slowdown of the machine affects both sides of a ratio.
//! docs/method.md describes the method.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::{
    comparison::{BackingResult, Better, Case, Comparison, Figure, FigureSummary, Round},
    statistics::{self, INTERVAL_CONFIDENCE, MAX_PAIRS, MIN_PAIRS, PairedRatio},
    verdict::{ArmVerdict, Verdict},
};

/// Fills [`Comparison::backings`] from the rounds and the arms that did not run, one row per case and arm.
pub fn analyse(comparison: &mut Comparison) {
    let arms = comparison.design.arms.len();
    comparison.backings = (0..comparison.cases.len())
        .flat_map(|case| (0..arms).map(move |arm| (case, arm)))
        .map(|(case, arm)| judge(comparison, case, arm))
        .collect();
}

/// Number of further blocks after which a difference of `share` in the first figure would be detected in
/// every arm of `case`, given the noise so far; 0 if it already would.
///
/// It depends on the spread and never on the difference: stopping when it returns 0 keeps the false claims of
/// simulated experiments at 1 % or below. Arms with too few pairs for an estimate of their spread are
/// skipped.
pub fn blocks_to_detect(comparison: &Comparison, case: usize, share: f64) -> usize {
    let Some(figure) = comparison.cases.get(case).and_then(|case| case.figures.first()) else { return 0 };
    let reference = Arm::of(comparison, case, 0);
    (1..comparison.design.arms.len())
        .filter_map(|arm| {
            let pairs = pairs(&reference, &Arm::of(comparison, case, arm), figure);
            let needed = PairedRatio::of(&pairs)?.pairs_to_detect(share).unwrap_or(MAX_PAIRS);
            Some(needed.saturating_sub(pairs.len()))
        })
        .max()
        .unwrap_or(0)
}

/// The rounds of one arm in one case.
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

    /// Whether at least half of the rounds fell back.
    fn fell_back(&self) -> bool {
        !self.fallen_back.is_empty() && self.counted.len() <= self.fallen_back.len()
    }

    /// The number of rounds that fell back, and their most common cause; among equals, the first.
    fn fallback(&self) -> Option<String> {
        let mut causes: Vec<(&str, usize)> = Vec::new();
        for cause in self.fallen_back.iter().filter_map(|round| round.fell_back.as_deref()) {
            match causes.iter_mut().find(|(known, _)| *known == cause) {
                Some((_, times)) => *times += 1,
                None => causes.push((cause, 1)),
            }
        }
        // The last of equal maxima is returned.
        let (cause, _) = causes.iter().rev().max_by_key(|(_, times)| times)?;
        let all = self.counted.len() + self.fallen_back.len();
        Some(format!("{} of {all} rounds did not get their pages: {cause}", self.fallen_back.len()))
    }

    fn values(&self, figure: &str) -> Vec<f64> {
        self.counted.iter().filter_map(|round| value(round, figure)).collect()
    }

    fn by_block(&self, figure: &str) -> BTreeMap<usize, f64> {
        self.counted.iter().filter_map(|round| Some((round.block?, value(round, figure)?))).collect()
    }

    /// Mean coverage of the counted rounds, or of those that fell back if none counts.
    fn coverage(&self) -> Option<f64> {
        let rounds = if self.counted.is_empty() { &self.fallen_back } else { &self.counted };
        let shares: Vec<f64> =
            rounds.iter().filter_map(|round| round.coverage).filter(|share| share.is_finite()).collect();
        statistics::mean(&shares)
    }
}

/// A figure of a round; `None` if it was not read or is not a finite number.
fn value(round: &Round, figure: &str) -> Option<f64> {
    round.figures.get(figure).copied().filter(|value| value.is_finite())
}

/// The figures of both arms in blocks where both count, ordered so that second divided by first is below 1 if
/// the arm is better than the reference.
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

fn judge(comparison: &Comparison, case_index: usize, arm_index: usize) -> BackingResult {
    let case = &comparison.cases[case_index];
    let arm = Arm::of(comparison, case_index, arm_index);
    let reference = (arm_index > 0).then(|| Arm::of(comparison, case_index, 0));
    let left_out = comparison.left_out.iter().find(|left| left.case == case_index && left.arm == arm_index);

    let judged = match (left_out, &reference) {
        (Some(left), _) => ArmVerdict::plain(Verdict::LeftOut, Some(left.reason.clone())),
        _ if arm.fell_back() => ArmVerdict::plain(Verdict::FellBack, arm.fallback()),
        (None, None) => ArmVerdict::plain(Verdict::Base, arm.fallback()),
        (None, Some(reference)) => judge_figure(reference, &arm, case),
    };
    BackingResult {
        workload: case.workload.clone(),
        parameters: case.parameters.clone(),
        backing: comparison.design.arms[arm_index],
        verdict: judged.verdict,
        figure: case.figures.first().map(|figure| figure.name.clone()).unwrap_or_default(),
        ratio: judged.ratio,
        smallest_difference: judged.smallest_difference,
        coverage: arm.coverage(),
        rounds: arm.counted.len(),
        rounds_fallen_back: arm.fallen_back.len(),
        reason: judged.reason,
        figures: case.figures.iter().filter_map(|f| summary(f, &arm, reference.as_ref())).collect(),
    }
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

fn judge_figure(reference: &Arm<'_>, arm: &Arm<'_>, case: &Case) -> ArmVerdict {
    let Some(figure) = case.figures.first() else {
        let reason = "the workload gives no figure to compare".to_owned();
        return ArmVerdict::plain(Verdict::Inconclusive, Some(reason));
    };
    let pairs = pairs(reference, arm, figure);
    let mut judged = match PairedRatio::of(&pairs) {
        Some(paired) => ArmVerdict::from_ratio(&paired, pairs.len()),
        None => {
            let reason = without_ratio(reference, arm, &figure.name, pairs.len());
            ArmVerdict::plain(Verdict::Inconclusive, Some(reason))
        }
    };
    if let (Some(reason), Some(fallback)) = (&mut judged.reason, arm.fallback()) {
        *reason += &format!("; {fallback}");
    }
    judged
}

fn without_ratio(reference: &Arm<'_>, arm: &Arm<'_>, figure: &str, pairs: usize) -> String {
    if pairs >= MIN_PAIRS {
        return format!("'{figure}' is zero or below in some rounds, so that it has no ratio");
    }
    match reference.fallback() {
        Some(fallback) => {
            format!("only {pairs} blocks are complete, {MIN_PAIRS} are needed; reference: {fallback}")
        }
        None => format!(
            "only {pairs} blocks have '{figure}' for both backings ({} rounds here, {} of the reference), \
             {MIN_PAIRS} are needed",
            arm.counted.len(),
            reference.counted.len()
        ),
    }
}
