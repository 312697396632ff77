//! The results of a comparison: a verdict for each backing, derived from the rounds.
//!
//! Pure: equal rounds give equal verdicts. The experiment is a randomised block design; every figure is
//! compared within its block, so that a temporary slowdown of the machine affects both sides of a ratio.
//! docs/method.md describes the method.

mod actions;
mod effects;
pub mod load;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use hugewise_linux::hugepages::backing::Backing;

use crate::{
    comparison::{
        BackingResult, Better, Case, CaseServer, Comparison, Figure, FigureSummary, RatioByLoad, Round,
        ServerCoverage, Turns,
    },
    statistics::{self, INTERVAL_CONFIDENCE, MIN_PAIRS, PairedRatio},
    stopping,
    turns::{self, cycles::Ratios},
    verdict::{ArmVerdict, Verdict},
};

/// Fills [`Comparison::backings`] from the rounds and the arms that did not run, one row per case and arm, and
/// [`Comparison::effects`].
pub fn analyse(comparison: &mut Comparison) {
    let arms = comparison.design.arms.len();
    comparison.backings = (0..comparison.cases.len())
        .flat_map(|case| (0..arms).map(move |arm| (case, arm)))
        .map(|(case, arm)| judge(comparison, case, arm))
        .collect();
    comparison.effects = effects::all(comparison);
}

/// Whether `case` needs no further block.
pub fn suffices(comparison: &Comparison, case: usize) -> bool {
    let Some(figure) = comparison.cases.get(case).and_then(|case| case.figures.first()) else { return false };
    if effects::count(comparison) > 0 {
        let ratios = effects::ratios(comparison, case, figure);
        return ratios.is_some_and(|effects| stopping::suffices(&effects, claims(comparison)));
    }
    let reference = Arm::of(comparison, case, 0);
    let arms: Option<Vec<PairedRatio>> = (1..comparison.design.arms.len())
        .filter(|arm| !comparison.leaves_out(case, *arm))
        .map(|arm| Arm::of(comparison, case, arm))
        // An arm that falls back will not be decided.
        .filter(|arm| !arm.fell_back())
        .map(|arm| PairedRatio::of_logarithms(&logarithms(&reference, &arm, figure)))
        .collect();
    arms.is_some_and(|arms| stopping::suffices(&arms, claims(comparison)))
}

/// For each arm of a case that takes turns, the logarithms of the ratios of its cycles in each block.
pub fn ratios_of_cycles(comparison: &Comparison, case: usize) -> Vec<Ratios> {
    let reference = Arm::of(comparison, case, 0);
    let of_arm = |arm| {
        let arm = Arm::of(comparison, case, arm);
        let of_block = |round: &&Round| {
            Some(cycles(reference.in_block(round.block)?.turns.as_ref()?, round.turns.as_ref()?))
        };
        arm.counted.iter().filter_map(of_block).collect()
    };
    (1..comparison.design.arms.len()).map(of_arm).filter(|ratios: &Ratios| !ratios.is_empty()).collect()
}

/// The logarithms of the ratios of the cycles.
fn cycles(reference: &Turns, turns: &Turns) -> Vec<f64> {
    let cycles = reference.values.iter().zip(&turns.values);
    cycles.map(|(reference, turn)| turn.ln() - reference.ln()).collect()
}

/// Number of arms in the whole table that are compared with a reference, and of effects of servers.
fn claims(comparison: &Comparison) -> usize {
    let arms = comparison.design.arms.len().saturating_sub(1);
    comparison.cases.len() * (arms + effects::count(comparison))
}

/// The rounds of one arm in one case.
struct Arm<'a> {
    counted: Vec<&'a Round>,
    fallen_back: Vec<&'a Round>,
    /// The blocks whose turns do not count.
    busiest: BTreeSet<usize>,
}

/// The busiest blocks of a case that takes turns.
fn busiest(comparison: &Comparison, case: usize) -> BTreeSet<usize> {
    let mut levels: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for round in comparison.rounds.iter().filter(|round| round.case == case) {
        if let (Some(block), Some(turns)) = (round.block, &round.turns) {
            let logarithms: Vec<f64> = turns.values.iter().map(|value| value.ln()).collect();
            levels.entry(block).or_default().extend(statistics::mean(&logarithms));
        }
    }
    let means: Vec<f64> = levels.values().filter_map(|levels| statistics::mean(levels)).collect();
    let blocks: Vec<usize> = levels.into_keys().collect();
    turns::busiest(&means).into_iter().filter_map(|index| blocks.get(index).copied()).collect()
}

