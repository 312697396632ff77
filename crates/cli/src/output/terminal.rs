//! Standard output: colours, width, and escaping of text from other sources.

use std::{
    env,
    io::{self, IsTerminal, Write, stdout},
    ops::RangeInclusive,
};

use clap::ValueEnum;
use hugewise_linux::sys::file::terminal_columns;

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Text from another source, with control characters and bidirectional formatting characters replaced by
/// U+FFFD.
pub fn plain(text: &str) -> String {
    let turns = |c| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if c.is_control() || turns(c) { '\u{fffd}' } else { c }).collect()
}

/// Writes to standard output. A closed pipe is an error, not a panic as with `print!`.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Width of output that is not printed on a terminal.
const DEFAULT_WIDTH: usize = 100;
/// Widths to which text is fitted, in columns.
const WIDTHS: RangeInclusive<usize> = 60..=200;

/// Styles text for standard output, if colours are enabled.
pub struct Terminal {
    color: bool,
    width: usize,
}

impl Terminal {
    pub fn new(color: Color) -> Terminal {
        let wanted = || {
            let no_color = env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
            let dumb = env::var_os("TERM").is_some_and(|v| v == "dumb");
            stdout().is_terminal() && !no_color && !dumb
        };
        Terminal {
            color: match color {
                Color::Auto => wanted(),
                Color::Always => true,
                Color::Never => false,
            },
            width: terminal_columns(&stdout())
                .map_or(DEFAULT_WIDTH, |columns| columns.clamp(*WIDTHS.start(), *WIDTHS.end())),
        }
    }

    /// Columns to which text is fitted.
    pub fn width(&self) -> usize {
        self.width
    }

    #[cfg(test)]
    pub fn with_width(self, width: usize) -> Terminal {
        Terminal { width, ..self }
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Headings and main results.
    pub fn bold(&self, text: &str) -> String {
        self.paint("1", text)
    }

    /// Secondary text.
    pub fn dim(&self, text: &str) -> String {
        self.paint("2", text)
    }

    /// Positive results and commands to copy.
    pub fn good(&self, text: &str) -> String {
        self.paint("32", text)
    }

    /// Warnings.
    pub fn warn(&self, text: &str) -> String {
        self.paint("33", text)
    }

    /// Problems and errors.
    pub fn bad(&self, text: &str) -> String {
        self.paint("1;31", text)
    }
}
