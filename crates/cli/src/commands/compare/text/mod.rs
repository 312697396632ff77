//! The result of a comparison as text.

mod effects;
#[cfg(test)]
mod tests;

use std::iter;

use comfy_table::{ContentArrangement, Table};
use hugewise_linux::action::Action;
use hugewise_measure::{comparison::Comparison, verdict::Verdict};

use super::{
    rows::{self, Group, OtherFigure, OtherFigures, UNKNOWN},
    words,
};
use crate::{
    output::{
        layout::{command_lines, wrap},
        table::{self, align_right, plain_table},
        terminal::Terminal,
        words::shortened,
    },
    random_read,
};

/// Width of a table of the other figures: of the names, and of each backing.
const NAMES_WIDTH: usize = 24;
const BACKING_WIDTH: usize = 18;

pub fn text(comparison: &Comparison, terminal: &Terminal) -> String {
    let mut lines = Vec::new();
    let texts = [words::machine(&comparison.machine), words::design(comparison), words::legend(comparison)];
    let random_read = comparison.machine.random_read.as_ref().map(random_read::sentence);
    for text in texts.into_iter().chain(random_read) {
        lines.extend(wrap(&text, terminal.width()).iter().map(|line| terminal.dim(line)));
    }
    if comparison.design.aa {
        let aa = "The same backing twice: any difference is noise of this machine.";
        lines.extend(wrap(aa, terminal.width()));
    }
    let groups = Group::all(comparison);
    for group in &groups {
        lines.push(String::new());
        heading(&mut lines, group, terminal);
        lines.push(String::new());
        effects::lines(&mut lines, group, terminal);
        verdicts(&mut lines, group, terminal);
        list(&mut lines, "Noise of the host", &group.noise(), terminal);
        others(&mut lines, group, terminal);
        reasons(&mut lines, group, terminal);
    }
    list(&mut lines, "Changed for the experiment, and restored", &comparison.changes, terminal);
    list(&mut lines, "Notes", &comparison.notes, terminal);
    actions(&mut lines, &rows::actions(&groups), terminal);
    lines.push(String::new());
    lines.join("\n")
}

/// The actions after all verdicts, numbered; commands are not wrapped, so that they can be copied.
fn actions(lines: &mut Vec<String>, actions: &[Action], terminal: &Terminal) {
    if actions.is_empty() {
        return;
    }
    lines.push(String::new());
    lines.push(terminal.bold("Actions"));
    for (n, action) in actions.iter().enumerate() {
        for (at, line) in wrap(&action.change, terminal.width().saturating_sub(4)).iter().enumerate() {
            let number = if at == 0 { format!("{}.", n + 1) } else { String::new() };
            lines.push(format!(" {number:<3}{line}"));
        }
        lines.extend(command_lines(action, terminal).iter().map(|line| format!("    {line}")));
    }
}

fn heading(lines: &mut Vec<String>, group: &Group<'_>, terminal: &Terminal) {
    let case = group.first;
    let mut title = terminal.bold(&shortened(&words::printable(&case.workload), terminal.width()));
    if !group.is_list() && !case.parameters.is_empty() {
        title += &format!("  {}", rows::parameters(case));
    }
    lines.push(title);
    if !case.command.is_empty() {
        lines.push(terminal.dim(&words::command(&case.command, terminal.width())));
    }
    for server in &case.servers {
        let command = words::command(&server.command, terminal.width());
        lines.push(terminal.dim(&format!("{}: {command}", server.name)));
    }
    if !case.driver.is_empty() {
        lines.push(terminal.dim(&format!("driver: {}", words::command(&case.driver, terminal.width()))));
    }
}