impl<'a> Arm<'a> {
    fn of(comparison: &'a Comparison, case: usize, arm: usize) -> Arm<'a> {
        let (counted, fallen_back) = comparison
            .rounds
            .iter()
            .filter(|round| round.case == case && round.arm == arm && round.block.is_some())
            .partition(|round| round.fell_back.is_none());
        Arm { counted, fallen_back, busiest: busiest(comparison, case) }
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
        Some(format!("{} of {all} rounds do not count; most frequent cause: {cause}", self.fallen_back.len()))
    }

    fn ratio_by_load(&self, reference: &Arm<'_>) -> Option<RatioByLoad> {
        let starts = self.counted.iter().filter_map(|round| Some((reference.in_block(round.block)?, *round)));
        load::ratio_by_load(&starts.collect::<Vec<_>>())
    }

    /// The rounds that count, or, of an arm that fell back, those that fell back.
    fn shown(&self) -> &[&'a Round] {
        if self.fell_back() { &self.fallen_back } else { &self.counted }
    }

    fn values(&self, figure: &str) -> Vec<f64> {
        self.shown().iter().filter_map(|round| value(round, figure)).collect()
    }

    /// The counted round of a block.
    fn in_block(&self, block: Option<usize>) -> Option<&'a Round> {
        self.counted.iter().copied().find(|round| round.block == block)
    }

    /// Mean coverage of these rounds; `of` selects the region.
    fn mean_of(&self, of: impl Fn(&Round) -> Option<f64>) -> Option<f64> {
        let shares = self.shown().iter().filter_map(|round| of(round)).filter(|share| share.is_finite());
        statistics::mean(&shares.collect::<Vec<f64>>())
    }
}

/// A figure of a round; `None` if it was not read or is not a finite number.
fn value(round: &Round, figure: &str) -> Option<f64> {
    round.figures.get(figure).copied().filter(|value| value.is_finite())
}

/// The logarithms of the ratios of both arms in blocks where both count; below 0 if the arm is better than
/// the reference.
fn logarithms(reference: &Arm<'_>, arm: &Arm<'_>, figure: &Figure) -> Vec<f64> {
    logarithms_by_block(reference, arm, figure).into_values().collect()
}

/// The same by block.
fn logarithms_by_block(reference: &Arm<'_>, arm: &Arm<'_>, figure: &Figure) -> BTreeMap<usize, f64> {
    let sign = match figure.better {
        Better::Lower => 1.0,
        Better::Higher => -1.0,
    };
    let of_block = |round: &&Round| {
        let is_measured_by_turns = round.turns.as_ref().is_some_and(|turns| turns.figure == figure.name);
        let block = round.block?;
        if is_measured_by_turns && arm.busiest.contains(&block) {
            return None;
        }
        let reference = reference.in_block(round.block)?;
        Some((block, sign * logarithm(reference, round, &figure.name)?))
    };
    arm.counted.iter().filter_map(of_block).collect()
}

/// The logarithm of the ratio of two rounds: of their turns, cycle by cycle, if both took turns.
fn logarithm(reference: &Round, round: &Round, figure: &str) -> Option<f64> {
    match (&reference.turns, &round.turns) {
        (Some(references), Some(turns)) if references.figure == figure && turns.figure == figure => {
            statistics::trimmed_mean(&cycles(references, turns))
        }
        _ => Some(value(round, figure)?.ln() - value(reference, figure)?.ln()),
    }
}

/// The figure of populating memory.
const POPULATE: &str = "populate";

