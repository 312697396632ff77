//! Standard error: the only place that prints to it. A closed standard error is ignored.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    fmt::Display,
    io::{self, IsTerminal, stderr},
    panic,
};

use hugewise_linux::{printable, sys::stream};

use super::terminal::Terminal;

/// Prints a message of this program. Its further lines, which may be of another program, are indented: none of them
/// looks like a message.
pub fn say(message: impl Display) {
    print(&format!("hugewise: {}\n", indented(&message.to_string())));
}

fn indented(text: &str) -> String {
    text.trim_end().replace('\n', "\n  ")
}

/// Prints the reason why a command failed.
pub fn say_failed(reason: &str, terminal: &Terminal) {
    print_styled(
        &format!("{} {}\n", terminal.bad("hugewise:"), indented(&printable::lines(reason))),
        terminal,
    );
}

/// Prints text; what is not printable in it is replaced.
pub fn print(text: &str) {
    write(&printable::lines(text));
}

/// Prints text with the styles of `terminal`.
pub fn print_styled(text: &str, terminal: &Terminal) {
    write(&terminal.lines(text));
}

pub fn is_terminal() -> bool {
    stderr().is_terminal()
}

/// Prints panics, whose messages may quote text of other programs, like everything else.
pub fn print_panics() {
    panic::set_hook(Box::new(|panic| {
        let trace = Backtrace::capture();
        let trace =
            if trace.status() == BacktraceStatus::Captured { format!("{trace}\n") } else { String::new() };
        print(&format!("{panic}\n{trace}"));
    }));
}

/// One write, if the text is short: other programs print to the same terminal.
fn write(text: &str) {
    let written: io::Result<()> = stream::write_all(&stderr(), text.as_bytes());
    // There is no other place to report it.
    let _ = written;
}
