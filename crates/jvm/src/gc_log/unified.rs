//! Lines of JDK 9 and later (`-Xlog`), with any decorations or none.

use std::ops::Range;

use hugewise_linux::units::Bytes;
use memchr::{memmem, memrchr};

use crate::collector::Collector;

use super::{
    Cpu, near,
    numbers::{MILLISECOND_EXPONENT, SECOND_EXPONENT, digits, hundredths, leading_nanos, nanos},
    safepoints::{self, ParsedSafepoint},
};

/// A parsed message.
#[derive(Debug, PartialEq)]
pub(super) enum ParsedLine<'a> {
    /// Start of a pause.
    Begins { gc_id: u64, name: &'a [u8] },
    /// End of a pause.
    Paused { gc_id: u64, name: &'a [u8], duration_ns: u64 },
    /// CPU time of a pause or of a concurrent phase.
    Cpu { gc_id: u64, cpu: Cpu },
    /// End of a concurrent phase; its CPU time may follow.
    Concurrent { gc_id: u64 },
    /// End of a safepoint.
    Stopped(ParsedSafepoint<'a>),
    /// Operation of a safepoint of JDK 9 to 12 that begins.
    Stopping(&'a [u8]),
    /// A wait of a thread for memory.
    Stalled { kind: &'static str, thread: &'a [u8], duration_ns: u64 },
    /// First message of a JVM: its collector.
    Starts,
    /// Address range of the heap.
    Heap(Range<u64>),
    /// A message that resembles a variant above and does not parse.
    Unreadable(&'static str),
    /// Anything else.
    Other,
}

/// Splits a line into decorations and message; a line without decorations is all message.
#[inline]
pub(super) fn split(line: &[u8]) -> (&[u8], &[u8]) {
    let at = if line.first() == Some(&b'[') { end_of_groups(line) } else { 0 };
    let (decorations, message) = line.split_at(at);
    (decorations, message.strip_prefix(b" ").unwrap_or(message))
}

/// Length of the groups `[a][b]` at the beginning of the text: up to the first `]` that no `[` follows, or
/// else up to the last one.
#[inline]
fn end_of_groups(text: &[u8]) -> usize {
    let mut at = 0;
    while let (Some(block), Some(next)) = (text[at..].first_chunk(), text[at + 1..].first_chunk()) {
        let found = near::mask(*block, b']') & !near::mask(*next, b'[');
        if found != 0 {
            return at + found.trailing_zeros() as usize + 1;
        }
        at += block.len();
    }
    while let Some(closing) = near::position(&text[at..], b']') {
        at += closing + 1;
        if text.get(at) != Some(&b'[') {
            return at;
        }
    }
    memrchr(b']', text).map_or(0, |last| last + 1)
}

/// Like [`split`], for lines with other text before the decorations or before the message: a container
/// runtime's prefix, or the output of a program that did not end its line.
pub(super) fn split_behind(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memmem::find(line, b"GC(").or_else(|| memmem::find(line, b"Safepoint \""))?;
    let (before, message) = line.split_at(at);
    let decorated = before.trim_ascii_end();
    let mut start = decorated.len();
    while start > 0 && decorated[start - 1] == b']' {
        match memrchr(b'[', &decorated[..start]) {
            Some(open) => start = open,
            None => break,
        }
    }
    Some((&decorated[start..], message))
}

/// Whether a message has a GC id and is certainly not a pause, CPU time or concurrent phase, like most
/// messages.
#[inline]
pub(super) fn is_detail(message: &[u8]) -> bool {
    let Some(id) = message.strip_prefix(b"GC(") else { return false };
    let Some(end) = id.first_chunk().and_then(|id| near::first(*id, b')')) else { return false };
    match &id[end + 1..] {
        [b' ', _, b':', ..] => false,
        [b' ', rest @ ..] => {
            !(rest.starts_with(b"Pause ")
                || rest.starts_with(b"User=")
                || rest.starts_with(b"Concurrent")
                || rest.starts_with(b"Allocation Stall (")
                || rest.starts_with(b"Relocation Stall (")
                || rest.trim_ascii_start().first().is_some_and(u8::is_ascii_digit))
        }
        _ => false,
    }
}

pub(super) fn read(message: &[u8]) -> ParsedLine<'_> {
    match message.first() {
        Some(b'G') => collection(message).unwrap_or(ParsedLine::Other),
        Some(b'S') if message.starts_with(b"Safepoint \"") => {
            safepoints::unified(message).map_or(ParsedLine::Unreadable("a safepoint"), ParsedLine::Stopped)
        }
        Some(b'T') if message.starts_with(safepoints::STOPPED) => {
            safepoints::stopped(message).map_or(ParsedLine::Unreadable("a safepoint"), ParsedLine::Stopped)
        }
        Some(b'E') => message
            .strip_prefix(b"Entering safepoint region: ")
            .map_or(ParsedLine::Other, ParsedLine::Stopping),
        Some(b'U') if message.starts_with(b"Using ") && Collector::is_named(&message[6..]) => {
            ParsedLine::Starts
        }
        Some(b'A' | b'R') => stall(message),
        Some(b' ' | b'0'..=b'9') => pacing(message),
        Some(b'H') => heap(message).map_or(ParsedLine::Other, ParsedLine::Heap),
        _ => ParsedLine::Other,
    }
}

/// `Allocation Stall (main) 315.305ms` of ZGC.
fn stall(message: &[u8]) -> ParsedLine<'_> {
    for (kind, begins) in
        [("Allocation Stall", &b"Allocation Stall ("[..]), ("Relocation Stall", b"Relocation Stall (")]
    {
        let Some(rest) = message.strip_prefix(begins) else { continue };
        let parsed = near::last_position(rest, b')').and_then(|end| {
            let duration = rest[end + 1..].trim_ascii().strip_suffix(b"ms")?;
            Some((&rest[..end], nanos(duration, MILLISECOND_EXPONENT)?))
        });
        return match parsed {
            Some((thread, duration_ns)) => ParsedLine::Stalled { kind, thread, duration_ns },
            None => ParsedLine::Unreadable("a stall"),
        };
    }
    ParsedLine::Other
}

/// `   12 of  1234 ms (  1.0%): main` of Shenandoah's pacing: the time that a thread waited in a cycle.
fn pacing(message: &[u8]) -> ParsedLine<'_> {
    let parsed = digits(message.trim_ascii_start()).and_then(|(ms, rest)| {
        let (_, rest) = digits(rest.strip_prefix(b" of ")?.trim_ascii_start())?;
        let rest = rest.strip_prefix(b" ms (")?;
        let thread = &rest[memmem::find(rest, b"%): ")? + 4..];
        (ms > 0 && !thread.starts_with(b"<")).then_some((thread, ms.checked_mul(1_000_000)?))
    });
    match parsed {
        Some((thread, duration_ns)) => ParsedLine::Stalled { kind: "Allocation Pacing", thread, duration_ns },
        None => ParsedLine::Other,
    }
}

/// `GC(3) Pause Young …`, and of generational ZGC `GC(3) y: Pause Mark Start …`.
fn collection(message: &[u8]) -> Option<ParsedLine<'_>> {
    let (gc_id, rest) = digits(message.strip_prefix(b"GC(")?)?;
    let rest = rest.strip_prefix(b") ")?;
    let rest = match rest {
        [_, b':', b' ', rest @ ..] => rest,
        rest => rest,
    };
    Some(match rest.first()? {
        b'P' => match rest.strip_prefix(b"Pause ") {
            Some(name) => pause(gc_id, name),
            None => ParsedLine::Other,
        },
        b'U' if rest.starts_with(b"User=") => match cpu(rest) {
            Some(cpu) => ParsedLine::Cpu { gc_id, cpu },
            None => ParsedLine::Unreadable("the CPU time of a collection"),
        },
        b'A' | b'R' | b' ' | b'0'..=b'9' => match (stall(rest), pacing(rest)) {
            (ParsedLine::Other, paced) => paced,
            (stalled, _) => stalled,
        },
        b'C' if rest.starts_with(b"Concurrent") && rest.ends_with(b"ms") => ParsedLine::Concurrent { gc_id },
        _ => ParsedLine::Other,
    })
}

