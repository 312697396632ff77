//! Reads a recording line by line. The file may come from anywhere: its content is not trusted.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use flate2::read::MultiGzDecoder;
use hugewise_linux::{json, sys::file};
use serde_json::Value;

use super::model::{Header, Line, SCHEMA};

/// Longest line, in bytes; with 10 000 threads, the longest has some megabytes.
const MAX_LINE_BYTES: u64 = 16 << 20;

#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("this is not a recording of hugewise: {0}")]
    NotARecording(String),
    #[error(
        "the recording has the format {0}, and this version reads only {SCHEMA}: read it with the version that wrote \
         it, or record again"
    )]
    OtherFormat(String),
    /// A line that cannot be parsed.
    #[error("line {line}: {reason}")]
    Line {
        /// Number of the line, from 1.
        line: u64,
        reason: String,
    },
}

/// An open recording.
#[derive(Debug)]
pub struct Reader<R: Read> {
    text: BufReader<MultiGzDecoder<R>>,
    header: Header,
    line: u64,
    buffer: Vec<u8>,
    /// How the text ended; `None` before the end was read.
    end: Option<Ending>,
}

/// How the text of a recording ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// After a complete line.
    Whole,
    /// Unexpectedly: the recorder was killed, or the file was truncated.
    CutOff,
}

