//! Colours and width of text.

use std::{
    env,
    io::{IsTerminal, stdout},
    ops::RangeInclusive,
};

use clap::ValueEnum;
pub use hugewise_linux::printable::plain;
use hugewise_linux::{printable, sys::file::terminal_columns};

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

/// Width of output that is not printed on a terminal.
const DEFAULT_WIDTH: usize = 100;
/// Widths to which text is fitted, in columns.
const WIDTHS: RangeInclusive<usize> = 60..=200;

const BOLD: &str = "[1m";
const DIM: &str = "[2m";
const GOOD: &str = "[32m";
const WARN: &str = "[33m";
const BAD: &str = "[1;31m";
const RESET: &str = "[0m";
/// Escape sequences of this program, without the first character.
const STYLES: [&str; 6] = [BOLD, DIM, GOOD, WARN, BAD, RESET];

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

    /// Text for the terminal: what is not printable is replaced, except line feeds and, with colours, the
    /// sequences of [`STYLES`]. Text of other programs goes through [`plain`] before it is coloured.
    pub fn lines(&self, text: &str) -> String {
        let mut parts = text.split('\x1b');
        let mut shown = printable::lines(parts.next().unwrap_or_default());
        for part in parts {
            let style = STYLES.iter().find(|style| self.color && part.starts_with(**style));
            shown.push(if style.is_some() { '\x1b' } else { char::REPLACEMENT_CHARACTER });
            shown.push_str(&printable::lines(part));
        }
        shown
    }

    fn paint(&self, style: &str, text: &str) -> String {
        if self.color { format!("\x1b{style}{text}\x1b{RESET}") } else { text.to_owned() }
    }

    /// Headings and main results.
    pub fn bold(&self, text: &str) -> String {
        self.paint(BOLD, text)
    }

    /// Secondary text.
    pub fn dim(&self, text: &str) -> String {
        self.paint(DIM, text)
    }

    /// Positive results and commands to copy.
    pub fn good(&self, text: &str) -> String {
        self.paint(GOOD, text)
    }

    /// Warnings.
    pub fn warn(&self, text: &str) -> String {
        self.paint(WARN, text)
    }

    /// Problems and errors.
    pub fn bad(&self, text: &str) -> String {
        self.paint(BAD, text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn own_styles_survive_and_foreign_ones_do_not() {
        let (plain_text, coloured) = (Terminal::new(Color::Never), Terminal::new(Color::Always));
        let foreign = "\x1b[31m\x1b]0;x\x07\u{9b}2J\r";
        let shown = coloured.lines(&format!("{} {foreign}\n", coloured.bad("problem")));
        assert_eq!(shown, "\x1b[1;31mproblem\x1b[0m \u{fffd}[31m\u{fffd}]0;x\u{fffd}\u{fffd}2J\u{fffd}\n");
        assert_eq!(plain_text.lines("\x1b[0m"), "\u{fffd}[0m");
    }

    proptest! {
        #[test]
        fn only_printable_characters_line_feeds_and_styles_are_printed(text in "([\x00-\u{ff}\u{2000}-\u{206f}]|\x1b\\[[0-9;]{0,4}[a-zA-Z])*") {
            let is_shown = |c| c == '\n' || printable::is_printable(c);
            prop_assert!(Terminal::new(Color::Never).lines(&text).chars().all(is_shown));
            let mut shown = Terminal::new(Color::Always).lines(&text);
            for style in STYLES {
                shown = shown.replace(&format!("\x1b{style}"), "");
            }
            prop_assert!(shown.chars().all(is_shown), "{shown:?}");
        }
    }
}
