//! The result of a comparison as a self-contained HTML page.

#[cfg(test)]
mod tests;

use anyhow::Context;
use hugewise_measure::{
    comparison::{Better, Comparison},
    verdict::Verdict,
};
use serde::Serialize;

use super::{
    plotted::{self, Plot},
    rows::{self, ArmRow, CaseRows, Group},
    words::{self, Scale},
};
use crate::output::{web_page, words::coverage};

/// The page. All text from other sources is escaped, also in plots; the page has no scripts.
pub fn html(comparison: &Comparison) -> anyhow::Result<String> {
    web_page::render(include_str!("page.html"), page(comparison)?)
}

#[derive(Serialize)]
struct Page {
    version: String,
    machine: String,
    design: String,
    reference: String,
    aa: bool,
    started: String,
    groups: Vec<Section>,
    changes: Vec<String>,
    notes: Vec<String>,
}

/// One workload.
#[derive(Serialize)]
struct Section {
    workload: String,
    command: String,
    parameters: String,
    parameter_names: Vec<String>,
    conclusions: Vec<Conclusion>,
    figure: String,
    rows: Vec<TableRow>,
    plots: Vec<Plot>,
    others: Vec<Others>,
    reasons: Vec<Reason>,
}

#[derive(Serialize)]
struct Conclusion {
    of: String,
    sentences: Vec<String>,
}

#[derive(Serialize)]
struct TableRow {
    /// Whether the parameters equal those of the previous row.
    repeated: bool,
    parameters: Vec<Cell>,
    backing: String,
    arm: usize,
    coverage: String,
    rounds: String,
    mean: String,
    ratio: String,
    verdict: String,
    kind: &'static str,
}

#[derive(Serialize)]
struct Cell {
    name: String,
    value: String,
}

/// The figures of one case that do not decide the verdict: a column for each backing.
#[derive(Serialize)]
struct Others {
    of: String,
    backings: Vec<String>,
    rows: Vec<OtherRow>,
}

#[derive(Serialize)]
struct OtherRow {
    figure: String,
    means: Vec<Mean>,
}

#[derive(Serialize)]
struct Mean {
    backing: String,
    value: String,
    change: String,
    better: bool,
}

#[derive(Serialize)]
struct Reason {
    of: String,
    text: String,
}

fn page(comparison: &Comparison) -> anyhow::Result<Page> {
    let printable = |texts: &[String]| texts.iter().map(|text| words::printable(text)).collect();
    Ok(Page {
        version: comparison.version.clone(),
        machine: words::machine(&comparison.machine),
        design: words::design(&comparison.design),
        reference: words::reference(comparison),
        aa: comparison.design.aa,
        started: words::moment(comparison.started_unix_seconds),
        groups: Group::all(comparison)
            .iter()
            .map(|group| section(comparison, group))
            .collect::<anyhow::Result<_>>()?,
        changes: printable(&comparison.changes),
        notes: printable(&comparison.notes),
    })
}

fn section(comparison: &Comparison, group: &Group<'_>) -> anyhow::Result<Section> {
    let case = group.first().context("a workload without a case")?;
    let name = group.figure().map(|figure| figure.name.clone()).unwrap_or_default();
    let scale = scale(group, &name);
    let parameter_names: Vec<String> =
        if group.is_list() { case.parameters.keys().cloned().collect() } else { Vec::new() };
    Ok(Section {
        workload: words::printable(&case.workload),
        command: words::command(case, 2000),
        parameters: if group.is_list() { String::new() } else { rows::parameters(case) },
        conclusions: group.cases.iter().map(|case| conclusion(comparison, group, case)).collect(),
        figure: scale.as_ref().map_or_else(|| "figure".to_owned(), |scale| scale.heading(&name)),
        rows: table(group, &name, scale.as_ref(), &parameter_names),
        plots: plotted::all(comparison, group, &name, scale.as_ref())?,
        others: group.cases.iter().filter_map(|case| others(group, case)).collect(),
        reasons: reasons(group),
        parameter_names: parameter_names.iter().map(|name| words::printable(name)).collect(),
    })
}

