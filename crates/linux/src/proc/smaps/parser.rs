//! A fast parser of smaps: the kernel prints a million lines for 40,000 mappings.

use std::mem;

use super::{ThpAdvice, Vma};
use crate::units::Bytes;

/// Parses smaps piece by piece.
///
/// The kernel prints nearly all counters in the same order and width for every mapping, so the next line can
/// be predicted: a key in 16 bytes, a value in 8, ` kB`.
#[derive(Debug, Default)]
pub struct Parser {
    vmas: Vec<Vma>,
    /// An incomplete line at the end of the last piece.
    begun: Vec<u8>,
    /// Number of parsed lines.
    lines: usize,
    /// The lines after the last header.
    layout: Vec<PredictedLine>,
    /// Number of lines since the last header.
    next: usize,
}

/// The number, from 1, and the text of a line that cannot be parsed.
pub type MalformedLine = (usize, String);

/// Longest line, in bytes: a path of `PATH_MAX` whose every byte is printed as four (`\\012`).
const MAX_LINE_BYTES: usize = 4 * 4096 + 128;
/// Longest name that is kept, in bytes; of a longer one its beginning.
const MAX_NAME_BYTES: usize = 512;
/// Largest number of mappings; the kernel's default limit (`vm.max_map_count`) is 65,530.
const MAX_MAPPINGS: usize = 1 << 20;
/// Longest permissions, in bytes: `rwxp`.
const MAX_PERMISSIONS_BYTES: usize = 8;

const KEY_LEN: usize = 16;
const VALUE_END: usize = 24;
const LINE_LEN: usize = 28;
const ZERO_VALUE: &[u8; VALUE_END - KEY_LEN] = b"       0";

#[derive(Clone, Copy, Debug)]
struct PredictedLine {
    key: [u8; KEY_LEN],
    counter: Counter,
}

/// The counter of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counter {
    Rss,
    Anonymous,
    Thp,
    Hugetlb,
    KernelPageSize,
    Swap,
    /// A counter that is not used.
    Other,
}

impl Parser {
    /// Parses the next piece, which may begin and end within a line.
    pub fn feed(&mut self, piece: &[u8]) -> Result<(), MalformedLine> {
        let mut piece = piece;
        if !self.begun.is_empty() {
            let end = line_feed(piece).map_or(piece.len(), |end| end + 1);
            let mut line = mem::take(&mut self.begun);
            line.extend_from_slice(&piece[..end]);
            piece = &piece[end..];
            let taken = self.take(&line)?;
            self.begun = line.split_off(taken);
        }
        let taken = self.take(piece)?;
        self.begun.extend_from_slice(&piece[taken..]);
        if self.begun.len() > MAX_LINE_BYTES {
            let beginning = self.begun.get(..MAX_NAME_BYTES).unwrap_or_default();
            return Err((self.lines + 1, String::from_utf8_lossy(beginning).into_owned()));
        }
        Ok(())
    }

    /// All mappings, after the last piece. The last line may lack its line feed.
    pub fn finish(mut self) -> Result<Vec<Vma>, MalformedLine> {
        let last = mem::take(&mut self.begun);
        if !last.is_empty() {
            self.line(&last)?;
        }
        Ok(self.vmas)
    }

    /// Parses all complete lines of `text`; returns their number of bytes.
    fn take(&mut self, text: &[u8]) -> Result<usize, MalformedLine> {
        let mut at = 0;
        loop {
            let rest = &text[at..];
            let predicted = self.take_predicted(rest);
            if predicted > 0 {
                at += predicted * LINE_LEN;
                continue;
            }
            let Some(length) = line_feed(rest) else { return Ok(at) };
            self.line(&rest[..length])?;
            at += length + 1;
        }
    }

    /// Parses lines as long as they match those of the previous mapping; returns their number.
    fn take_predicted(&mut self, rest: &[u8]) -> usize {
        let (Some(vma), Some(layout)) = (self.vmas.last_mut(), self.layout.get(self.next..)) else {
            return 0;
        };
        let mut taken = 0;
        for (line, predicted) in rest.chunks_exact(LINE_LEN).zip(layout) {
            let (key, rest) = line.split_at(KEY_LEN);
            let (value, unit) = rest.split_at(VALUE_END - KEY_LEN);
            if key != predicted.key || unit != b" kB\n" {
                break;
            }
            // Most counters are zero, as are all counters of a new `Vma`.
            if predicted.counter != Counter::Other && value != ZERO_VALUE {
                let Some(value) = number(value) else { break };
                vma.count(predicted.counter, Bytes::from_kib(value));
            }
            taken += 1;
        }
        self.next += taken;
        self.lines += taken;
        taken
    }

    /// Parses a line without its line feed.
    fn line(&mut self, line: &[u8]) -> Result<(), MalformedLine> {
        self.lines += 1;
        let unreadable = |lines| (lines, String::from_utf8_lossy(line).into_owned());
        let key = line.iter().position(|byte| !(byte.is_ascii_alphanumeric() || *byte == b'_'));
        match key.filter(|&end| line[end] == b':') {
            // A counter's key is a word; a header has a dash before its first colon.
            Some(end) => {
                let lines = self.lines;
                let vma = self.vmas.last_mut().ok_or_else(|| unreadable(lines))?;
                let counter = vma.detail(&line[..end], &line[end + 1..]).ok_or_else(|| unreadable(lines))?;
                self.predict(line, counter);
            }
            None => {
                let room = self.vmas.len() < MAX_MAPPINGS;
                let vma = header(line).filter(|_| room).ok_or_else(|| unreadable(self.lines))?;
                self.vmas.push(vma);
                self.next = 0;
            }
        }
        Ok(())
    }