impl Reader<File> {
    pub fn open(path: &Path) -> Result<Reader<File>, RecordingError> {
        Reader::new(file::open_named(path)?)
    }
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    pub fn new(bytes: R) -> Result<Reader<R>, RecordingError> {
        let mut text = BufReader::new(MultiGzDecoder::new(bytes));
        let mut buffer = Vec::new();
        let not_a_recording = |why: &dyn ToString| RecordingError::NotARecording(why.to_string());
        let first = next_line(&mut text, &mut buffer).map_err(|error| not_a_recording(&error))?;
        let first = first.ok_or_else(|| not_a_recording(&"it is empty"))?;
        let value: Value = serde_json::from_slice(first).map_err(|error| not_a_recording(&error))?;
        match value.get("schema").and_then(Value::as_str) {
            Some(SCHEMA) => {}
            Some(format) => return Err(RecordingError::OtherFormat(format.chars().take(80).collect())),
            None => return Err(not_a_recording(&"its first line names no format")),
        }
        match json::read(value) {
            Ok(Line::Header(header)) => Ok(Reader { text, header: *header, line: 1, buffer, end: None }),
            Ok(_) => Err(not_a_recording(&"its first line is not a header")),
            Err(error) => Err(RecordingError::Line { line: 1, reason: error.to_string() }),
        }
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    /// How the file ended; `None` before the end was read.
    pub fn ending(&self) -> Option<Ending> {
        self.end
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Line, RecordingError>;

    /// The next line after the header. A line that cannot be parsed is an error; the following lines can
    /// still be read.
    fn next(&mut self) -> Option<Self::Item> {
        if self.end.is_some() {
            return None;
        }
        self.line += 1;
        let line = self.line;
        let wrong = |reason: String| RecordingError::Line { line, reason };
        match next_line(&mut self.text, &mut self.buffer) {
            Ok(Some(text)) => Some(serde_json::from_slice(text).map_err(|error| wrong(error.to_string()))),
            Ok(None) => {
                // The remaining text without a line feed was truncated.
                self.end = Some(if self.buffer.is_empty() { Ending::Whole } else { Ending::CutOff });
                None
            }
            Err(error) => {
                self.end = Some(Ending::CutOff);
                let is_cut = error.kind() == io::ErrorKind::UnexpectedEof;
                (!is_cut).then(|| Err(wrong(error.to_string())))
            }
        }
    }
}

/// The next complete line without its line feed; at the end `None`, with the remaining text in `buffer`.
fn next_line<'a>(text: &mut impl BufRead, buffer: &'a mut Vec<u8>) -> io::Result<Option<&'a [u8]>> {
    buffer.clear();
    text.take(MAX_LINE_BYTES).read_until(b'\n', buffer)?;
    match buffer.split_last() {
        Some((b'\n', _)) => Ok(buffer.strip_suffix(b"\n")),
        Some(_) if buffer.len() as u64 >= MAX_LINE_BYTES => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "it is longer than any line of a recording"))
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};
    use hugewise_linux::{reading::Reading, root::Root};
    use proptest::prelude::*;

    use super::*;
    use crate::recording::{End, EndReason, Note, samples};

    fn header(schema: &str) -> Line {
        Line::Header(Box::new(Header {
            schema: schema.to_owned(),
            hugewise: "0.1.0".to_owned(),
            began_ns: 1,
            began_unix_ns: 2,
            pid: 7,
            started: true,
            command: vec!["java".to_owned()],
            machine: samples::facts(&Root::at("/nowhere")),
            evidence: std::collections::BTreeMap::new(),
            events: vec![],
            first_touch: Reading::unknown("not here"),
        }))
    }

    fn note(text: &str) -> Line {
        Line::Note(Note { ns: 3, text: text.to_owned() })
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        let _ = gzip.write_all(text);
        gzip.finish().unwrap_or_default()
    }

    fn lines(lines: &[Line]) -> String {
        lines.iter().map(|line| serde_json::to_string(line).unwrap_or_default() + "\n").collect()
    }

    #[test]
    fn what_was_written_is_read() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a.rec");
        let end = Line::End(End {
            ns: 9,
            reason: EndReason::ProcessEnded,
            lost_events: Some(0),
            recorder_cpu_ns: Some(5),
        });
        let mut writer = crate::recording::Writer::create(&path)?;
        for line in [header(SCHEMA), note("a"), end.clone()] {
            writer.write(&line)?;
        }
        writer.finish()?;
        assert!(crate::recording::Writer::create(&path).is_err(), "it is there already");
        let mut reader = Reader::open(&path)?;
        assert_eq!((reader.header().pid, reader.ending()), (7, None));
        assert_eq!(reader.by_ref().collect::<Result<Vec<_>, _>>()?, [note("a"), end]);
        assert_eq!(reader.ending(), Some(Ending::Whole));
        Ok(())
    }

    #[test]
    fn what_was_flushed_before_a_kill_is_read() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a.rec");
        let mut writer = crate::recording::Writer::create(&path)?;
        writer.write(&header(SCHEMA))?;
        writer.write(&note("a"))?;
        writer.flush()?;
        let killed = std::fs::read(&path)?;
        writer.write(&note(&"b".repeat(1000)))?;
        drop(writer);
        for left in [&killed[..], &killed[..killed.len() - 1]] {
            let mut reader = Reader::new(left)?;
            assert_eq!(reader.by_ref().collect::<Result<Vec<_>, _>>()?, [note("a")]);
            assert_eq!(reader.ending(), Some(Ending::CutOff));
        }
        Ok(())
    }

    #[test]
    fn what_is_no_recording_is_refused_and_a_bad_line_passed_over() {
        let refused =
            |bytes: &[u8]| Reader::new(bytes).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused(b"PK").contains("not a recording"));
        assert!(refused(&gzip(b"")).contains("it is empty"));
        assert!(refused(&gzip(b"{\"a\": 1}\n")).contains("names no format"));
        assert!(
            refused(&gzip(lines(&[header("hugewise.recording/9")]).as_bytes()))
                .contains("the version that wrote it")
        );
        let endless = gzip(&vec![b'x'; MAX_LINE_BYTES as usize + 1]);
        assert!(refused(&endless).contains("longer than any line"));

        let text = format!("{}what?\n{}", lines(&[header(SCHEMA)]), lines(&[note("a")]));
        let bytes = gzip(text.as_bytes());
        let Ok(reader) = Reader::new(&bytes[..]) else { unreachable!() };
        let read: Vec<_> = reader.map(|line| line.map_err(|error| error.to_string())).collect();
        assert!(
            matches!(&read[..], [Err(error), Ok(line)] if error.starts_with("line 2:") && *line == note("a"))
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn nothing_makes_it_panic(bytes in any::<Vec<u8>>(), text in "(.|\n)*", cut in any::<u16>()) {
            let read = |bytes: &[u8]| Reader::new(bytes).map(Iterator::count);
            let _ = read(&bytes);
            let whole = gzip(format!("{}{text}\n{}", lines(&[header(SCHEMA)]), lines(&[note("a")])).as_bytes());
            let _ = read(&whole[..usize::from(cut) % whole.len()]);
            let mut damaged = whole;
            let at = usize::from(cut) % damaged.len();
            damaged[at] ^= 0x55;
            let _ = read(&damaged);
        }
    }
}