fn scale(group: &Group<'_>, figure: &str) -> Option<Scale> {
    let means = group.rows().filter_map(|(_, row)| row.summary(figure)).map(|s| s.mean.abs());
    Some(Scale::of(group.figure()?, means.fold(0.0, f64::max)))
}

fn conclusion(comparison: &Comparison, group: &Group<'_>, case: &CaseRows<'_>) -> Conclusion {
    let rows: Vec<_> = case.rows.iter().map(|row| (row.label.clone(), row.result)).collect();
    Conclusion {
        of: if group.is_list() { rows::parameters(case.case) } else { String::new() },
        sentences: words::conclusions(comparison, &rows, case.case),
    }
}

fn table(group: &Group<'_>, figure: &str, scale: Option<&Scale>, parameters: &[String]) -> Vec<TableRow> {
    let better = group.figure().map_or(Better::Lower, |figure| figure.better);
    group
        .rows()
        .map(|(case, row)| TableRow {
            repeated: row.arm > 0,
            parameters: parameters
                .iter()
                .map(|name| Cell {
                    name: words::printable(name),
                    value: case.parameters.get(name).map(|v| words::printable(v)).unwrap_or_default(),
                })
                .collect(),
            backing: row.label.clone(),
            arm: row.arm,
            coverage: match row.result.verdict {
                Verdict::LeftOut => "–".to_owned(),
                _ => coverage(row.result.coverage, "unknown"),
            },
            rounds: words::rounds(row.result),
            mean: row
                .summary(figure)
                .zip(scale)
                .map_or_else(|| "–".to_owned(), |(summary, scale)| scale.number(summary.mean)),
            ratio: row.result.ratio.as_ref().map_or_else(|| "–".to_owned(), words::ratio),
            verdict: words::verdict(row.result, better),
            kind: match row.result.verdict {
                Verdict::Faster => "good",
                Verdict::Slower => "bad",
                Verdict::Inconclusive | Verdict::FellBack => "warn",
                Verdict::Base | Verdict::NoDifference | Verdict::LeftOut => "plain",
            },
        })
        .collect()
}

fn others(group: &Group<'_>, case: &CaseRows<'_>) -> Option<Others> {
    let rows: Vec<&ArmRow<'_>> = case.rows.iter().filter(|row| !row.result.figures.is_empty()).collect();
    let figures: Vec<OtherRow> = case
        .case
        .figures
        .iter()
        .skip(1)
        .map(|figure| {
            let means = rows.iter().filter_map(|row| row.summary(&figure.name)).map(|s| s.mean.abs());
            let scale = Scale::of(figure, means.fold(0.0, f64::max));
            let mean = |row: &&ArmRow<'_>| {
                let summary = row.summary(&figure.name);
                let changed = summary.and_then(|s| s.ratio).filter(|r| r.low > 1.0 || r.high < 1.0);
                Mean {
                    backing: row.label.clone(),
                    value: summary.map_or_else(|| "–".to_owned(), |s| scale.number(s.mean)),
                    change: changed
                        .map_or_else(String::new, |ratio| words::signed(ratio.estimate, figure.better)),
                    better: changed.is_some_and(|ratio| ratio.estimate < 1.0),
                }
            };
            OtherRow { figure: scale.heading(&figure.name), means: rows.iter().map(mean).collect() }
        })
        .collect();
    (!figures.is_empty() && !rows.is_empty()).then(|| Others {
        of: if group.is_list() { rows::parameters(case.case) } else { String::new() },
        backings: rows.iter().map(|row| row.label.clone()).collect(),
        rows: figures,
    })
}

fn reasons(group: &Group<'_>) -> Vec<Reason> {
    group
        .rows()
        .filter_map(|(case, row)| {
            Some(Reason {
                of: match group.is_list() {
                    true => format!("{} {}", rows::parameters(case), row.label),
                    false => row.label.clone(),
                },
                text: words::printable(row.reason()?),
            })
        })
        .collect()
}
