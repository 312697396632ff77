//! The effects of the backings of several servers.

use super::{Terminal, fit, list, paint};
use crate::{
    commands::compare::{
        effects::{self, EffectRow},
        rows::Group,
        words,
    },
    output::{
        layout::wrap,
        table::{self, align_right, plain_table},
    },
};

/// The table of the effects, and how they depend on each other; nothing for one program.
pub(super) fn lines(lines: &mut Vec<String>, group: &Group<'_>, terminal: &Terminal) {
    let rows = effects::rows(group);
    if rows.is_empty() {
        return;
    }
    lines.push(terminal.bold(&format!("Effects on {}", words::name(&group.figure.name))));
    lines.extend(wrap(effects::LEGEND, terminal.width()).iter().map(|line| terminal.dim(line)));
    lines.extend(table_of(&rows, group.is_list(), terminal));
    list(lines, "Interactions", &effects::interactions(group), terminal);
    lines.push(String::new());
    lines.push(terminal.bold("Combinations"));
}

fn table_of(rows: &[EffectRow], is_list: bool, terminal: &Terminal) -> Vec<String> {
    let mut table = plain_table();
    let parameters = is_list.then(|| "parameters".to_owned());
    let header = ["server", "backing", "blocks", "ratio [95 %]", "of its own CPU time", "verdict"];
    table.set_header(parameters.into_iter().chain(header.map(str::to_owned)));
    for row in rows {
        let cells =
            [&row.server, &row.backing, &row.blocks.to_string(), &row.ratio, &row.own_cpu, &row.verdict];
        table.add_row(is_list.then_some(&row.of).into_iter().chain(cells));
    }
    let blocks = usize::from(is_list) + 2;
    align_right(&mut table, blocks..blocks + 1);
    fit(&mut table, terminal);
    let lines = table::lines(&table);
    // A line for each row, unless cells are wrapped.
    if lines.len() != rows.len() + 1 {
        return lines;
    }
    let header = lines.first().map(|header| terminal.dim(header));
    let painted =
        lines.iter().skip(1).zip(rows).map(|(line, row)| paint(line, &row.verdict, row.kind, terminal));
    header.into_iter().chain(painted).collect()
}
