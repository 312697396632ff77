//! Progress of long work, on a terminal only.

use std::io::{IsTerminal, stderr};

use hugewise_measure::experiment::Progress;
use indicatif::{ProgressBar, ProgressStyle};

/// A bar on standard error; nothing where that is not a terminal.
pub struct Bar(ProgressBar);

impl Bar {
    /// Not shown before the first run.
    pub fn new() -> Bar {
        let bar = if stderr().is_terminal() { ProgressBar::new(0) } else { ProgressBar::hidden() };
        if let Ok(style) =
            ProgressStyle::with_template("{bar:24} {pos}/{len} {elapsed} (about {eta} left) {msg}")
        {
            bar.set_style(style);
        }
        Bar(bar)
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

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// How much of something large was read; nothing where standard error is not a terminal.
pub struct Amount {
    bar: ProgressBar,
    unsaid: u64,
}

impl Amount {
    /// Of so many bytes.
    pub fn new(bytes: u64) -> Amount {
        let bar = if stderr().is_terminal() { ProgressBar::new(bytes) } else { ProgressBar::hidden() };
        if let Ok(style) =
            ProgressStyle::with_template("{bar:24} {bytes} of {total_bytes} (about {eta} left)")
        {
            bar.set_style(style);
        }
        Amount { bar, unsaid: 0 }
    }

    /// So many more were read.
    pub fn more(&mut self, bytes: u64) {
        self.unsaid += bytes;
        if self.unsaid >= 16 << 20 {
            self.bar.inc(std::mem::take(&mut self.unsaid));
        }
    }
}

impl Drop for Amount {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
