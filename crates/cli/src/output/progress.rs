//! Progress of long operations on standard error, if that is a terminal.

use std::io::{IsTerminal, Read, stderr};

use hugewise_measure::experiment::Progress;
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};

/// A bar that is cleared when it is dropped.
fn bar(length: u64, template: &str) -> ProgressBar {
    let bar = if stderr().is_terminal() { ProgressBar::new(length) } else { ProgressBar::hidden() };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.with_finish(ProgressFinish::AndClear)
}

/// Progress of an experiment, in runs. Hidden until the first run starts.
pub struct Bar(ProgressBar);

impl Bar {
    pub fn new() -> Bar {
        Bar(bar(0, "{bar:24} {pos}/{len} {elapsed} (about {eta} left) {msg}"))
    }
}

impl Progress for Bar {
    fn run(&mut self, done: usize, total: usize, what: &str) {
        self.0.set_length(total as u64);
        self.0.set_position(done as u64);
        self.0.set_message(what.to_owned());
        if done == total {
            self.0.finish_and_clear();
        }
    }
}

/// Progress in bytes.
pub struct ByteProgress(ProgressBar);

impl ByteProgress {
    /// `bytes`: the total.
    pub fn new(bytes: u64) -> ByteProgress {
        ByteProgress(bar(bytes, "{bar:24} {bytes} of {total_bytes} (about {eta} left)"))
    }

    pub fn more(&mut self, bytes: u64) {
        self.0.inc(bytes);
    }

    /// Adds the bytes that are read from `input`.
    pub fn reading(&self, input: impl Read) -> impl Read {
        self.0.wrap_read(input)
    }
}
