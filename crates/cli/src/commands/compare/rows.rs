//! The rows of a comparison, with the cases of one workload grouped together.

use hugewise_linux::action::Action;
use hugewise_measure::{
    comparison::{
        BackingResult, Better, Case, Comparison, Figure, FigureSummary, RatioByLoad, Round, effect::Effect,
    },
    verdict::Verdict,
};
use serde::Serialize;

use super::words::{self, Scale};
use crate::output::{layout::share_verify_commands, words::coverage};

/// In place of a value that is unknown.
pub const UNKNOWN: &str = "–";

/// The cases of one workload: a single one, or one for each value of a parameter list. Workload, figures and
/// names of parameters are the same in all cases.
pub struct Group<'a> {
    /// The first case.
    pub first: &'a Case,
    pub cases: Vec<CaseRows<'a>>,
    /// The figure that decides the verdict.
    pub figure: Figure,
}

pub struct CaseRows<'a> {
    pub case: &'a Case,
    /// One row for each arm.
    pub rows: Vec<ArmRow<'a>>,
    /// The effects of the backings of several servers; none for one program.
    pub effects: Vec<&'a Effect>,
}

/// One arm in one case.
pub struct ArmRow<'a> {
    /// Name of the backing, with a letter if both arms have the same backing.
    pub label: String,
    /// Index of the arm.
    pub arm: usize,
    pub result: &'a BackingResult,
    /// Rounds that count.
    pub counted: Vec<&'a Round>,
}

/// The figures of one case that do not decide the verdict: a column for each backing.
#[derive(Serialize)]
pub struct OtherFigures {
    /// The parameters of the case; empty if the group has a single case.
    pub of: String,
    pub backings: Vec<String>,
    pub rows: Vec<OtherFigure>,
}

#[derive(Serialize)]
pub struct OtherFigure {
    pub figure: String,
    /// For each backing.
    pub means: Vec<Mean>,
}

#[derive(Serialize)]
pub struct Mean {
    pub value: String,
    /// Empty if the change is not significant.
    pub change: String,
    better: bool,
}

/// The reason for a verdict.
#[derive(Serialize)]
pub struct ReasonRow {
    pub of: String,
    pub text: String,
}

impl<'a> Group<'a> {
    /// All groups of an analysed comparison, which has one result for each case and arm.
    pub fn all(comparison: &'a Comparison) -> Vec<Group<'a>> {
        let arms = comparison.design.arms.len().max(1);
        let mut groups: Vec<Group<'a>> = Vec::new();
        for (index, (case, results)) in
            comparison.cases.iter().zip(comparison.backings.chunks(arms)).enumerate()
        {
            let rows = results.iter().enumerate().map(|(arm, result)| ArmRow {
                label: label(comparison, arm, result),
                arm,
                result,
                counted: counted(comparison, index, arm),
            });
            let effects = comparison.effects.iter().filter(|effect| effect.case == index).collect();
            let case = CaseRows { case, rows: rows.collect(), effects };
            match groups.last_mut() {
                Some(group) if group.takes(case.case) => group.cases.push(case),
                _ => groups.push(Group::new(case)),
            }
        }
        groups
    }

    fn new(case: CaseRows<'a>) -> Group<'a> {
        let none = || Figure { name: "figure".to_owned(), unit: String::new(), better: Better::Lower };
        let figure = case.case.figures.first().cloned().unwrap_or_else(none);
        Group { first: case.case, cases: vec![case], figure }
    }

    fn takes(&self, case: &Case) -> bool {
        self.first.workload == case.workload
            && self.first.figures == case.figures
            && !case.parameters.is_empty()
            && self.first.parameters.keys().eq(case.parameters.keys())
    }

    /// Whether the group has several cases, with different parameter values.
    pub fn is_list(&self) -> bool {
        self.cases.len() > 1
    }

    /// The names of the parameters; none if the group has a single case.
    pub fn parameter_names(&self) -> Vec<&'a String> {
        if self.is_list() { self.first.parameters.keys().collect() } else { Vec::new() }
    }

    /// The parameters of one case; empty if the group has a single case.
    pub fn parameters(&self, case: &Case) -> String {
        if self.is_list() { parameters(case) } else { String::new() }
    }

    /// The unit for the figure that decides the verdict.
    pub fn scale(&self) -> Scale {
        scale(&self.figure, self.rows().map(|(_, row)| row))
    }

    /// The figures of a case that do not decide the verdict; `None` if it has none.
    pub fn other_figures(&self, case: &CaseRows<'a>) -> Option<OtherFigures> {
        let rows: Vec<&ArmRow<'a>> = case.rows.iter().filter(|row| !row.result.figures.is_empty()).collect();
        let figures = case.case.figures.get(1..).filter(|figures| !figures.is_empty() && !rows.is_empty())?;
        let is_known = |figure: &&Figure| rows.iter().any(|row| row.summary(&figure.name).is_some());
        let other = |figure: &Figure| {
            let scale = scale(figure, rows.iter().copied());
            let mean = |row: &&ArmRow<'a>| {
                let ratio = row.summary(&figure.name).and_then(|summary| summary.ratio);
                let changed = ratio.filter(|ratio| ratio.low > 1.0 || ratio.high < 1.0);
                let change = changed.map(|ratio| words::signed(ratio.estimate, figure.better));
                Mean {
                    value: row.mean(&figure.name, &scale),
                    change: change.unwrap_or_default(),
                    better: changed.is_some_and(|ratio| ratio.estimate < 1.0),
                }
            };
            OtherFigure { figure: scale.heading(figure), means: rows.iter().map(mean).collect() }
        };
        Some(OtherFigures {
            of: self.parameters(case.case),
            backings: rows.iter().map(|row| row.label.clone()).collect(),
            rows: figures.iter().filter(|figure| is_known(figure)).map(other).collect(),
        })
    }

