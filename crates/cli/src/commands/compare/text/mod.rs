//! The result of a comparison as text, for a terminal of 100 columns.

#[cfg(test)]
mod tests;

use comfy_table::{ContentArrangement, Table};
use hugewise_measure::{
    comparison::{Better, Comparison},
    verdict::Verdict,
};

use super::{
    rows::{self, ArmRow, CaseRows, Group},
    words::{self, Scale},
};
use crate::output::{
    table::{self, align_right, plain_table},
    terminal::Terminal,
    words::{coverage, shortened},
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
        if group.cases.iter().any(has_others) {
            lines.push(String::new());
            let legend = "(means; changes within blocks, of 1 % or more, whose 95 % interval excludes 0)";
            lines.push(format!("{} {}", terminal.bold("Other figures"), terminal.dim(legend)));
        }
        for case in &group.cases {
            others(&mut lines, &group, case, terminal);
        }
        reasons(&mut lines, &group, terminal);
    }
    list(&mut lines, "Changed for the experiment, and restored", &comparison.changes, terminal);
    list(&mut lines, "Notes", &comparison.notes, terminal);
    lines.push(String::new());
    lines.join("\n")
}

fn heading(lines: &mut Vec<String>, group: &Group<'_>, terminal: &Terminal) {
    let Some(case) = group.first() else { return };
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
    let Some(case) = group.first() else { return };
    let (name, better) =
        group.figure().map_or((String::new(), Better::Lower), |figure| (figure.name.clone(), figure.better));
    let largest = largest(group.rows().map(|(_, row)| row), &name);
    let scale = group.figure().map(|figure| Scale::of(figure, largest));

    let parameters: Vec<&String> =
        if group.is_list() { case.parameters.keys().collect() } else { Vec::new() };
    let mut header: Vec<String> =
        parameters.iter().map(|name| shortened(&words::printable(name), 20)).collect();
    header.extend(["backing", "coverage", "rounds"].map(str::to_owned));
    header.push(scale.as_ref().map_or_else(|| "figure".to_owned(), |scale| scale.heading(&name)));
    header.extend(["ratio [95 %]", "verdict"].map(str::to_owned));

    let mut table = plain_table();
    table.set_header(header);
    let mut painted = vec![None];
    let mut last: Option<*const _> = None;
    for (case, row) in group.rows() {
        let repeated = last.replace(std::ptr::from_ref(case)) == Some(std::ptr::from_ref(case));
        let value = |name: &String| match case.parameters.get(name) {
            Some(value) if !repeated => shortened(&words::printable(value), 20),
            _ => String::new(),
        };
        let mut cells: Vec<String> = parameters.iter().copied().map(value).collect();
        let verdict = words::verdict(row.result, better);
        let mean = row.summary(&name).zip(scale.as_ref());
        cells.extend([
            row.label.clone(),
            if row.result.verdict == Verdict::LeftOut {
                "–".to_owned()
            } else {
                coverage(row.result.coverage, "unknown")
            },
            words::rounds(row.result),
            mean.map_or_else(|| "–".to_owned(), |(summary, scale)| scale.number(summary.mean)),
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

fn largest<'a>(rows: impl Iterator<Item = &'a ArmRow<'a>>, figure: &str) -> f64 {
    rows.filter_map(|row| row.summary(figure)).map(|summary| summary.mean.abs()).fold(0.0, f64::max)
}

/// The figures that do not decide the verdict: a row for each figure, a column for each backing.
fn others(lines: &mut Vec<String>, group: &Group<'_>, case: &CaseRows<'_>, terminal: &Terminal) {
    if !has_others(case) {
        return;
    }
    let rows: Vec<&ArmRow<'_>> = case.rows.iter().filter(|row| !row.result.figures.is_empty()).collect();
    let corner = if group.is_list() { rows::parameters(case.case) } else { String::new() };
    for side_by_side in rows.chunks(MAX_BACKINGS_PER_TABLE) {
        let mut table = plain_table();
        let mut header = vec![corner.clone()];
        header.extend(side_by_side.iter().flat_map(|row| [row.label.clone(), String::new()]));
        table.set_header(header);
        for figure in case.case.figures.iter().skip(1) {
            let scale = Scale::of(figure, largest(rows.iter().copied(), &figure.name));
            let mut cells = vec![scale.heading(&figure.name)];
            for row in side_by_side {
                let summary = row.summary(&figure.name);
                cells.push(summary.map_or_else(|| "–".to_owned(), |summary| scale.number(summary.mean)));
                let changed = summary.and_then(|s| s.ratio).filter(|r| r.low > 1.0 || r.high < 1.0);
                cells.push(
                    changed.map_or_else(String::new, |ratio| words::signed(ratio.estimate, figure.better)),
                );
            }
            table.add_row(cells);
        }
        align_right(&mut table, (0..side_by_side.len()).map(|column| 1 + 2 * column));
        let start = lines.len();
        lines.extend(table::lines(&table));
        if let Some(header) = lines.get_mut(start) {
            *header = terminal.dim(header);
        }
    }
}

/// Whether any figure is known besides the one that decides the verdict.
fn has_others(case: &CaseRows<'_>) -> bool {
    let known = |name: &str| case.rows.iter().any(|row| row.summary(name).is_some());
    case.case.figures.iter().skip(1).any(|figure| known(&figure.name))
}

/// The reasons for verdicts that need a reason.
fn reasons(lines: &mut Vec<String>, group: &Group<'_>, terminal: &Terminal) {
    let mut table = wrapped_table();
    for (case, row) in group.rows() {
        if let Some(reason) = row.reason() {
            let who = match group.is_list() {
                true => format!("{} {}", rows::parameters(case), row.label),
                false => row.label.clone(),
            };
            table.add_row([who, words::printable(reason)]);
        }
    }
    if !table.is_empty() {
        lines.push(String::new());
        lines.push(terminal.bold("Reasons"));
        lines.extend(table::lines(&table));
    }
}

fn wrapped_table() -> Table {
    let mut table = plain_table();
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(MAX_LINE_CHARS);
    table
}

fn list(lines: &mut Vec<String>, title: &str, items: &[String], terminal: &Terminal) {
    if items.is_empty() {
        return;
    }
    lines.push(String::new());
    lines.push(terminal.bold(title));
    let mut table = wrapped_table();
    for item in items {
        table.add_row(["-".to_owned(), words::printable(item)]);
    }
    lines.extend(table::lines(&table));
}
