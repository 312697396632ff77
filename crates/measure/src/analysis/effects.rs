//! The effects of the backings of several servers, from a factorial design: every block holds every combination of
//! their backings once.
//!
//! The effect of a backing of one server is the mean, over all combinations of the others, of the difference of the
//! logarithms of the figure between this backing and base; one value for each block (Montgomery, "Design and Analysis
//! of Experiments", chapter 5).

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use hugewise_linux::hugepages::backing::Backing;

use super::{Arm, actions, claims, logarithms_by_block};
use crate::{
    comparison::{
        ArmBacking, Case, Comparison, Figure,
        effect::{Effect, Interaction},
    },
    statistics::{INTERVAL_CONFIDENCE, MIN_PAIRS, PairedRatio, Ratio, mean},
    verdict::{ArmVerdict, Verdict},
};

/// The effects of all cases; none for one program.
pub(super) fn all(comparison: &Comparison) -> Vec<Effect> {
    let cases = 0..comparison.cases.len();
    cases.flat_map(|case| Factors::of(comparison, case).effects()).collect()
}

/// Number of effects in a case.
pub(super) fn count(comparison: &Comparison) -> usize {
    levels(&comparison.design.arms).iter().map(|(_, backings)| backings.len().saturating_sub(1)).sum()
}

/// The effects of a case on a figure, as far as their rounds are complete; `None` if one has too few blocks.
pub(super) fn ratios(comparison: &Comparison, case: usize, figure: &Figure) -> Option<Vec<PairedRatio>> {
    let factors = Factors::of(comparison, case);
    let complete = factors.levels().into_iter().filter(|level| !factors.complete(level).is_empty());
    complete.map(|level| PairedRatio::of_logarithms(&factors.effect(&level, figure))).collect()
}

/// The servers with their backings, base first, in the order of the arms.
fn levels(arms: &[ArmBacking]) -> Vec<(String, Vec<Backing>)> {
    let mut levels: Vec<(String, Vec<Backing>)> = Vec::new();
    for (name, backing) in arms.iter().flat_map(ArmBacking::servers) {
        match levels.iter_mut().find(|(known, _)| known == name) {
            Some((_, backings)) if backings.contains(backing) => {}
            Some((_, backings)) => backings.push(*backing),
            None => levels.push((name.clone(), vec![*backing])),
        }
    }
    levels
}

/// A backing of one of the servers, other than base.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Level {
    /// Index of the server.
    server: usize,
    name: String,
    backing: Backing,
}

/// The arms of a case, as combinations of the servers' backings.
struct Factors<'a> {
    comparison: &'a Comparison,
    case_index: usize,
    case: &'a Case,
    arms: Vec<Arm<'a>>,
}

/// Two arms that differ in the backing of one server: the index of that with base first.
type Pair = (usize, usize);

