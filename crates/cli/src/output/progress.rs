//! Progress of long operations on standard error, if that is a terminal.

use std::io::{IsTerminal, stderr};

use hugewise_measure::experiment::Progress;
use indicatif::{ProgressBar, ProgressStyle};

/// Progress of an experiment, in runs. Hidden until the first run starts.
pub struct Bar(ProgressBar);

impl Bar {
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

/// Progress of reading a file, in bytes.
pub struct ByteProgress {
    bar: ProgressBar,
    unsaid: u64,
}

impl ByteProgress {
    /// `bytes`: the size of the file.
    pub fn new(bytes: u64) -> ByteProgress {
        let bar = if stderr().is_terminal() { ProgressBar::new(bytes) } else { ProgressBar::hidden() };
        if let Ok(style) =
            ProgressStyle::with_template("{bar:24} {bytes} of {total_bytes} (about {eta} left)")
        {
            bar.set_style(style);
        }
        ByteProgress { bar, unsaid: 0 }
    }

    /// Adds `bytes` to the amount read; the bar is redrawn every 16 MiB.
    pub fn more(&mut self, bytes: u64) {
        self.unsaid += bytes;
        if self.unsaid >= 16 << 20 {
            self.bar.inc(std::mem::take(&mut self.unsaid));
        }
    }
}

impl Drop for ByteProgress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