/// A note on populating THP on a host that takes back free memory, if it certainly took longer than on base
/// pages.
pub fn slow_populating(comparison: &Comparison) -> Option<String> {
    let is_slow = |case: usize, arm: usize| {
        let figure = comparison.cases[case].figures.iter().find(|figure| figure.name == POPULATE)?;
        let (reference, arm) = (Arm::of(comparison, case, 0), Arm::of(comparison, case, arm));
        let ratio = PairedRatio::of_logarithms(&logarithms(&reference, &arm, figure))?;
        Some(ratio.ratio(INTERVAL_CONFIDENCE)?.low > 1.0)
    };
    let arms = &comparison.design.arms;
    let thp = (1..arms.len()).filter(|arm| arms[*arm].backing() == Backing::Thp);
    let mut slow = thp.flat_map(|arm| (0..comparison.cases.len()).map(move |case| is_slow(case, arm)));
    (comparison.machine.host_takes_back_free_memory && slow.any(|slow| slow == Some(true))).then(|| {
        "memory on THP was populated more slowly than on base: this virtual machine gives free blocks of memory \
         back to its host (free page reporting). THP uses these blocks, and the host must provide their memory again; \
         a hugetlb pool keeps its memory"
            .to_owned()
    })
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
        (None, Some(reference)) => judge_figure(reference, &arm, case, claims(comparison)),
    };
    let actions = match judged.verdict {
        // A false claim has no consequence. Those of several servers follow from their effects.
        _ if comparison.design.aa || !case.servers.is_empty() => Vec::new(),
        verdict => actions::actions(verdict, &comparison.design.arms[arm_index], case),
    };
    BackingResult {
        workload: case.workload.clone(),
        parameters: case.parameters.clone(),
        backing: comparison.design.arms[arm_index].without_off_heap(),
        off_heap_backing: comparison.design.arms[arm_index].off_heap().map(Backing::from),
        verdict: judged.verdict,
        figure: case.figures.first().map(|figure| figure.name.clone()).unwrap_or_default(),
        ratio: judged.ratio,
        smallest_difference: judged.smallest_difference,
        ratio_by_load: reference.as_ref().and_then(|reference| arm.ratio_by_load(reference)),
        turns_between: load::spread(&arm.counted).map(<[f64; 2]>::from),
        coverage: arm.mean_of(|round| round.coverage),
        off_heap_coverage: arm.mean_of(|round| round.off_heap_coverage),
        server_coverage: server_coverage(&case.servers, &arm),
        rounds: arm.counted.len(),
        rounds_fallen_back: arm.fallen_back.len(),
        blocks_too_busy: arm.busiest.len(),
        reason: judged.reason,
        actions,
        figures: case.figures.iter().filter_map(|f| summary(f, &arm, reference.as_ref())).collect(),
    }
}

/// The mean coverage of each server.
fn server_coverage(servers: &[CaseServer], arm: &Arm<'_>) -> Vec<ServerCoverage> {
    let of = |server: &CaseServer| {
        let coverage = arm.mean_of(|round| {
            round.server_coverage.iter().find(|covered| covered.server == server.name)?.coverage
        });
        ServerCoverage { server: server.name.clone(), coverage }
    };
    servers.iter().map(of).collect()
}

fn summary(figure: &Figure, arm: &Arm<'_>, reference: Option<&Arm<'_>>) -> Option<FigureSummary> {
    let values = arm.values(&figure.name);
    let ratio = reference
        .filter(|_| !arm.fell_back())
        .and_then(|reference| PairedRatio::of_logarithms(&logarithms(reference, arm, figure)))
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

fn judge_figure(reference: &Arm<'_>, arm: &Arm<'_>, case: &Case, claims: usize) -> ArmVerdict {
    let Some(figure) = case.figures.first() else {
        let reason = "the workload gives no figure to compare".to_owned();
        return ArmVerdict::plain(Verdict::Inconclusive, Some(reason));
    };
    let pairs = logarithms(reference, arm, figure);
    let mut judged = match PairedRatio::of_logarithms(&pairs) {
        Some(paired) => ArmVerdict::from_ratio(&paired, claims, figure.better),
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
            format!(
                "blocks in which the rounds of both backings count: {pairs}, of {MIN_PAIRS} that are needed; reference: \
                 {fallback}"
            )
        }
        None => format!(
            "blocks with '{figure}' for both backings: {pairs}, of {MIN_PAIRS} that are needed (rounds that count: {} of \
             this backing, {} of the reference); repeat with a longer --max-time, or with --rounds {MIN_PAIRS} or more",
            arm.counted.len(),
            reference.counted.len()
        ),
    }
}