/// `Young (Normal) (G1 Evacuation Pause) 25M->3M(1024M) 6.123ms`; the start of a pause has no duration.
fn pause(gc_id: u64, text: &[u8]) -> ParsedLine<'_> {
    let text = text.trim_ascii_end();
    let (name, last) = match near::last_position(text, b' ') {
        Some(space) => (&text[..space], &text[space + 1..]),
        None => (&b""[..], text),
    };
    if let Some(duration_ns) = last.strip_suffix(b"ms").and_then(|number| nanos(number, MILLISECOND_EXPONENT))
    {
        return ParsedLine::Paused { gc_id, name: without_sizes(name), duration_ns };
    }
    // The name of a starting pause ends neither with a number nor with sizes.
    if last.first().is_some_and(u8::is_ascii_digit) || has_arrow(text) {
        return ParsedLine::Unreadable("a pause");
    }
    ParsedLine::Begins { gc_id, name: text }
}

/// Removes `25M->3M(1024M)` from the end.
pub(super) fn without_sizes(name: &[u8]) -> &[u8] {
    match near::last_position(name, b' ') {
        Some(space) if has_arrow(&name[space..]) => &name[..space],
        _ => name,
    }
}

/// Whether the text contains `->`.
fn has_arrow(text: &[u8]) -> bool {
    let mut rest = text;
    while let Some(at) = near::position(rest, b'>') {
        if rest[..at].ends_with(b"-") {
            return true;
        }
        rest = &rest[at + 1..];
    }
    false
}

