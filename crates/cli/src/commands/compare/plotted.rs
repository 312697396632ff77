//! The plots of a group of cases; empty ones are omitted.

use hugewise_measure::comparison::Comparison;
use serde::Serialize;

use super::{
    plots::{self, Line, Mark, Strip},
    rows::{self, ArmRow, Group},
    words::{self, Scale},
};
use crate::output::words::coverage;

#[derive(Serialize)]
pub struct Plot {
    title: String,
    svg: String,
}

/// All plots of a group. `figure` is the one that decides the verdicts.
pub fn all(
    comparison: &Comparison,
    group: &Group<'_>,
    figure: &str,
    scale: Option<&Scale>,
) -> anyhow::Result<Vec<Plot>> {
    let over_values = scale.filter(|_| group.is_list()).map(|scale| over_values(group, figure, scale));
    let reference = words::reference(comparison);
    let against = strips(
        group,
        &format!("Ratio to {reference}, with 95 % interval"),
        &format!("ratio to {reference}: left of 1 is better"),
        true,
        |row| {
            let ratio = row.result.ratio?;
            let mark = Mark::Interval { low: ratio.low, estimate: ratio.estimate, high: ratio.high };
            Some((words::ratio(&ratio), mark))
        },
    );
    let every_round = scale.map(|scale| {
        let title = format!("{}: all rounds and their mean", words::name(figure));
        strips(group, &title, &scale.heading(figure), false, |row| {
            let mean = row.summary(figure)?.mean;
            let points = row.values(figure).into_iter().map(|value| scale.scaled(value)).collect();
            Some((scale.value(mean), Mark::Points(points, scale.scaled(mean))))
        })
    });
    let coverage = strips(group, "Coverage", "% of resident bytes on huge pages", false, |row| {
        let share = row.result.coverage?;
        Some((coverage(Some(share), "unknown"), Mark::Bar(share * 100.0)))
    });
    let plots = [over_values, Some(against), every_round, Some(coverage)];
    plots.into_iter().flatten().filter_map(Result::transpose).collect()
}

/// A plot with a row for each arm of each case for which `show` has a value and a mark.
fn strips(
    group: &Group<'_>,
    title: &str,
    axis: &str,
    one: bool,
    show: impl Fn(&ArmRow<'_>) -> Option<(String, Mark)>,
) -> anyhow::Result<Option<Plot>> {
    let rows: Vec<Strip> = group
        .rows()
        .filter_map(|(case, row)| {
            let (value, mark) = show(row)?;
            let label = match group.is_list() {
                true => format!("{} · {}", rows::values(case), row.label),
                false => row.label.clone(),
            };
            Some(Strip { label, value, arm: row.arm, mark })
        })
        .collect();
    if rows.is_empty() {
        return Ok(None);
    }
    Ok(Some(Plot { title: title.to_owned(), svg: plots::strips(&rows, axis, one)? }))
}

/// A plot with a line for each arm against the values of the parameters.
fn over_values(group: &Group<'_>, figure: &str, scale: &Scale) -> anyhow::Result<Option<Plot>> {
    let arms = group.cases.first().map_or(0, |case| case.rows.len());
    let line = |arm| {
        let rows: Vec<&ArmRow<'_>> = group.cases.iter().filter_map(|case| case.rows.get(arm)).collect();
        let point = |row: &&ArmRow<'_>| {
            let summary = row.summary(figure)?;
            Some((scale.scaled(summary.min), scale.scaled(summary.mean), scale.scaled(summary.max)))
        };
        let label = rows.first()?.label.clone();
        Some(Line { label, arm, points: rows.iter().map(point).collect() })
    };
    let known = |line: &Line| line.points.iter().any(Option::is_some);
    let lines: Vec<Line> = (0..arms).filter_map(line).filter(known).collect();
    if lines.is_empty() {
        return Ok(None);
    }
    let values: Vec<String> = group.cases.iter().map(|case| rows::values(case.case)).collect();
    let names: Vec<String> =
        group.first().map(|case| case.parameters.keys().cloned().collect()).unwrap_or_default();
    let names = words::printable(&names.join(", "));
    let title = format!("{} by {names}: mean, minimum, maximum", words::name(figure));
    let svg = plots::lines(&lines, &values, &scale.heading(figure), &names)?;
    Ok(Some(Plot { title, svg }))
}