impl<'a> Factors<'a> {
    fn of(comparison: &'a Comparison, case: usize) -> Factors<'a> {
        let arms = (0..comparison.design.arms.len()).map(|arm| Arm::of(comparison, case, arm));
        Factors { comparison, case_index: case, case: &comparison.cases[case], arms: arms.collect() }
    }

    fn levels(&self) -> Vec<Level> {
        let of_server = |(server, (name, backings)): (usize, (String, Vec<Backing>))| {
            let level = move |backing| Level { server, name: name.clone(), backing };
            backings.into_iter().skip(1).map(level)
        };
        levels(&self.comparison.design.arms).into_iter().enumerate().flat_map(of_server).collect()
    }

    /// The pairs of arms that show the effect of a level.
    fn pairs(&self, level: &Level) -> Vec<Pair> {
        let arms = &self.comparison.design.arms;
        let reference = |arm: usize| {
            let mut servers = arms[arm].servers().to_vec();
            let base = arms[0].servers().get(level.server)?.1;
            servers.get_mut(level.server).filter(|server| server.1 == level.backing)?.1 = base;
            arms.iter().position(|other| other.servers() == servers)
        };
        (0..arms.len()).filter_map(|arm| Some((reference(arm)?, arm))).collect()
    }

    /// The pairs of which both arms ran on their pages.
    fn complete(&self, level: &Level) -> Vec<Pair> {
        let is_complete =
            |arm: usize| !self.comparison.leaves_out(self.case_index, arm) && !self.arms[arm].fell_back();
        self.pairs(level).into_iter().filter(|pair| is_complete(pair.0) && is_complete(pair.1)).collect()
    }

    /// The mean over `pairs` of the logarithms of their ratios, for each block in which all of them count; each
    /// pair has a weight.
    fn means(&self, pairs: &[(Pair, f64)], figure: &Figure) -> Vec<f64> {
        let mut blocks: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for ((reference, arm), weight) in pairs {
            for (block, logarithm) in logarithms_by_block(&self.arms[*reference], &self.arms[*arm], figure) {
                blocks.entry(block).or_default().push(weight * logarithm);
            }
        }
        blocks.retain(|_, logarithms| logarithms.len() == pairs.len());
        blocks.values().filter_map(|logarithms| mean(logarithms)).collect()
    }

    /// The logarithms of an effect, one for each block.
    fn effect(&self, level: &Level, figure: &Figure) -> Vec<f64> {
        let pairs: Vec<_> = self.complete(level).into_iter().map(|pair| (pair, 1.0)).collect();
        self.means(&pairs, figure)
    }

    /// The logarithms of the quotient of the effect of `level` while another server is on `other`, and of that
    /// while it is on base.
    fn interaction(&self, level: &Level, other: &Level, figure: &Figure) -> Vec<f64> {
        let arms = &self.comparison.design.arms;
        let base = arms[0].servers().get(other.server).map(|(_, backing)| *backing);
        // The means of both halves are subtracted, and not halved.
        let weight = |(reference, arm): Pair| {
            let (_, backing) = arms[arm].servers().get(other.server)?;
            let weight = match *backing {
                backing if backing == other.backing => 2.0,
                backing if Some(backing) == base => -2.0,
                _ => return None,
            };
            Some(((reference, arm), weight))
        };
        let pairs: Vec<_> = self.complete(level).into_iter().filter_map(weight).collect();
        let is_balanced = pairs.iter().map(|(_, weight)| weight).sum::<f64>() == 0.0;
        if is_balanced { self.means(&pairs, figure) } else { Vec::new() }
    }

    fn effects(&self) -> Vec<Effect> {
        let levels = self.levels();
        levels.iter().map(|level| self.judge(level, &levels)).collect()
    }

    fn judge(&self, level: &Level, levels: &[Level]) -> Effect {
        let figure = self.case.figures.first();
        let logarithms = figure.map(|figure| self.effect(level, figure)).unwrap_or_default();
        let judged = self.verdict(level, figure, &logarithms);
        let program = self.case.servers.get(level.server);
        let actions = program.map(|server| {
            let program = actions::Program { workload: &server.workload, command: &server.command };
            let arm = ArmBacking::from(level.backing);
            actions::of_server(judged.verdict, &level.name, &arm, self.case, &program)
        });
        let ratio_of =
            |logarithms: &[f64]| PairedRatio::of_logarithms(logarithms)?.ratio(INTERVAL_CONFIDENCE);
        let on_figure = |figure: &Figure| -> Option<(String, Ratio)> {
            Some((figure.name.clone(), ratio_of(&self.effect(level, figure))?))
        };
        let later = levels.iter().filter(|other| other.server > level.server);
        let interaction = |other: &Level| Interaction {
            server: other.name.clone(),
            backing: other.backing,
            ratio: figure.and_then(|figure| ratio_of(&self.interaction(level, other, figure))),
        };
        Effect {
            case: self.case_index,
            parameters: self.case.parameters.clone(),
            server: level.name.clone(),
            backing: level.backing,
            verdict: judged.verdict,
            figure: figure.map(|figure| figure.name.clone()).unwrap_or_default(),
            ratio: judged.ratio,
            smallest_difference: judged.smallest_difference,
            blocks: logarithms.len(),
            reason: judged.reason,
            actions: actions.unwrap_or_default(),
            figures: self.case.figures.iter().filter_map(on_figure).collect(),
            interactions: later.map(interaction).collect(),
        }
    }

    fn verdict(&self, level: &Level, figure: Option<&Figure>, logarithms: &[f64]) -> ArmVerdict {
        let pairs = self.pairs(level);
        if let Some(reason) = self.reason_left_out(&pairs) {
            return ArmVerdict::plain(Verdict::LeftOut, Some(reason));
        }
        let complete = self.complete(level).len();
        let fallback =
            || pairs.iter().flat_map(|pair| [pair.1, pair.0]).find_map(|arm| self.arms[arm].fallback());
        if complete == 0 && fallback().is_some() {
            return ArmVerdict::plain(Verdict::FellBack, fallback());
        }
        let (Some(figure), Some(paired)) = (figure, PairedRatio::of_logarithms(logarithms)) else {
            let reason = format!(
                "blocks in which all rounds of this effect count: {}, of {MIN_PAIRS} that are needed; repeat with a \
                 longer --max-time, or with --rounds {MIN_PAIRS} or more",
                logarithms.len()
            );
            return ArmVerdict::plain(Verdict::Inconclusive, Some(reason));
        };
        let mut judged = ArmVerdict::from_ratio(&paired, claims(self.comparison), figure.better);
        if let (Some(reason), true) = (&mut judged.reason, complete < pairs.len()) {
            *reason += &format!(
                "; from {complete} of {} combinations with the backings of the other servers: the others did not run, \
                 or fell back",
                pairs.len()
            );
        }
        judged
    }

    /// Why no pair ran: the reason of the first; `None` if one did.
    fn reason_left_out(&self, pairs: &[Pair]) -> Option<String> {
        let reason = |arm: usize| {
            let of_arm = |left: &&crate::comparison::LeftOut| (left.case, left.arm) == (self.case_index, arm);
            self.comparison.left_out.iter().find(of_arm).map(|left| left.reason.clone())
        };
        let of_pairs: Option<Vec<String>> =
            pairs.iter().map(|(reference, arm)| reason(*arm).or_else(|| reason(*reference))).collect();
        of_pairs?.into_iter().next()
    }
}
