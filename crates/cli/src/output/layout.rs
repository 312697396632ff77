//! Text of 100 columns: headings in the first 12, content in the others.

use std::fmt::{self, Write};

use comfy_table::{CellAlignment, Table, presets};
use hugewise_plan::findings::{Finding, Severity};

use crate::output::terminal::{Terminal, plain};

/// Columns of text.
const WIDTH: usize = 100;
/// Columns of the headings.
const INDENT: usize = 12;

/// Collects text.
pub struct Page<'a> {
    text: String,
    terminal: &'a Terminal,
}

impl<'a> Page<'a> {
    pub fn new(terminal: &'a Terminal) -> Page<'a> {
        Page { text: String::new(), terminal }
    }

    pub fn into_text(self) -> String {
        self.text
    }

    /// Appends a line without a heading or indentation.
    pub fn text(&mut self, line: &str) -> fmt::Result {
        writeln!(self.text, "{line}")
    }

    /// Appends a line; `heading` is empty except in the first line of a section.
    pub fn line(&mut self, heading: &str, content: impl AsRef<str>) -> fmt::Result {
        let heading = self.terminal.bold(&format!("{heading:INDENT$}"));
        writeln!(self.text, "{}", format!("{heading}{}", content.as_ref()).trim_end())
    }

    /// Appends text of any length, wrapped, below a heading.
    pub fn wrapped(&mut self, heading: &str, content: &str) -> fmt::Result {
        for (n, line) in wrap(content, WIDTH - INDENT).iter().enumerate() {
            self.line(if n == 0 { heading } else { "" }, line)?;
        }
        Ok(())
    }

    /// Appends a finding: severity, id, evidence, consequence, and the command that fixes it.
    pub fn finding(&mut self, finding: &Finding) -> fmt::Result {
        let terminal = self.terminal;
        let (word, severity) = match finding.severity {
            Severity::Problem => ("problem", terminal.bad("problem")),
            Severity::Warning => ("warning", terminal.warn("warning")),
            Severity::Info => ("info", terminal.dim("info")),
        };
        writeln!(
            self.text,
            "\n{severity}{:pad$}{}",
            "",
            terminal.bold(finding.id),
            pad = INDENT - word.len()
        )?;
        for evidence in &finding.evidence {
            let source = plain(&evidence.source.to_string_lossy());
            self.wrapped("", &format!("{} [{source}]", plain(&evidence.value)))?;
        }
        self.wrapped("", &plain(&finding.consequence))?;
        match &finding.command {
            // Never wrapped, so that it can be copied.
            Some(command) => self.line("", terminal.good(&format!("$ {}", plain(command)))),
            None => Ok(()),
        }
    }
}

/// Wraps text into lines of at most `width` characters; a longer word has a line of its own.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A table whose columns except the first are aligned to the right.
pub fn table(headings: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(headings);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_broken_between_words_only() {
        assert_eq!(wrap("one two  three", 7), ["one two", "three"]);
        assert_eq!(wrap("a /very/long/path b", 5), ["a", "/very/long/path", "b"]);
        assert_eq!(wrap("", 5), [""; 0]);
    }
}