fn verdicts(lines: &mut Vec<String>, group: &Group<'_>, terminal: &Terminal) {
    let verdicts: Vec<String> = group
        .rows()
        .map(|(_, row)| words::verdict(row.result.verdict, row.result.ratio, group.figure.better))
        .collect();
    let table = rows_of(group, Some(&verdicts));
    let rows = table::lines(&table);
    if rows.iter().any(|line| line.chars().count() > terminal.width()) {
        let mut table = rows_of(group, None);
        fit(&mut table, terminal);
        lines.extend(table::lines(&table));
        let named = group.rows().zip(verdicts).map(|((case, row), verdict)| [group.of(case, row), verdict]);
        wrapped(lines, "Verdicts", named, terminal);
        return;
    }
    lines.extend(rows.first().map(|header| terminal.dim(header)));
    let painted = rows.iter().skip(1).zip(group.rows()).zip(&verdicts);
    lines.extend(painted.map(|((line, (_, row)), words)| paint(line, words, row.result.verdict, terminal)));
}

/// The table of the arms, with their verdicts in the last column.
fn rows_of(group: &Group<'_>, verdicts: Option<&[String]>) -> Table {
    let (scale, parameters) = (group.scale(), group.parameter_names());
    let mut header: Vec<String> =
        parameters.iter().map(|name| shortened(&words::printable(name), 20)).collect();
    header.extend(["backing", "coverage", "rounds"].map(str::to_owned));
    header.extend([scale.heading(&group.figure), "ratio [95 %]".to_owned()]);
    header.extend(verdicts.map(|_| "verdict".to_owned()));
    let mut table = plain_table();
    table.set_header(header);
    for (index, (case, row)) in group.rows().enumerate() {
        let value = |name: &&String| match case.parameters.get(*name) {
            Some(value) if row.arm == 0 => shortened(&words::printable(value), 20),
            _ => String::new(),
        };
        let mut cells: Vec<String> = parameters.iter().map(value).collect();
        cells.extend([
            row.label.clone(),
            row.coverage(),
            words::rounds(row.result),
            row.mean(&group.figure.name, &scale),
            row.result.ratio.as_ref().map_or_else(String::new, words::ratio),
        ]);
        cells.extend(verdicts.map(|verdicts| verdicts[index].clone()));
        table.add_row(cells);
    }
    let before = parameters.len();
    align_right(&mut table, before + 1..before + 4);
    table
}

/// Colours the verdict at the end of the line. The table itself is formatted without colours, because escape
/// sequences would count as text.
fn paint(line: &str, words: &str, verdict: Verdict, terminal: &Terminal) -> String {
    if verdict == Verdict::FellBack {
        return terminal.warn(line);
    }
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
        lines.push(terminal.bold("Other figures"));
        let legend = "means; changes within blocks, of 1 % or more, whose 95 % interval excludes 0";
        lines.extend(wrap(legend, terminal.width()).iter().map(|line| terminal.dim(line)));
    }
    let per_table = (terminal.width().saturating_sub(NAMES_WIDTH) / BACKING_WIDTH).max(1);
    for others in tables {
        for (at, backings) in others.backings.chunks(per_table).enumerate() {
            let mut table = plain_table();
            let columns = backings.iter().flat_map(|label| [label.as_str(), ""]);
            table.set_header(iter::once(others.of.as_str()).chain(columns));
            for row in &others.rows {
                let means = row.means.iter().skip(at * per_table).take(backings.len());
                let cells = means.flat_map(|mean| [&mean.value, &mean.change]);
                table.add_row(iter::once(&row.figure).chain(cells));
            }
            align_right(&mut table, (0..backings.len()).map(|column| 1 + 2 * column));
            fit(&mut table, terminal);
            let mut rows = table::lines(&table).into_iter();
            lines.extend(rows.next().map(|header| terminal.dim(&header)));
            lines.extend(rows);
        }
    }
}

/// Wraps the cells of a table that is wider than the terminal.
fn fit(table: &mut Table, terminal: &Terminal) {
    let width = u16::try_from(terminal.width()).unwrap_or(u16::MAX);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
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
    fit(&mut table, terminal);
    table.add_rows(rows);
    if !table.is_empty() {
        lines.push(String::new());
        lines.push(terminal.bold(title));
        lines.extend(table::lines(&table));
    }
}
