//! Scans a log of any size for messages, in constant memory.

use std::{
    collections::{BTreeSet, HashMap},
    io::{self, Read},
    sync::LazyLock,
};

use schemars::JsonSchema;
use serde::Serialize;

use super::{Capture, Family, Message, needles::Needles, read};
use crate::decoder::{self, Layer};

/// Different messages kept; a log with more is not about large pages.
const MOST_MESSAGES: usize = 1000;
/// Reports whose facts are kept apart; those of further ones are taken for the last.
const MAX_REPORTS: usize = 1000;
/// Characters of a line that are kept.
const MAX_TEXT_CHARS: usize = 300;

/// A message and its position in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FoundMessage {
    #[serde(flatten)]
    pub message: Message,
    /// First line with the message, from 1.
    pub line: u64,
    /// Number of lines with the message, addresses aside.
    pub count: u64,
    /// Text of the first line, at most 300 characters.
    pub text: String,
    /// Index of the report that the line is in: a log can have several crash files.
    #[serde(skip)]
    pub(super) report: usize,
}

/// Messages of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScannedLog {
    /// In the order of their first lines.
    pub found: Vec<FoundMessage>,
    /// Number of lines read.
    pub lines: u64,
    /// Messages not kept, because there were too many different ones.
    pub left_out: u64,
    /// Lines about huge pages, known or not.
    pub about_huge_pages: u64,
    /// Lines that were cut, as they are too long.
    pub cut: u64,
    /// Lines that are not in UTF-8 or UTF-16.
    pub binary: u64,
    /// Why the log was not read to its end; `None` if it was.
    pub ended_early: Option<String>,
    /// What was taken off the lines.
    pub layers: BTreeSet<Layer>,
    /// Facts in the log, for each report in it.
    captures: Vec<Capture>,
    /// Programs that the log names.
    programs: Vec<Program>,
}

/// A program whose name decides how to help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Java,
    PostgreSql,
}

/// Words that name a program, in any case.
const NAMES: [(Program, &str); 5] = [
    (Program::PostgreSql, "PostgreSQL"),
    (Program::PostgreSql, "postgres"),
    (Program::PostgreSql, "initdb"),
    (Program::Java, "Java VM"),
    (Program::Java, "java "),
];

/// `None` only if the words are no patterns, which a test excludes.
static NAME_NEEDLES: LazyLock<Option<Needles>> =
    LazyLock::new(|| Needles::new(NAMES.iter().map(|(_, name)| *name)));

static NOTHING: LazyLock<Capture> = LazyLock::new(Capture::default);

impl ScannedLog {
    /// The facts in a report.
    pub(super) fn capture(&self, report: usize) -> &Capture {
        self.captures.get(report).unwrap_or(&NOTHING)
    }

    pub(super) fn names(&self, program: Program) -> bool {
        self.programs.contains(&program)
    }
}

/// Reads a log to its end, or to an error behind its first line; bytes that are not UTF-8 are replaced.
pub fn scan(log: impl Read) -> io::Result<ScannedLog> {
    let mut scan = Scan::default();
    let (layers, error) = decoder::each_line(log, |line, plain, cut| scan.line(line, plain, cut))?;
    scan.log.layers = layers;
    match error {
        Some(error) if scan.log.lines == 0 => return Err(error),
        Some(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            scan.log.ended_early = Some("the compressed file is truncated".to_owned());
        }
        Some(error) => scan.log.ended_early = Some(error.to_string()),
        None => {}
    }
    Ok(scan.log)
}

/// Whether at least an eighth of a text is replaced bytes or control characters.
fn is_binary(text: &str) -> bool {
    let is_foreign =
        |letter: &char| *letter == char::REPLACEMENT_CHARACTER || (letter.is_control() && *letter != '\t');
    let (mut foreign, mut all) = (0, 0);
    for letter in text.chars() {
        all += 1;
        foreign += usize::from(is_foreign(&letter));
    }
    foreign * 8 > all
}

#[derive(Default)]
struct Scan {
    log: ScannedLog,
    /// Index of each message in `log.found`; unknown ones by their text without digits.
    places: HashMap<(Message, String, Option<usize>), usize>,
}

impl Scan {
    /// Reads the plain lines of a line, or the line itself if they have no message.
    fn line(&mut self, line: &[u8], plain: &[Vec<u8>], cut: bool) {
        self.log.lines += u64::from(!line.is_empty() || plain.is_empty());
        self.log.cut += u64::from(cut);
        let mut found = false;
        for text in plain {
            found |= self.text(text);
        }
        // Without plain lines, the line is a part of one that ends later.
        if !found && !plain.is_empty() && plain.iter().all(|text| text != line) {
            found = self.text(line);
        }
        if !found && !cut && (plain.iter().any(|text| is_binary(&String::from_utf8_lossy(text)))) {
            self.log.binary += 1;
        }
    }

    /// Reads a text; returns whether it is about huge pages.
    fn text(&mut self, line: &[u8]) -> bool {
        let text = String::from_utf8_lossy(line);
        for at in NAME_NEEDLES.iter().flat_map(|needles| needles.candidates(&text)) {
            if let Some((program, _)) = NAMES.get(at).filter(|(program, _)| !self.log.names(*program)) {
                self.log.programs.push(*program);
            }
        }
        self.facts(&text);
        let Some(message) = read(&text) else { return false };
        self.log.about_huge_pages += 1;
        self.keep(message, &text);
        true
    }

    fn facts(&mut self, text: &str) {
        let captures = &mut self.log.captures;
        let begins = captures.last().is_none_or(|last| last.begins_another(text));
        if begins && captures.len() < MAX_REPORTS {
            captures.push(Capture::default());
        }
        if let Some(last) = captures.last_mut() {
            last.line(text);
        }
    }

    fn keep(&mut self, message: Message, text: &str) {
        let log = &mut self.log;
        let shape = match message.family {
            Family::Unknown => text.chars().filter(|c| c.is_alphabetic()).take(MAX_TEXT_CHARS).collect(),
            _ => String::new(),
        };
        let report = log.captures.len().saturating_sub(1);
        // Equal crashes have different causes if their files have different facts.
        let of_report = matches!(message.family, Family::BusError | Family::CommitMemory).then_some(report);
        let key = (message, shape, of_report);
        if let Some(found) = self.places.get(&key).and_then(|at| log.found.get_mut(*at)) {
            found.count += 1;
        } else if log.found.len() < MOST_MESSAGES {
            let text = text.trim().chars().take(MAX_TEXT_CHARS).collect();
            log.found.push(FoundMessage { message: key.0.clone(), line: log.lines, count: 1, text, report });
            self.places.insert(key, log.found.len() - 1);
        } else {
            log.left_out += 1;
        }
    }
}
