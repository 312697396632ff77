//! The result of a comparison as a self-contained HTML page.

#[cfg(test)]
mod tests;

use hugewise_linux::action::Action;
use hugewise_measure::{
    comparison::{CaseServer, Comparison},
    verdict::Verdict,
};
use serde::Serialize;

use super::{
    effects::{self, EffectRow},
    plotted::{self, Plot},
    rows::{self, CaseRows, Group, OtherFigures, ReasonRow, UNKNOWN},
    words::{self, Scale},
};
use crate::{output::web_page, random_read};

/// The page. All text from other sources is escaped, also in plots; the page has no scripts.
pub fn html(comparison: &Comparison) -> anyhow::Result<String> {
    web_page::render(include_str!("page.html"), page(comparison)?)
}

#[derive(Serialize)]
struct Page {
    version: String,
    machine: String,
    design: String,
    legend: String,
    random_read: Option<String>,
    aa: bool,
    started: String,
    groups: Vec<Section>,
    actions: Vec<Action>,
    changes: Vec<String>,
    notes: Vec<String>,
}

/// One workload.
#[derive(Serialize)]
struct Section {
    workload: String,
    command: String,
    /// `db: postgres -D data`, of several servers.
    servers: Vec<String>,
    /// Empty without a server.
    driver: String,
    effects: Vec<EffectRow>,
    effects_legend: &'static str,
    interactions: Vec<String>,
    parameters: String,
    parameter_names: Vec<String>,
    conclusions: Vec<Conclusion>,
    figure: String,
    rows: Vec<TableRow>,
    plots: Vec<Plot>,
    others: Vec<OtherFigures>,
    noise: Vec<String>,
    reasons: Vec<ReasonRow>,
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
    parameters: Vec<String>,
    backing: String,
    arm: usize,
    coverage: String,
    rounds: String,
    mean: String,
    ratio: String,
    verdict: String,
    kind: &'static str,
}

fn page(comparison: &Comparison) -> anyhow::Result<Page> {
    let printable = |texts: &[String]| texts.iter().map(|text| words::printable(text)).collect();
    let groups = Group::all(comparison);
    Ok(Page {
        version: comparison.version.clone(),
        machine: words::machine(&comparison.machine),
        design: words::design(comparison),
        legend: words::legend(comparison),
        random_read: comparison.machine.random_read.as_ref().map(random_read::sentence),
        aa: comparison.design.aa,
        started: words::moment(comparison.started_unix_seconds),
        groups: groups.iter().map(|group| section(comparison, group)).collect::<anyhow::Result<_>>()?,
        actions: rows::actions(&groups),
        changes: printable(&comparison.changes),
        notes: printable(&comparison.notes),
    })
}

fn section(comparison: &Comparison, group: &Group<'_>) -> anyhow::Result<Section> {
    let (case, scale) = (group.first, group.scale());
    let printable = |name: &&String| words::printable(name);
    let server = |server: &CaseServer| format!("{}: {}", server.name, words::command(&server.command, 2000));
    Ok(Section {
        workload: words::printable(&case.workload),
        command: words::command(&case.command, 2000),
        servers: case.servers.iter().map(server).collect(),
        driver: words::command(&case.driver, 2000),
        effects: effects::rows(group),
        effects_legend: effects::LEGEND,
        interactions: effects::interactions(group),
        parameters: if group.is_list() { String::new() } else { rows::parameters(case) },
        parameter_names: group.parameter_names().iter().map(printable).collect(),
        conclusions: group.cases.iter().map(|case| conclusion(comparison, group, case)).collect(),
        figure: scale.heading(&group.figure),
        rows: table(group, &scale),
        plots: plotted::all(comparison, group, &scale)?,
        others: group.cases.iter().filter_map(|case| group.other_figures(case)).collect(),
        noise: group.noise(),
        reasons: group.reasons(),
    })
}

fn conclusion(comparison: &Comparison, group: &Group<'_>, case: &CaseRows<'_>) -> Conclusion {
    let rows: Vec<_> = case.rows.iter().map(|row| (row.label.as_str(), row.result)).collect();
    Conclusion {
        of: group.parameters(case.case),
        sentences: words::conclusions(comparison, &rows, case.case),
    }
}

fn table(group: &Group<'_>, scale: &Scale) -> Vec<TableRow> {
    let (figure, names) = (&group.figure, group.parameter_names());
    let rows = group.rows().map(|(case, row)| {
        let value = |name: &&String| case.parameters.get(*name).map(|value| words::printable(value));
        TableRow {
            repeated: row.arm > 0,
            parameters: names.iter().map(|name| value(name).unwrap_or_default()).collect(),
            backing: row.label.clone(),
            arm: row.arm,
            coverage: row.coverage(),
            rounds: words::rounds(row.result),
            mean: row.mean(&figure.name, scale),
            ratio: row.result.ratio.as_ref().map_or_else(|| UNKNOWN.to_owned(), words::ratio),
            verdict: words::verdict(row.result.verdict, row.result.ratio, figure.better),
            kind: match row.result.verdict {
                Verdict::Faster => "good",
                Verdict::Slower => "bad",
                Verdict::Inconclusive | Verdict::FellBack => "warn",
                Verdict::Base | Verdict::NoDifference | Verdict::LeftOut => "plain",
            },
        }
    });
    rows.collect()
}