/// `User=0.01s Sys=0.00s Real=0.01s`
fn cpu(text: &[u8]) -> Option<Cpu> {
    let (user_ns, rest) = seconds(text.strip_prefix(b"User=")?)?;
    let (sys_ns, rest) = seconds(rest.strip_prefix(b"s Sys=")?)?;
    let (real_ns, rest) = seconds(rest.strip_prefix(b"s Real=")?)?;
    rest.starts_with(b"s").then_some(Cpu { user_ns, sys_ns, real_ns })
}

#[inline]
fn seconds(text: &[u8]) -> Option<(u64, &[u8])> {
    hundredths(text).or_else(|| leading_nanos(text, SECOND_EXPONENT))
}

/// `Heap:  min=1G max=1G base=0x00000000c0000000 size=1G page_size=2M`, or
/// `Heap address: 0x00000000e0000000, size: 512 MB, Compressed Oops mode: 32-bit`.
fn heap(message: &[u8]) -> Option<Range<u64>> {
    let message = std::str::from_utf8(message).ok()?;
    let (start, size) = if let Some(rest) = message.strip_prefix("Heap: ") {
        let field = |key: &str| rest.split_whitespace().find_map(|word| word.strip_prefix(key));
        (field("base=")?, field("size=")?.to_owned())
    } else {
        let (start, rest) = message.strip_prefix("Heap address: ")?.split_once(", size: ")?;
        (start, rest.split(", ").next()?.replace(' ', ""))
    };
    let start = u64::from_str_radix(start.strip_prefix("0x")?, 16).ok()?;
    let size: Bytes = size.parse().ok()?;
    Some(start..start.checked_add(size.0)?)
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    proptest! {
        #[test]
        fn decorations_end_where_no_group_follows(text in vec(prop_oneof![Just(b'['), Just(b']'), Just(b' ')], 0..60)) {
            let mut end = 0;
            while text.get(end) == Some(&b'[') {
                match text[end..].iter().position(|byte| *byte == b']') {
                    Some(closing) => end += closing + 1,
                    None => break,
                }
            }
            prop_assert_eq!(split(&text).0, &text[..end]);
        }

        #[test]
        fn what_is_a_detail_says_nothing(
            message in "GC\\([0-9x]{0,9}\\)?[ )]?([yY]: ?)?(Pause Young|PSYoungGen|User=0.1s Sys=0.1s Real=0.1s|Us|Concurrent Mark|C)?( 1ms)?",
        ) {
            if is_detail(message.as_bytes()) {
                prop_assert_eq!(read(message.as_bytes()), ParsedLine::Other);
            }
        }
    }
}
