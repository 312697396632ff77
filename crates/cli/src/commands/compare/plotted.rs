//! The plots of a group of cases; empty ones are omitted.

use hugewise_measure::comparison::Comparison;
use serde::Serialize;

use super::{
    plots::{self, Line, Mark, Strip},
    rows::{self, ArmRow, Group},
    time_line,
    words::{self, Scale},
};
use crate::output::words::coverage;

#[derive(Serialize)]
pub struct Plot {
    title: String,
    svg: String,
}

/// All plots of a group.
pub fn all(comparison: &Comparison, group: &Group<'_>, scale: &Scale) -> anyhow::Result<Vec<Plot>> {
    let figure = &group.figure.name;
    let over_values = if group.is_list() { over_values(group, scale)? } else { None };
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
    )?;
    let title = format!("{}: rounds that count, and their mean", words::name(figure));
    let every_round = strips(group, &title, &scale.heading(&group.figure), false, |row| {
        let mean = row.summary(figure)?.mean;
        let points = row.values(figure).into_iter().map(|value| scale.scaled(value)).collect();
        Some((scale.value(mean), Mark::Points(points, scale.scaled(mean))))
    })?;
    let covered = |title: &str, of: &dyn Fn(&ArmRow<'_>) -> Option<f64>| {
        strips(group, title, "% of resident bytes on huge pages", false, |row| {
            let share = of(row)?;
            Some((coverage(Some(share), "unknown"), Mark::Bar(share * 100.0)))
        })
    };
    let of_region = covered("Coverage", &|row| row.result.coverage)?;
    let off_heap = covered("Coverage outside the Java heap", &|row| row.result.off_heap_coverage)?;
    let on_time_line = match &comparison.live {
        Some(live) => time_line::svg(comparison, live, figure, scale)?
            .map(|svg| Plot { title: format!("{} in each turn", scale.heading(&group.figure)), svg }),
        None => None,
    };
    let all = [over_values, against, on_time_line, every_round, of_region, off_heap];
    Ok(all.into_iter().flatten().collect())
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
fn over_values(group: &Group<'_>, scale: &Scale) -> anyhow::Result<Option<Plot>> {
    let figure = &group.figure.name;
    let line = |arm| {
        let rows: Vec<&ArmRow<'_>> = group.cases.iter().filter_map(|case| case.rows.get(arm)).collect();
        let point = |row: &&ArmRow<'_>| {
            let summary = row.summary(figure)?;
            Some((scale.scaled(summary.min), scale.scaled(summary.mean), scale.scaled(summary.max)))
        };
        Line { label: rows[0].label.clone(), arm, points: rows.iter().map(point).collect() }
    };
    let known = |line: &Line| line.points.iter().any(Option::is_some);
    let lines: Vec<Line> = (0..group.cases[0].rows.len()).map(line).filter(known).collect();
    if lines.is_empty() {
        return Ok(None);
    }
    let values: Vec<String> = group.cases.iter().map(|case| rows::values(case.case)).collect();
    let names: Vec<&str> = group.parameter_names().into_iter().map(String::as_str).collect();
    let names = words::printable(&names.join(", "));
    let title = format!("{} by {names}: mean, minimum, maximum", words::name(figure));
    let svg = plots::lines(&lines, &values, &scale.heading(&group.figure), &names)?;
    Ok(Some(Plot { title, svg }))
}
