//! Progress of long operations on standard error, if that is a terminal.

use std::{
    io::Read,
    time::{Duration, Instant},
};

use hugewise_measure::experiment::Progress;
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};

use super::{standard_error, terminal::plain};

/// Time between two lines of progress if standard error is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(60);

/// A bar that is cleared when it is dropped.
fn bar(length: u64, template: &str) -> ProgressBar {
    let bar = if standard_error::is_terminal() { ProgressBar::new(length) } else { ProgressBar::hidden() };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.with_finish(ProgressFinish::AndClear)
}

/// Progress of an experiment in steps: a bar on a terminal, otherwise a line each minute.
pub struct Bar {
    bar: ProgressBar,
    /// What a step is, in the plural.
    steps: String,
    /// Time of the last line, if standard error is not a terminal.
    line: Option<Instant>,
}

impl Bar {
    /// Progress in runs.
    pub fn new() -> Bar {
        Bar::of("runs")
    }

    /// Progress in other steps.
    pub fn of(steps: &str) -> Bar {
        let bar = bar(0, "{bar:24} {pos}/{len} {elapsed} (about {eta} left) {msg}");
        let line = bar.is_hidden().then(Instant::now);
        Bar { bar, steps: steps.to_owned(), line }
    }
}

impl Progress for Bar {
    fn announce(&mut self, what: &str) {
        self.bar.suspend(|| standard_error::say(what));
    }

    fn run(&mut self, done: usize, total: usize, what: &str) {
        self.bar.set_length(total as u64);
        self.bar.set_position(done as u64);
        let (message, next) =
            if what.is_empty() { (&*self.steps, String::new()) } else { (what, format!("; next: {what}")) };
        self.bar.set_message(plain(message));
        if done == total {
            self.bar.finish_and_clear();
        } else if self.line.is_some_and(|line| line.elapsed() >= LINE_INTERVAL) {
            self.line = Some(Instant::now());
            standard_error::say(format_args!("{done} {} are done{next}", self.steps));
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
