//! Writes a recording line by line.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Write},
    path::Path,
};

use flate2::{Compression, write::GzEncoder};
use hugewise_linux::{json, sys::file::Folder};

use super::model::Line;

#[derive(Debug)]
pub struct Writer {
    gzip: GzEncoder<File>,
    buffer: Vec<u8>,
    folder: Folder,
    name: OsString,
}

impl Writer {
    /// Creates `path`, which must not exist; only its owner may read it, as it contains command lines.
    pub fn create(path: &Path) -> io::Result<Writer> {
        let (folder, name) = Folder::around(path)?;
        let file = folder.create_new(&name, 0o600)?;
        // Fast compression keeps the overhead low, and the text is very regular.
        let gzip = GzEncoder::new(file, Compression::fast());
        Ok(Writer { gzip, buffer: Vec::new(), folder, name })
    }

    /// Removes the file.
    pub fn remove(&self) -> io::Result<()> {
        self.folder.remove(&self.name)
    }

    pub fn write(&mut self, line: &Line) -> io::Result<()> {
        self.buffer.clear();
        match line {
            // Only the header has readings.
            Line::Header(_) => serde_json::to_writer(&mut self.buffer, &json::value(line)?)?,
            line => serde_json::to_writer(&mut self.buffer, line)?,
        }
        self.buffer.push(b'\n');
        self.gzip.write_all(&self.buffer)
    }

    /// Writes all lines so far to the file, so that they survive a kill of this process.
    pub fn flush(&mut self) -> io::Result<()> {
        self.gzip.flush()
    }

    pub fn finish(self) -> io::Result<File> {
        self.gzip.finish()
    }
}