    fn predict(&mut self, line: &[u8], counter: Counter) {
        let fits = line.len() == LINE_LEN - 1;
        // No line begins with this key, so a line of another format is never predicted.
        let key = line[..KEY_LEN.min(line.len())].try_into().ok().filter(|_| fits).unwrap_or([0; KEY_LEN]);
        let predicted = PredictedLine { key, counter };
        match self.layout.get_mut(self.next) {
            Some(place) => *place = predicted,
            None => self.layout.push(predicted),
        }
        self.next += 1;
    }
}

impl Vma {
    fn count(&mut self, counter: Counter, bytes: Bytes) {
        match counter {
            Counter::Rss => self.rss = bytes,
            Counter::Anonymous => self.anonymous = bytes,
            Counter::Thp => self.thp += bytes,
            Counter::Hugetlb => self.hugetlb += bytes,
            Counter::KernelPageSize => self.kernel_page_size = bytes,
            Counter::Swap => self.swap = bytes,
            Counter::Other => {}
        }
    }

    /// Stores the value of a line; `None` if it is malformed.
    fn detail(&mut self, key: &[u8], value: &[u8]) -> Option<Counter> {
        let counter = match key {
            b"Rss" => Counter::Rss,
            b"Anonymous" => Counter::Anonymous,
            b"AnonHugePages" | b"ShmemPmdMapped" | b"FilePmdMapped" => Counter::Thp,
            b"Private_Hugetlb" | b"Shared_Hugetlb" => Counter::Hugetlb,
            b"KernelPageSize" => Counter::KernelPageSize,
            b"Swap" => Counter::Swap,
            b"THPeligible" => {
                self.thp_eligible = Some(number(value.trim_ascii())? != 0);
                Counter::Other
            }
            b"VmFlags" => {
                self.flags(value);
                Counter::Other
            }
            _ => Counter::Other,
        };
        if counter != Counter::Other {
            self.count(counter, Bytes::from_kib(number(value.trim_ascii().strip_suffix(b" kB")?)?));
        }
        Some(counter)
    }

    /// Flags of two letters, separated by blanks.
    fn flags(&mut self, value: &[u8]) {
        for flag in value.trim_ascii_start().chunks(3) {
            match flag.get(..2) {
                Some(b"ht") => self.is_hugetlb = true,
                Some(b"hg") => self.advice = ThpAdvice::Huge,
                Some(b"nh") => self.advice = ThpAdvice::NoHuge,
                Some(b"sh") => self.is_shared = true,
                Some(b"lo") => self.is_locked = true,
                _ => {}
            }
        }
    }
}

/// Position of the first line feed; compares eight bytes at a time.
fn line_feed(text: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    // The exclusive or turns a line feed into a zero byte; only a word with a zero byte has a borrow.
    let found = text.chunks_exact(8).position(|word| {
        let nought = word.try_into().map_or(0, u64::from_ne_bytes) ^ (ONES * u64::from(b'\n'));
        nought.wrapping_sub(ONES) & !nought & HIGH != 0
    });
    let from = found.unwrap_or(text.len() / 8) * 8;
    text[from..].iter().position(|byte| *byte == b'\n').map(|place| from + place)
}

/// A decimal number with leading blanks.
fn number(text: &[u8]) -> Option<u64> {
    let digits = text.trim_ascii_start();
    let value = |value: u64, digit: &u8| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        value.checked_mul(10)?.checked_add(u64::from(digit))
    };
    (!digits.is_empty()).then(|| digits.iter().try_fold(0, value))?
}

/// A hexadecimal number of at most 16 digits, as the kernel prints addresses.
fn hex(text: &[u8]) -> Option<u64> {
    let value = |value: u64, digit: &u8| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some((value << 4) | u64::from(digit))
    };
    (1..=16).contains(&text.len()).then(|| text.iter().try_fold(0, value))?
}

/// `00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/dbus-daemon`
fn header(line: &[u8]) -> Option<Vma> {
    let mut rest = line;
    let mut word = |end: u8| {
        let length = rest.iter().position(|byte| *byte == end).unwrap_or(rest.len());
        let word = &rest[..length];
        rest = rest.get(length + 1..).unwrap_or_default().trim_ascii_start();
        (!word.is_empty()).then_some(word)
    };
    let (start, end) = (hex(word(b'-')?)?, hex(word(b' ')?)?);
    let permissions = word(b' ').filter(|permissions| permissions.len() <= MAX_PERMISSIONS_BYTES)?;
    let permissions = String::from_utf8_lossy(permissions).into_owned();
    let offset = hex(word(b' ')?)?;
    let device = (hex(word(b':')?)?, hex(word(b' ')?)?);
    let inode = number(word(b' ')?)?;
    (start <= end).then(|| Vma {
        addresses: start..end,
        permissions,
        offset,
        device,
        inode,
        name: name(rest),
        ..Vma::default()
    })
}

fn name(text: &[u8]) -> String {
    match text.get(..MAX_NAME_BYTES) {
        Some(beginning) if text.len() > MAX_NAME_BYTES => {
            String::from_utf8_lossy(beginning).into_owned() + "…"
        }
        _ => String::from_utf8_lossy(text).into_owned(),
    }
}
