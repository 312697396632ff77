//! Standard output: the only place that prints to it.

use std::io::{self, BufWriter, IsTerminal, Write, stdout};

use hugewise_linux::{printable, sys::stream};

use super::terminal::Terminal;

/// Prints text; what is not printable in it is replaced. A closed pipe is an error, not a panic as with `print!`.
pub fn print(text: &str) -> io::Result<()> {
    write(&printable::lines(text))
}

/// Prints text with the styles of `terminal`.
pub fn print_styled(text: &str, terminal: &Terminal) -> io::Result<()> {
    write(&terminal.lines(text))
}

/// Prints text in place of the previous output on a terminal, and after it in a pipe.
pub fn print_again(text: &str, terminal: &Terminal) -> io::Result<()> {
    // Cursor to the upper left, then clear the screen.
    let clear = if stdout().is_terminal() { "\x1b[H\x1b[2J" } else { "" };
    let separator = if clear.is_empty() { "\n" } else { "" };
    write(&format!("{clear}{}{separator}", terminal.lines(text)))
}

/// Prints JSON; on a terminal, what is not printable is written as `\u`.
pub fn print_json(text: &str) -> io::Result<()> {
    match stdout().is_terminal() {
        true => write(&printable::json(text)),
        false => write(text),
    }
}

/// Prints a script or a page for another program, without foreign text.
pub fn print_bytes(bytes: &[u8]) -> io::Result<()> {
    stream::write_all(&stdout(), bytes)
}

fn write(text: &str) -> io::Result<()> {
    print_bytes(text.as_bytes())
}

/// Standard output without a buffer.
struct Unbuffered;

impl Write for Unbuffered {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        print_bytes(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Prints JSON of any length as it is written; see [`print_json`].
pub struct JsonOutput {
    out: BufWriter<Unbuffered>,
    /// The line that has no end yet, if standard output is a terminal.
    line: Option<Vec<u8>>,
}

impl JsonOutput {
    pub fn new() -> JsonOutput {
        JsonOutput { out: BufWriter::new(Unbuffered), line: stdout().is_terminal().then(Vec::new) }
    }

    fn end_line(&mut self) -> io::Result<()> {
        let Some(line) = &mut self.line else { return Ok(()) };
        self.out.write_all(printable::json(&String::from_utf8_lossy(line)).as_bytes())?;
        line.clear();
        Ok(())
    }
}

impl Write for JsonOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(line) = &mut self.line else { return self.out.write(bytes) };
        line.extend_from_slice(bytes);
        if line.ends_with(b"\n") {
            self.end_line()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.end_line()?;
        self.out.flush()
    }
}
