//! Text of 100 columns: headings in the first 12, content in the others.

use std::fmt::{self, Write};

use comfy_table::Table;
use hugewise_linux::action::Action;
use hugewise_plan::findings::{Finding, Severity};

use crate::output::{
    table,
    terminal::{Terminal, plain},
};

/// Columns of text.
const WIDTH: usize = 100;
/// Columns of the headings.
const INDENT: usize = 12;

/// Text output under construction.
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

    /// Appends the lines of a table.
    pub fn table(&mut self, table: &Table) -> fmt::Result {
        table::lines(table).iter().try_for_each(|line| self.text(line))
    }

    /// Appends text of any length, wrapped, below a heading.
    pub fn wrapped(&mut self, heading: &str, content: &str) -> fmt::Result {
        for (n, line) in wrap(content, WIDTH - INDENT).iter().enumerate() {
            self.line(if n == 0 { heading } else { "" }, line)?;
        }
        Ok(())
    }

    /// Appends texts of any length, wrapped, the first below a heading.
    pub fn list(&mut self, heading: &str, texts: impl IntoIterator<Item = impl AsRef<str>>) -> fmt::Result {
        for (n, text) in texts.into_iter().enumerate() {
            self.wrapped(if n == 0 { heading } else { "" }, text.as_ref())?;
        }
        Ok(())
    }

    /// Appends an empty line and a list, or nothing if the list is empty.
    pub fn section(&mut self, heading: &str, texts: &[String]) -> fmt::Result {
        if !texts.is_empty() {
            self.line("", "")?;
        }
        self.list(heading, texts)
    }

    /// Appends numbered actions below the heading ACTIONS.
    pub fn actions(&mut self, actions: &[Action]) -> fmt::Result {
        for (n, action) in share_verify_commands(actions).iter().enumerate() {
            let heading = if n == 0 { "ACTIONS" } else { "" };
            self.wrapped(heading, &format!("{}. {}", n + 1, plain(&action.change)))?;
            self.commands(action)?;
        }
        Ok(())
    }

    /// Appends the commands of an action, which are not wrapped, so that they can be copied.
    pub fn commands(&mut self, action: &Action) -> fmt::Result {
        command_lines(action, self.terminal).iter().try_for_each(|line| self.line("", line))
    }

    /// Appends a finding: severity, id, evidence, consequence, and the changes that remove it.
    pub fn finding(&mut self, finding: &Finding) -> fmt::Result {
        let terminal = self.terminal;
        let (word, severity) = match finding.severity {
            Severity::Problem => ("problem", terminal.bad("problem")),
            Severity::Warning => ("warning", terminal.warn("warning")),
            Severity::Info => ("info", terminal.dim("info")),
        };
        let (pad, id) = (INDENT - word.len(), terminal.bold(finding.id));
        writeln!(self.text, "\n{severity}{:pad$}{id}", "")?;
        for evidence in &finding.evidence {
            let source = plain(&evidence.source.to_string_lossy());
            self.wrapped("", &format!("{} [{source}]", plain(&evidence.value)))?;
        }
        self.wrapped("", &plain(&finding.detail))?;
        for action in &finding.actions {
            self.wrapped("", &format!("{}:", plain(&action.change)))?;
            self.commands(action)?;
        }
        Ok(())
    }
}

/// The lines of an action's commands.
pub fn command_lines(action: &Action, terminal: &Terminal) -> Vec<String> {
    let shown = |command: &String| terminal.good(&format!("$ {}", plain(command)));
    let verify = action.verify.as_ref().map(|command| format!("verify: {}", shown(command)));
    action.command.as_ref().map(shown).into_iter().chain(verify).collect()
}

/// The actions; of consecutive actions with the same `verify`, only the last keeps it.
pub fn share_verify_commands(actions: &[Action]) -> Vec<Action> {
    let shared = |n: usize| actions.get(n + 1).is_some_and(|next| next.verify == actions[n].verify);
    let one = |(n, action): (usize, &Action)| Action {
        verify: action.verify.clone().filter(|_| !shared(n)),
        ..action.clone()
    };
    actions.iter().enumerate().map(one).collect()
}

/// Wraps text into lines of at most `width` characters; a longer word has a line of its own.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
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
