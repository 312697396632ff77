//! Reads a recording, line by line. The file is somebody else's: nothing in it is trusted.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use flate2::read::MultiGzDecoder;

use super::model::{Header, Line, SCHEMA};

/// No line is longer: the longest, with ten thousand threads, has some megabytes.
const LONGEST: u64 = 16 << 20;

/// Why a file cannot be read as a recording, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The system refused.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is none.
    #[error("this is no recording of hugewise: {0}")]
    NotOne(String),
    /// It is of a later hugewise.
    #[error(
        "this is a recording of the format {0}, and only {SCHEMA} is understood; a later hugewise reads it"
    )]
    OtherFormat(String),
    /// A line that is not of the format.
    #[error("line {line}: {reason}")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
}

/// A recording that is being read.
#[derive(Debug)]
pub struct Reader<R: Read> {
    text: BufReader<MultiGzDecoder<R>>,
    header: Header,
    line: u64,
    buffer: Vec<u8>,
    /// How it ended; nothing as long as it has not.
    end: Option<Ending>,
}

/// How the text of a recording ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// As it should.
    Whole,
    /// In the middle: whoever wrote it was killed, or the file was cut off.
    CutOff,
}

impl Reader<File> {
    /// Opens the recording in `path`.
    pub fn open(path: &Path) -> Result<Reader<File>, RecordingError> {
        Reader::new(File::open(path)?)
    }
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    pub fn new(bytes: R) -> Result<Reader<R>, RecordingError> {
        let mut text = BufReader::new(MultiGzDecoder::new(bytes));
        let mut buffer = Vec::new();
        let first = match next_line(&mut text, &mut buffer) {
            Ok(Some(line)) => line,
            Ok(None) => return Err(RecordingError::NotOne("it is empty".to_owned())),
            Err(error) => return Err(RecordingError::NotOne(error.to_string())),
        };
        let format = |value: &serde_json::Value| Some(value.get("schema")?.as_str()?.to_owned());
        let value: serde_json::Value =
            serde_json::from_slice(first).map_err(|error| RecordingError::NotOne(error.to_string()))?;
        match format(&value) {
            Some(format) if format == SCHEMA => {}
            Some(format) => return Err(RecordingError::OtherFormat(format.chars().take(80).collect())),
            None => return Err(RecordingError::NotOne("its first line names no format".to_owned())),
        }
        match serde_json::from_value(value) {
            Ok(Line::Header(header)) => Ok(Reader { text, header: *header, line: 1, buffer, end: None }),
            Ok(_) => Err(RecordingError::NotOne("its first line is no header".to_owned())),
            Err(error) => Err(RecordingError::Line { line: 1, reason: error.to_string() }),
        }
    }

    /// Of what the recording is.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// How it ended; nothing before the last line was read.
    pub fn ending(&self) -> Option<Ending> {
        self.end
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Line, RecordingError>;

    /// The next line behind the header. A line that cannot be understood is an error, and those
    /// behind it can still be read.
    fn next(&mut self) -> Option<Self::Item> {
        if self.end.is_some() {
            return None;
        }
        self.line += 1;
        let line = self.line;
        let wrong = |reason: String| Some(Err(RecordingError::Line { line, reason }));
        match next_line(&mut self.text, &mut self.buffer) {
            Ok(Some(text)) => match serde_json::from_slice(text) {
                Ok(line) => Some(Ok(line)),
                Err(error) => wrong(error.to_string()),
            },
            Ok(None) => {
                // What is left has no end of line: it was cut off in its middle.
                self.end = Some(if self.buffer.is_empty() { Ending::Whole } else { Ending::CutOff });
                None
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.end = Some(Ending::CutOff);
                None
            }
            Err(error) => {
                self.end = Some(Ending::CutOff);
                wrong(error.to_string())
            }
        }
    }
}

/// The next whole line without its end; at the end of the text nothing, and in `buffer` what is left.
fn next_line<'a>(text: &mut impl BufRead, buffer: &'a mut Vec<u8>) -> io::Result<Option<&'a [u8]>> {
    buffer.clear();
    text.take(LONGEST).read_until(b'\n', buffer)?;
    match buffer.split_last() {
        Some((b'\n', _)) => Ok(buffer.strip_suffix(b"\n")),
        Some(_) if buffer.len() as u64 >= LONGEST => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "it is longer than any line of a recording"))
        }
        _ => Ok(None),
    }
}