    /// How noisy the host was, and how the ratios depend on it, in sentences; none without turns.
    pub fn noise(&self) -> Vec<String> {
        let scale = self.scale();
        let sentence = |(_, row): (&'a Case, &ArmRow<'a>)| {
            let spread = row.result.turns_between.filter(|_| row.arm == 0).map(|[low, high]| {
                let high = scale.value(high);
                format!("Nine in ten turns on {} measured {} to {high}.", row.label, scale.number(low))
            });
            let has_ratio = self.rows().any(|(_, row)| row.result.ratio.is_some());
            let busiest = (row.arm == 0 && row.result.blocks_too_busy > 0 && has_ratio).then(|| {
                let left_out = row.result.blocks_too_busy;
                let all = row.result.rounds + row.result.rounds_fallen_back;
                let figure = words::name(&self.figure.name);
                format!("The ratios of {figure} do not include the busiest {left_out} of {all} blocks.")
            });
            let by_load = row.result.ratio_by_load.map(|RatioByLoad { quietest, busiest }| {
                format!(
                    "The ratio of {} depends on the load of the host: {quietest:.3} in the quietest quarter \
                     of the turns, {busiest:.3} in the busiest.",
                    row.label
                )
            });
            spread.into_iter().chain(busiest).chain(by_load)
        };
        self.rows().flat_map(sentence).collect()
    }

    /// The reasons for verdicts that need a reason.
    pub fn reasons(&self) -> Vec<ReasonRow> {
        let reason = |(case, row): (&'a Case, &ArmRow<'a>)| {
            Some(ReasonRow { of: self.of(case, row), text: words::printable(row.reason()?) })
        };
        let of_effects = self.effects().filter_map(|(case, effect)| {
            let text = words::printable(effect.reason.as_ref().filter(|_| needs_reason(effect.verdict))?);
            Some(ReasonRow { of: self.of_effect(case, effect), text })
        });
        of_effects.chain(self.rows().filter_map(reason)).collect()
    }

    /// All effects of all cases, each with its case.
    pub fn effects(&self) -> impl Iterator<Item = (&'a Case, &'a Effect)> {
        self.cases.iter().flat_map(|case| case.effects.iter().map(|effect| (case.case, *effect)))
    }

    /// The name of an effect, with its parameters if the group has several cases.
    pub fn of_effect(&self, case: &Case, effect: &Effect) -> String {
        let label = format!("{}={}", effect.server, effect.backing);
        if self.is_list() { format!("{} {label}", parameters(case)) } else { label }
    }

    /// The name of a row, with its parameters if the group has several cases.
    pub fn of(&self, case: &Case, row: &ArmRow<'_>) -> String {
        let label = &row.label;
        if self.is_list() { format!("{} {label}", parameters(case)) } else { label.clone() }
    }

    /// All rows of all cases, each with its case.
    pub fn rows(&self) -> impl Iterator<Item = (&'a Case, &ArmRow<'a>)> {
        self.cases.iter().flat_map(|case| case.rows.iter().map(|row| (case.case, row)))
    }
}

