//! Reads a log file while another process appends to it.

use std::{
    fs::File,
    io::{self, Read},
    mem,
    os::unix::fs::MetadataExt,
};

use hugewise_linux::sys::file;

/// Longest line, in bytes; longer ones are split.
const MAX_LINE_BYTES: usize = 64 << 10;
/// Most bytes read by one call; the rest follows with the next.
const MAX_READ_BYTES: u64 = 4 << 20;

/// Opens the file that has the name of the log now.
type Reopen = Box<dyn Fn() -> io::Result<File> + Send>;

/// Bytes of a private log that are released at once after they were read.
const RELEASE_STEP_BYTES: u64 = 1 << 20;

/// A log that is read line by line as it grows.
pub struct Tail {
    file: File,
    reopen: Option<Reopen>,
    rest: Vec<u8>,
    /// For a private file: bytes read so far, and bytes released so far.
    own: Option<(u64, u64)>,
}

impl Tail {
    /// Reads `file` from its current position; `reopen` opens its successor after a rotation.
    pub fn of(file: File, reopen: Option<Reopen>) -> Tail {
        Tail { file, reopen, rest: Vec::new(), own: None }
    }

    /// Reads a file without other readers from its beginning; the space of the bytes read is released.
    pub fn own(file: File) -> Tail {
        Tail { own: Some((0, 0)), ..Tail::of(file, None) }
    }

    /// The complete lines added since the previous call; with `last`, also a final line without line feed.
    pub fn lines(&mut self, last: bool) -> io::Result<Vec<String>> {
        let read = (&self.file).take(MAX_READ_BYTES).read_to_end(&mut self.rest)?;
        if let Some((done, released)) = &mut self.own {
            *done += read as u64;
            if *done - *released >= RELEASE_STEP_BYTES {
                // Without support of the file system, the space stays allocated until the end of the
                // recording.
                let _ = file::release_beginning(&self.file, *done / RELEASE_STEP_BYTES * RELEASE_STEP_BYTES);
                *released = *done;
            }
        }
        let mut lines = Vec::new();
        let mut begin = 0;
        for at in 0..self.rest.len() {
            if self.rest[at] == b'\n' || at - begin >= MAX_LINE_BYTES {
                lines.push(text(&self.rest[begin..at]));
                begin = if self.rest[at] == b'\n' { at + 1 } else { at };
            }
        }
        self.rest.drain(..begin);
        let rotated = if read == 0 { self.rotated() } else { None };
        if (last || rotated.is_some()) && !self.rest.is_empty() {
            lines.push(text(&mem::take(&mut self.rest)));
        }
        if let Some(next) = rotated {
            self.file = next;
        }
        Ok(lines)
    }

    /// The file that replaced this one in a rotation; to be called at the end of this one.
    fn rotated(&self) -> Option<File> {
        let next = self.reopen.as_ref()?().ok()?;
        let (ours, theirs) = (self.file.metadata().ok()?, next.metadata().ok()?);
        ((ours.dev(), ours.ino()) != (theirs.dev(), theirs.ino())).then_some(next)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.strip_suffix(b"\r").unwrap_or(bytes)).into_owned()
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write};

    use super::*;

    #[test]
    fn lines_are_reported_once_and_whole() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("gc.log");
        let mut log = File::create(&path)?;
        let name = path.clone();
        let mut tail = Tail::of(File::open(&path)?, Some(Box::new(move || File::open(&name))));
        assert!(tail.lines(false)?.is_empty());
        write!(log, "one\ntwo\nthr")?;
        assert_eq!(tail.lines(false)?, ["one", "two"]);
        writeln!(log, "ee")?;
        assert_eq!(tail.lines(false)?, ["three"]);
        // Rotation: the rest of the old file comes first, then the new one from its beginning.
        write!(log, "last of the old\nhalf")?;
        fs::rename(&path, folder.path().join("gc.log.0"))?;
        fs::write(&path, "first of the new\nend")?;
        let mut lines = tail.lines(false)?;
        lines.extend(tail.lines(false)?);
        lines.extend(tail.lines(true)?);
        assert_eq!(lines, ["last of the old", "half", "first of the new", "end"]);
        Ok(())
    }

    #[test]
    fn a_log_of_our_own_takes_no_space_once_read() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("gc.log");
        let mut log = File::options().create_new(true).append(true).open(&path)?;
        let mut tail = Tail::own(File::options().read(true).write(true).open(&path)?);
        let line = format!("{}\n", "x".repeat(1023));
        for _ in 0..3 {
            log.write_all(line.repeat(1024).as_bytes())?;
            assert_eq!(tail.lines(false)?, vec!["x".repeat(1023); 1024]);
        }
        log.write_all(b"last\n")?;
        assert_eq!(tail.lines(false)?, ["last"]);
        let found = fs::metadata(&path)?;
        assert_eq!(found.len(), (3 << 20) + 5);
        // If the file system supports it.
        if file::release_beginning(&log, 4096).is_ok() {
            assert!(found.blocks() * 512 < 1 << 20, "{} blocks", found.blocks());
        }
        Ok(())
    }

    #[test]
    fn a_line_without_end_does_not_fill_the_memory() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("gc.log");
        fs::write(&path, vec![b'x'; 3 * MAX_LINE_BYTES])?;
        let mut tail = Tail::of(File::open(&path)?, None);
        assert_eq!(tail.lines(false)?.len(), 2);
        assert_eq!(tail.lines(true)?, ["x".repeat(MAX_LINE_BYTES)]);
        Ok(())
    }
}
