//! Tables without lines, as all commands print them.

use comfy_table::{CellAlignment, Table, presets};

/// A table without headings; columns are two blanks apart.
pub fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table
}

/// A table whose columns except the first are aligned to the right.
pub fn table(headings: &[&str]) -> Table {
    let mut table = plain_table();
    table.set_header(headings);
    align_right(&mut table, 1..headings.len());
    table
}

pub fn align_right(table: &mut Table, columns: impl IntoIterator<Item = usize>) {
    for column in columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// The lines of a table, without blanks at their ends.
pub fn lines(table: &Table) -> Vec<String> {
    table.lines().map(|line| line.trim_end().to_owned()).collect()
}