impl ArmRow<'_> {
    pub fn summary(&self, figure: &str) -> Option<&FigureSummary> {
        self.result.figures.iter().find(|summary| summary.name == figure)
    }

    /// The mean of a figure; [`UNKNOWN`] without a round that counts.
    pub fn mean(&self, figure: &str, scale: &Scale) -> String {
        self.summary(figure).map_or_else(|| UNKNOWN.to_owned(), |summary| scale.number(summary.mean))
    }

    /// The coverage; [`UNKNOWN`] if the backing was skipped.
    pub fn coverage(&self) -> String {
        match self.result.verdict {
            Verdict::LeftOut => UNKNOWN.to_owned(),
            _ if !self.result.server_coverage.is_empty() => {
                let of_servers = self.result.server_coverage.iter();
                let texts: Vec<String> = of_servers.map(|of| coverage(of.coverage, "unknown")).collect();
                texts.join(", ")
            }
            _ => {
                let heap = coverage(self.result.coverage, "unknown");
                match self.result.off_heap_coverage {
                    Some(off_heap) => format!("{heap}, {}", coverage(Some(off_heap), "unknown")),
                    None => heap,
                }
            }
        }
    }

    /// The reason for the verdict; `None` if the verdict needs no reason.
    fn reason(&self) -> Option<&str> {
        // Of several servers the effects are judged: a combination needs a reason only if rounds are missing.
        let is_judged = self.result.server_coverage.is_empty();
        let is_missing = matches!(self.result.verdict, Verdict::FellBack | Verdict::LeftOut);
        let has_reason = is_missing
            || self.result.rounds_fallen_back > 0
            || is_judged && needs_reason(self.result.verdict);
        self.result.reason.as_deref().filter(|_| has_reason)
    }

    /// Values of a figure in the rounds that count.
    pub fn values(&self, figure: &str) -> Vec<f64> {
        let values = self.counted.iter().filter_map(|round| round.figures.get(figure).copied());
        values.filter(|value| value.is_finite()).collect()
    }
}

/// Whether the verdict alone does not suffice.
fn needs_reason(verdict: Verdict) -> bool {
    !matches!(verdict, Verdict::Base | Verdict::Faster | Verdict::Slower)
}

/// Actions after the verdicts: of the fastest backing of each case, and of each of several servers, and of all that
/// are not faster.
pub fn actions(groups: &[Group<'_>]) -> Vec<Action> {
    let mut actions: Vec<Action> = Vec::new();
    for case in groups.iter().flat_map(|group| &group.cases) {
        let of_rows = case.rows.iter().map(|row| &row.result).map(|row| Judged {
            server: None,
            verdict: row.verdict,
            estimate: row.ratio.map_or(1.0, |ratio| ratio.estimate),
            actions: &row.actions,
        });
        let of_effects = case.effects.iter().map(|effect| Judged {
            server: Some(&effect.server),
            verdict: effect.verdict,
            estimate: effect.ratio.map_or(1.0, |ratio| ratio.estimate),
            actions: &effect.actions,
        });
        let judged: Vec<Judged<'_>> = of_rows.chain(of_effects).collect();
        let is_shown = |one: &&Judged<'_>| {
            let is_faster_still = |other: &Judged<'_>| {
                other.is_faster() && other.server == one.server && other.estimate < one.estimate
            };
            !one.is_faster() || !judged.iter().any(is_faster_still)
        };
        for action in judged.iter().filter(is_shown).flat_map(|judged| judged.actions) {
            let printable = |text: &String| words::printable(text);
            let action = Action {
                change: words::printable(&action.change),
                command: action.command.as_ref().map(printable),
                verify: action.verify.as_ref().map(printable),
            };
            if !actions.contains(&action) {
                actions.push(action);
            }
        }
    }
    share_verify_commands(&actions)
}

/// A verdict with its actions.
struct Judged<'a> {
    /// The server whose backing is judged; `None` for that of a program, or for a combination.
    server: Option<&'a str>,
    verdict: Verdict,
    estimate: f64,
    actions: &'a [Action],
}

impl Judged<'_> {
    fn is_faster(&self) -> bool {
        self.verdict == Verdict::Faster
    }
}

/// The unit that suits the largest mean of a figure.
fn scale<'r>(figure: &Figure, rows: impl Iterator<Item = &'r ArmRow<'r>>) -> Scale {
    let means = rows.filter_map(|row| row.summary(&figure.name)).map(|summary| summary.mean.abs());
    Scale::of(figure, means.fold(0.0, f64::max))
}

fn label(comparison: &Comparison, arm: usize, result: &BackingResult) -> String {
    let letter = u8::try_from(arm).ok().and_then(|arm| b'A'.checked_add(arm)).map(char::from);
    match letter {
        Some(letter) if comparison.design.aa => format!("{} ({letter})", result.backing),
        _ => comparison.design.arms.get(arm).map_or_else(|| result.backing.to_string(), ToString::to_string),
    }
}

fn counted(comparison: &Comparison, case: usize, arm: usize) -> Vec<&Round> {
    let counts = |round: &&Round| {
        round.case == case && round.arm == arm && round.block.is_some() && round.fell_back.is_none()
    };
    comparison.rounds.iter().filter(counts).collect()
}

/// `heap=2g, threads=4`
pub fn parameters(case: &Case) -> String {
    let pairs: Vec<String> = case.parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
    words::printable(&pairs.join(", "))
}

/// `2g, 4`: the values without the names.
pub fn values(case: &Case) -> String {
    let values: Vec<&str> = case.parameters.values().map(String::as_str).collect();
    words::printable(&values.join(", "))
}
