//! The rows of a comparison, with the cases of one workload grouped together.

use hugewise_measure::{
    comparison::{BackingResult, Case, Comparison, Figure, FigureSummary, Round},
    verdict::Verdict,
};

use super::words;

/// The cases of one workload: a single one, or one for each value of a parameter list.
pub struct Group<'a> {
    pub cases: Vec<CaseRows<'a>>,
}

pub struct CaseRows<'a> {
    pub case: &'a Case,
    /// One row for each arm.
    pub rows: Vec<ArmRow<'a>>,
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
            let case = CaseRows { case, rows: rows.collect() };
            match groups.last_mut() {
                Some(group) if group.takes(case.case) => group.cases.push(case),
                _ => groups.push(Group { cases: vec![case] }),
            }
        }
        groups
    }

    fn takes(&self, case: &Case) -> bool {
        self.cases.first().is_some_and(|first| {
            let names = |case: &Case| case.parameters.keys().cloned().collect::<Vec<_>>();
            first.case.workload == case.workload
                && first.case.figures == case.figures
                && !case.parameters.is_empty()
                && names(first.case) == names(case)
        })
    }

    /// The first case; workload, figures and names of parameters are the same in all cases.
    pub fn first(&self) -> Option<&'a Case> {
        self.cases.first().map(|rows| rows.case)
    }

    /// Whether the group has several cases, with different parameter values.
    pub fn is_list(&self) -> bool {
        self.cases.len() > 1
    }

    /// The figure that decides the verdict.
    pub fn figure(&self) -> Option<&'a Figure> {
        self.first()?.figures.first()
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

    /// The reason for the verdict; `None` if the verdict needs no reason.
    pub fn reason(&self) -> Option<&str> {
        let is_without_ratio =
            matches!(self.result.verdict, Verdict::FellBack | Verdict::LeftOut | Verdict::Inconclusive);
        let has_reason = is_without_ratio || self.result.rounds_fallen_back > 0;
        self.result.reason.as_deref().filter(|_| has_reason)
    }

    /// Values of a figure in the rounds that count.
    pub fn values(&self, figure: &str) -> Vec<f64> {
        let values = self.counted.iter().filter_map(|round| round.figures.get(figure).copied());
        values.filter(|value| value.is_finite()).collect()
    }
}

fn label(comparison: &Comparison, arm: usize, result: &BackingResult) -> String {
    let letter = u8::try_from(arm).ok().and_then(|arm| b'A'.checked_add(arm)).map(char::from);
    match letter {
        Some(letter) if comparison.design.aa => format!("{} ({letter})", result.backing),
        _ => result.backing.to_string(),
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
