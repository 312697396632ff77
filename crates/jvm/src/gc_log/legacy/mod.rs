//! Lines of JDK 8 and older: nested brackets, into which other threads write.
//!
//! A pause extends from `[GC` to its own closing bracket, over any number of lines, and ends with its
//! duration. Phases that other threads write in between close their own brackets, so that counting brackets
//! skips them and their CPU times.

#[cfg(test)]
mod tests;

use memchr::{memchr, memchr2_iter, memmem, memrchr};

use super::{
    Cpu, LogPosition,
    numbers::{MILLISECOND_EXPONENT, SECOND_EXPONENT, nanos},
    stamp::Stamp,
    unified::without_sizes,
};

/// Bytes kept of the beginning of a pause, which decide its kind.
const MAX_HEAD_BYTES: usize = 240;
/// Words anywhere in a pause that change its kind.
const MARKS: [&str; 8] = [
    "promotion failed",
    "concurrent mode failure",
    "concurrent mode interrupted",
    "to-space exhausted",
    "to-space overflow",
    "initial-mark",
    "CMS-remark",
    "(mixed)",
];

/// A pause whose closing bracket has not been read yet.
#[derive(Debug)]
struct Open {
    place: LogPosition,
    stamp: Stamp,
    gc_id: Option<u64>,
    /// Text after its first bracket.
    head: Vec<u8>,
    /// Which of [`MARKS`] it contains.
    marks: [bool; MARKS.len()],
    depth: usize,
}

/// An event of a line.
#[derive(Debug, PartialEq)]
pub(super) enum ParsedLine {
    Paused {
        place: LogPosition,
        stamp: Stamp,
        gc_id: Option<u64>,
        name: String,
        cause: Option<String>,
        duration_ns: u64,
    },
    Cpu(Cpu),
    Unreadable(LogPosition, &'static str),
}

/// Reader, with the pause that is open.
#[derive(Debug, Default)]
pub(super) struct Legacy {
    open: Option<Open>,
}

impl Legacy {
    /// Reads a line; returns whether it belongs to a log.
    pub fn line(&mut self, line: &[u8], place: LogPosition, said: &mut impl FnMut(ParsedLine)) -> bool {
        let mut rest = line;
        let mut before = &b""[..];
        if let Some(start) =
            pause_start(line).filter(|start| self.open.is_some() && at_beginning(line, *start))
        {
            // No pause begins within another: the end of the open one is lost.
            self.lost(said);
            (before, rest) = line.split_at(start);
        }
        let mut known = false;
        loop {
            if let Some(mut open) = self.open.take() {
                known = true;
                let Some(end) = open.read(rest) else {
                    self.open = Some(open);
                    return true;
                };
                let (inside, after) = rest.split_at(end);
                said(open.close(inside));
                rest = &after[1..];
                before = b"";
            }
            if let Some(times) = rest.trim_ascii_start().strip_prefix(b"[Times: ") {
                known = true;
                match cpu(times) {
                    Some(cpu) => said(ParsedLine::Cpu(cpu)),
                    None => said(ParsedLine::Unreadable(place, "the CPU time of a collection")),
                }
            } else if rest.trim_ascii_start().starts_with(b"[Invalid result in TraceCPUTime]") {
                known = true;
            }
            let Some(start) = pause_start(rest) else { return known | shenandoah(rest, place, said) };
            let prefix = if before.is_empty() { &rest[..start] } else { before };
            let (stamp, gc_id) = Stamp::before_text(prefix);
            rest = &rest[start..];
            self.open =
                Some(Open { place, stamp, gc_id, head: Vec::new(), marks: [false; MARKS.len()], depth: 0 });
            before = b"";
        }
    }

    /// Reports an open pause as unreadable: its end will not follow.
    pub fn lost(&mut self, said: &mut impl FnMut(ParsedLine)) {
        if let Some(open) = self.open.take() {
            said(ParsedLine::Unreadable(open.place, "a pause without its end"));
        }
    }
}

impl Open {
    /// Reads text; returns the position of the closing bracket if the text contains it.
    fn read(&mut self, text: &[u8]) -> Option<usize> {
        let end = memchr2_iter(b'[', b']', text).find(|at| {
            if text[*at] == b'[' {
                self.depth += 1;
            } else {
                self.depth = self.depth.saturating_sub(1);
            }
            self.depth == 0
        });
        let inside = &text[..end.unwrap_or(text.len())];
        let room = MAX_HEAD_BYTES.saturating_sub(self.head.len()).min(inside.len());
        self.head.extend_from_slice(&inside[..room]);
        for (seen, mark) in self.marks.iter_mut().zip(MARKS) {
            *seen |= memmem::find(inside, mark.as_bytes()).is_some();
        }
        end
    }

    /// The pause, whose last line is `inside`.
    fn close(self, inside: &[u8]) -> ParsedLine {
        let Some(duration_ns) = duration(inside) else {
            return ParsedLine::Unreadable(self.place, "a pause without a duration");
        };
        let head = String::from_utf8_lossy(&self.head);
        let (name, cause) = self.name(head.trim_start_matches('['));
        ParsedLine::Paused {
            place: self.place,
            stamp: self.stamp,
            gc_id: self.gc_id,
            name,
            cause,
            duration_ns,
        }
    }

