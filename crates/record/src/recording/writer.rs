//! Writes a recording as it goes.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use flate2::{Compression, write::GzEncoder};

use super::model::Line;

/// A recording that is being written.
#[derive(Debug)]
pub struct Writer {
    gzip: GzEncoder<File>,
    buffer: Vec<u8>,
}

impl Writer {
    /// Makes `path`, for its owner alone: command lines stand in it. It must be new.
    pub fn create(path: &Path) -> io::Result<Writer> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        // Fast: the recorder should cost little, and the text is very regular.
        Ok(Writer { gzip: GzEncoder::new(file, Compression::fast()), buffer: Vec::new() })
    }

    /// Adds a line.
    pub fn write(&mut self, line: &Line) -> io::Result<()> {
        self.buffer.clear();
        serde_json::to_writer(&mut self.buffer, line)?;
        self.buffer.push(b'\n');
        self.gzip.write_all(&self.buffer)
    }

    /// Everything so far is readable afterwards, whatever happens to this process.
    pub fn flush(&mut self) -> io::Result<()> {
        self.gzip.flush()
    }

    /// Ends the file.
    pub fn finish(self) -> io::Result<File> {
        self.gzip.finish()
    }
}
