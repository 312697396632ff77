//! Where the record of a JVM begins and ends within a line, and the shape of what stands before it.

use std::sync::LazyLock;

use memchr::memmem;
use regex::bytes::Regex;

/// Messages of unified logs that are read.
const MESSAGE: &str = r#"(?-u)GC\(\d+\) |Safepoint "|Allocation Stall \(|Using (?:G1|Serial|Parallel|Concurrent Mark Sweep|The Z Garbage|Shenandoah|Epsilon)"#;
/// A time in the decorations of unified logs.
const STAMP: &str = r"(?-u)\[(?:\d+[.,]\d+s|\d+(?:ms|ns)|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[^\]\s]{0,12})\]";
/// A record of JDK 8 and older, with its times.
const LEGACY: &str = r"(?-u)(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.,]\d{3}[+-]\d{4}: ?)?(?:\d+[.,]\d+: ?)?(?:#\d+: ?)?(?:\[(?:GC|Full GC|CMS-)|Total time for which application threads)";
/// The parts of a record that are read; what follows is a suffix.
const RECORD: &str = concat!(
    r"(?-u)^GC\(\d+\) (?:[a-zA-Z]: )?(?:",
    r"User=\S+ Sys=\S+ Real=\d+[.,]\d+s",
    r"|(?:Pause|Concurrent)\b[^\n]*?\d[.,]\d+ms",
    r"|Pause(?: [A-Z][A-Za-z-]*| \((?:[^()]|\([^()]*\))*\))*)",
    r#"|^Safepoint "[^\n]*?[, ]Total: +\d+ ns"#,
    r"|^Allocation Stall \([^)]*\) \d+[.,]\d+ms",
    r"|^Using (?:G1|Serial|Parallel|Concurrent Mark Sweep|The Z Garbage Collector|Shenandoah|Epsilon)",
    r"|^Total time for which [^\n]* seconds",
);

struct Patterns {
    message: Regex,
    stamp: Regex,
    legacy: Regex,
    record: Regex,
}

/// `None` only if an expression does not compile, which a test excludes.
static PATTERNS: LazyLock<Option<Patterns>> = LazyLock::new(|| {
    let [message, stamp, legacy, record] = [MESSAGE, STAMP, LEGACY, RECORD].map(|text| Regex::new(text).ok());
    Some(Patterns { message: message?, stamp: stamp?, legacy: legacy?, record: record? })
});

/// Position of the first record of a line, with its decorations.
pub(super) fn start(line: &[u8]) -> Option<usize> {
    let patterns = PATTERNS.as_ref()?;
    let message = patterns.message.find(line).map(|found| decorated(line, found.start()));
    let stamp = || patterns.stamp.find(line).map(|found| decorated(line, found.start()));
    let legacy = || patterns.legacy.find(line).map(|found| found.start());
    message.or_else(stamp).or_else(legacy)
}

/// Positions of further records within a line.
pub(super) fn further(line: &[u8]) -> Vec<usize> {
    let Some(patterns) = PATTERNS.as_ref() else { return Vec::new() };
    let mut starts: Vec<usize> =
        patterns.message.find_iter(line).map(|found| decorated(line, found.start())).collect();
    starts.dedup();
    starts.into_iter().filter(|at| *at > 0).collect()
}

/// Beginning of the groups `[a][b] ` before a position.
fn decorated(line: &[u8], at: usize) -> usize {
    let before = line[..at].trim_ascii_end();
    if at - before.len() > 1 {
        return at;
    }
    let mut start = before.len();
    while start > 0 && before[start - 1] == b']' {
        match memchr::memrchr(b'[', &before[..start]) {
            Some(open) => start = open,
            None => break,
        }
    }
    // A process id belongs to a name: `java[4711]`.
    let named = start > 0 && (before[start - 1].is_ascii_alphanumeric() || before[start - 1] == b'_');
    if start == before.len() || (named && before[start..].iter().filter(|byte| **byte == b'[').count() == 1) {
        return at;
    }
    start
}

/// Length of a record without its suffix; the line begins with the record.
pub(super) fn length(line: &[u8]) -> Option<usize> {
    let patterns = PATTERNS.as_ref()?;
    let at = patterns.message.find(line)?.start();
    let end = at + patterns.record.find(&line[at..])?.end();
    // A line that is cut within a pause has no suffix to take off.
    let rest = line[end..].trim_ascii_start();
    let is_cut = !line[..end].ends_with(b"s") && rest.first().is_some_and(u8::is_ascii_digit);
    (!is_cut && memmem::find(rest, b"->").is_none()).then_some(end)
}

/// Shape of a prefix: its words may differ from line to line, and its punctuation may not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shape(Vec<u8>);

const WORD: u8 = b'w';
const BLANK: u8 = b' ';

impl Shape {
    pub fn of(prefix: &[u8]) -> Shape {
        let mut shape = Vec::new();
        for byte in prefix {
            let class = class(*byte);
            if !(matches!(class, WORD | BLANK) && shape.last() == Some(&class)) {
                shape.push(class);
            }
        }
        Shape(shape)
    }

    /// Length of the prefix of this shape.
    pub fn length(&self, line: &[u8]) -> Option<usize> {
        let mut at = 0;
        for class_of in &self.0 {
            let before = at;
            while line.get(at).is_some_and(|byte| class(*byte) == *class_of) {
                at += 1;
                if !matches!(*class_of, WORD | BLANK) {
                    break;
                }
            }
            // A line without content may have lost the blanks at its end.
            if at == before && !(*class_of == BLANK && at == line.len()) {
                return None;
            }
        }
        // The blanks of the content are not of the prefix.
        let own = self.0.last() == Some(&BLANK);
        let blanks = line[..at].iter().rev().take_while(|byte| **byte == b' ').count();
        Some(if own && blanks > 1 { at - blanks + self.blanks_at_end().min(blanks) } else { at })
    }

    fn blanks_at_end(&self) -> usize {
        1
    }
}

fn class(byte: u8) -> u8 {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | 0x80.. => WORD,
        b' ' | b'\t' => BLANK,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_begin_behind_prefixes() {
        assert!(PATTERNS.is_some());
        for (prefix, record) in [
            ("", "[4.2s][info][gc] GC(0) Pause Young 1.0ms"),
            ("api-1  | ", "[4.2s][info][gc] GC(0) Pause Young 1.0ms"),
            ("Sep 14 06:02:15 node7 java[4711]: ", "GC(0) Pause Young 1.0ms"),
            ("Sep 14 06:02:15 node7 java[4711]: ", "[4.2s][info][gc,start    ] GC(0) Pause Young"),
            ("[pod/web-0/app] ", "[2026-09-14T06:02:15.192+0000][4.2s][gc] GC(0) Pause Young"),
            ("<14>1 2026-09-14T06:02:15Z h a - - - ", "2026-05-02T10:00:41.003+0000: 184471.310: [GC (Alloc"),
            ("x ", "133452.830: #7: [Full GC"),
        ] {
            assert_eq!(start(format!("{prefix}{record}").as_bytes()), Some(prefix.len()), "{prefix}{record}");
        }
    }

    #[test]
    fn a_shape_is_that_of_other_lines() {
        let shape = Shape::of(b"2026-09-14T06:02:15.192417311Z stdout F ");
        let line = b"2026-10-01T16:02:15.1924Z stderr F : 1567680K->41270K";
        assert_eq!(shape.length(line), Some(35));
        assert_eq!(shape.length(b": 1567680K"), None);
    }
}
