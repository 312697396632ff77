//! The result of a comparison as text, for a terminal of 100 columns.

#[cfg(test)]
mod tests;

use std::iter;

use comfy_table::ContentArrangement;
use hugewise_measure::{comparison::Comparison, verdict::Verdict};

use super::{
    rows::{self, Group, OtherFigure, OtherFigures, UNKNOWN},
    words,
};
use crate::output::{
    table::{self, align_right, plain_table},
    terminal::Terminal,
    words::shortened,
};

/// Longest line, in characters.
const MAX_LINE_CHARS: u16 = 100;
/// Largest number of backings in a table of the other figures.
const MAX_BACKINGS_PER_TABLE: usize = 4;

pub fn text(comparison: &Comparison, terminal: &Terminal) -> String {
    let mut lines = vec![terminal.dim(&words::machine(&comparison.machine))];
    lines.push(terminal.dim(&words::design(&comparison.design)));
    let reference = words::reference(comparison);
    lines.push(terminal.dim(&format!("Ratios are to {reference}, within blocks; below 1 is better.")));
    if comparison.design.aa {
        lines.push("The same backing twice: any difference is noise of this machine.".to_owned());
    }
    for group in Group::all(comparison) {
        lines.push(String::new());
        heading(&mut lines, &group, terminal);
        lines.push(String::new());
        verdicts(&mut lines, &group, terminal);
        list(&mut lines, "Noise of the host", &group.noise(), terminal);
        others(&mut lines, &group, terminal);
        reasons(&mut lines, &group, terminal);
    }
    list(&mut lines, "Changed for the experiment, and restored", &comparison.changes, terminal);
    list(&mut lines, "Notes", &comparison.notes, terminal);
    lines.push(String::new());
    lines.join("\n")
}

fn heading(lines: &mut Vec<String>, group: &Group<'_>, terminal: &Terminal) {
    let case = group.first;
    let mut title = terminal.bold(&shortened(&words::printable(&case.workload), usize::from(MAX_LINE_CHARS)));
    if !group.is_list() && !case.parameters.is_empty() {
        title += &format!("  {}", rows::parameters(case));
    }
    lines.push(title);
    if !case.command.is_empty() {
        lines.push(terminal.dim(&words::command(case, usize::from(MAX_LINE_CHARS))));
    }
}

fn verdicts(lines: &mut Vec<String>, group: &Group<'_>, terminal: &Terminal) {
    let (figure, scale, parameters) = (&group.figure, group.scale(), group.parameter_names());
    let mut header: Vec<String> =
        parameters.iter().map(|name| shortened(&words::printable(name), 20)).collect();
    header.extend(["backing", "coverage", "rounds"].map(str::to_owned));
    header.push(scale.heading(&figure.name));
    header.extend(["ratio [95 %]", "verdict"].map(str::to_owned));

    let mut table = plain_table();
    table.set_header(header);
    let mut painted = vec![None];
    for (case, row) in group.rows() {
        let value = |name: &&String| match case.parameters.get(*name) {
            Some(value) if row.arm == 0 => shortened(&words::printable(value), 20),
            _ => String::new(),
        };
        let mut cells: Vec<String> = parameters.iter().map(value).collect();
        let verdict = words::verdict(row.result, figure.better);
        cells.extend([
            row.label.clone(),
            row.coverage(),
            words::rounds(row.result),
            row.mean(&figure.name, &scale),
            row.result.ratio.as_ref().map_or_else(String::new, words::ratio),
            verdict.clone(),
        ]);
        table.add_row(cells);
        painted.push(Some((verdict, row.result.verdict)));
    }
    let before = parameters.len();
    align_right(&mut table, before + 1..before + 4);
    let rows = table.lines().zip(painted).map(|(line, verdict)| match verdict {
        None => terminal.dim(line.trim_end()),
        Some((words, verdict)) => paint(line.trim_end(), &words, verdict, terminal),
    });
    lines.extend(rows);
}

/// Colours the verdict at the end of the line. The table itself is formatted without colours, because escape
/// sequences would count as text.
fn paint(line: &str, words: &str, verdict: Verdict, terminal: &Terminal) -> String {
    let Some(rest) = line.strip_suffix(words) else { return line.to_owned() };
    let painted = match verdict {
        Verdict::Base | Verdict::NoDifference => words.to_owned(),
        Verdict::Faster => terminal.good(words),
        Verdict::Slower => terminal.bad(words),
        Verdict::Inconclusive | Verdict::FellBack => terminal.warn(words),
        Verdict::LeftOut => terminal.dim(words),
    };
    format!("{rest}{painted}")
}

/// The figures that do not decide the verdict: a row for each figure, a column for each backing.
fn others(lines: &mut Vec<String>, group: &Group<'_>, terminal: &Terminal) {
    let is_known = |row: &OtherFigure| row.means.iter().any(|mean| mean.value != UNKNOWN);
    let mut tables: Vec<OtherFigures> =
        group.cases.iter().filter_map(|case| group.other_figures(case)).collect();
    tables.retain(|table| table.rows.iter().any(is_known));
    if !tables.is_empty() {
        lines.push(String::new());
        let legend = "(means; changes within blocks, of 1 % or more, whose 95 % interval excludes 0)";
        lines.push(format!("{} {}", terminal.bold("Other figures"), terminal.dim(legend)));
    }
    for others in tables {
        for (at, backings) in others.backings.chunks(MAX_BACKINGS_PER_TABLE).enumerate() {
            let mut table = plain_table();
            let columns = backings.iter().flat_map(|label| [label.as_str(), ""]);
            table.set_header(iter::once(others.of.as_str()).chain(columns));
            for row in &others.rows {
                let means = row.means.iter().skip(at * MAX_BACKINGS_PER_TABLE).take(backings.len());
                let cells = means.flat_map(|mean| [&mean.value, &mean.change]);
                table.add_row(iter::once(&row.figure).chain(cells));
            }
            align_right(&mut table, (0..backings.len()).map(|column| 1 + 2 * column));
            let mut rows = table::lines(&table).into_iter();
            lines.extend(rows.next().map(|header| terminal.dim(&header)));
            lines.extend(rows);
        }
    }
}

/// The reasons for verdicts that need a reason.
fn reasons(lines: &mut Vec<String>, group: &Group<'_>, terminal: &Terminal) {
    let rows = group.reasons().into_iter().map(|reason| [reason.of, reason.text]);
    wrapped(lines, "Reasons", rows, terminal);
}

fn list(lines: &mut Vec<String>, title: &str, items: &[String], terminal: &Terminal) {
    let rows = items.iter().map(|item| ["-".to_owned(), words::printable(item)]);
    wrapped(lines, title, rows, terminal);
}

/// A table of two columns, wrapped; nothing if it has no row.
fn wrapped(
    lines: &mut Vec<String>,
    title: &str,
    rows: impl Iterator<Item = [String; 2]>,
    terminal: &Terminal,
) {
    let mut table = plain_table();
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(MAX_LINE_CHARS).add_rows(rows);
    if !table.is_empty() {
        lines.push(String::new());
        lines.push(terminal.bold(title));
        lines.extend(table::lines(&table));
    }
}