    fn has(&self, mark: &str) -> bool {
        self.marks.iter().zip(MARKS).any(|(seen, name)| *seen && name == mark)
    }

    /// Kind and cause, with the names that later JVMs use for the same.
    fn name(&self, head: &str) -> (String, Option<String>) {
        let full = head.starts_with("Full GC");
        let rest = head.trim_start_matches("Full ").trim_start_matches("GC").trim_start_matches('-');
        let is_g1 = rest.starts_with(" pause");
        let rest = rest.trim_start_matches(" pause").trim_start();
        let cause = group(rest).filter(|cause| !matches!(*cause, "young" | "mixed" | "partial"));
        let mut name = if full {
            "Full"
        } else if rest.starts_with("remark") || self.has("CMS-remark") {
            "Remark"
        } else if rest.starts_with("cleanup") {
            "Cleanup"
        } else if !is_g1 && self.has("initial-mark") {
            "Initial Mark"
        } else if self.has("(mixed)") {
            "Young (Mixed)"
        } else if self.has("initial-mark") {
            "Young (Concurrent Start)"
        } else {
            "Young"
        }
        .to_owned();
        let failed_at_once = head.starts_with("GC--") || head.contains("--[PSYoungGen");
        for mark in &MARKS[..5] {
            if self.has(mark) || failed_at_once && *mark == "promotion failed" {
                name += &format!(" ({mark})");
            }
        }
        (name, cause.map(str::to_owned))
    }
}

/// `(System.gc()) …`: the text inside the parentheses.
fn group(text: &str) -> Option<&str> {
    let mut depth = 0usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return text.get(1..at).filter(|inside| !inside.is_empty());
        }
    }
    None
}

/// Shenandoah as backported to JDK 8: `0.427: [Pause Init Mark, 0.419 ms]`.
fn shenandoah(line: &[u8], place: LogPosition, said: &mut impl FnMut(ParsedLine)) -> bool {
    let Some(start) = memmem::find(line, b"[Pause ") else { return false };
    let inside = line[start + 7..].trim_ascii_end();
    let Some(comma) = memrchr(b',', inside) else { return false };
    let duration = inside[comma + 1..].trim_ascii().strip_suffix(b" ms]");
    let Some(duration_ns) = duration.and_then(|number| nanos(number, MILLISECOND_EXPONENT)) else {
        said(ParsedLine::Unreadable(place, "a pause"));
        return true;
    };
    let (stamp, gc_id) = Stamp::before_text(&line[..start]);
    let name = String::from_utf8_lossy(without_sizes(&inside[..comma.min(MAX_HEAD_BYTES)])).into_owned();
    said(ParsedLine::Paused { place, stamp, gc_id, name, cause: None, duration_ns });
    true
}

/// Position of `[GC` or `[Full GC` of a pause: not of `[GC concurrent-…` or `[GC Worker …`.
fn pause_start(text: &[u8]) -> Option<usize> {
    let of_a_pause = |at: usize| {
        let after = &text[at + 2..];
        match after.first() {
            Some(b' ') => !after.starts_with(b" concurrent-") && !after.starts_with(b" Worker"),
            Some(byte) => byte.is_ascii_digit() || matches!(byte, b'-' | b'[' | b'(' | b':'),
            None => true,
        }
    };
    memmem::find_iter(text, b"GC").find_map(|at| {
        let start = if text[..at].ends_with(b"[Full ") {
            at - 6
        } else if text[..at].ends_with(b"[") {
            at - 1
        } else {
            return None;
        };
        of_a_pause(at).then_some(start)
    })
}

/// Whether only timestamps precede it.
fn at_beginning(line: &[u8], start: usize) -> bool {
    line[..start].iter().all(|byte| byte.is_ascii_digit() || b" .,:+-T#Z".contains(byte))
}

/// `…, 0.0312 secs`
fn duration(inside: &[u8]) -> Option<u64> {
    let number = inside.trim_ascii_end().strip_suffix(b" secs")?;
    let start = number.iter().rposition(|byte| *byte == b' ').map_or(0, |at| at + 1);
    nanos(&number[start..], SECOND_EXPONENT)
}

/// `user=0.22 sys=0.48, real=0.35 secs]`, after `[Times: `.
fn cpu(text: &[u8]) -> Option<Cpu> {
    let (user_ns, rest) = seconds(text, b"user=")?;
    let (sys_ns, rest) = seconds(rest, b"sys=")?;
    let (real_ns, _) = seconds(rest, b"real=")?;
    Some(Cpu { user_ns, sys_ns, real_ns })
}

fn seconds<'a>(text: &'a [u8], key: &[u8]) -> Option<(u64, &'a [u8])> {
    let text = text.trim_ascii_start().strip_prefix(key)?;
    let end = memchr(b' ', text)?;
    let number = text[..end].strip_suffix(b",").unwrap_or(&text[..end]);
    Some((nanos(number, SECOND_EXPONENT)?, &text[end..]))
}
