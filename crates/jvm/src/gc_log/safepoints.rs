//! Safepoints: total duration and time to safepoint.

use super::{
    near,
    numbers::{SECOND_EXPONENT, digits, nanos},
};

/// A safepoint, parsed from one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ParsedSafepoint<'a> {
    /// VM operation; `None` in logs before JDK 13.
    pub operation: Option<&'a [u8]>,
    /// Time to safepoint (TTSP); `None` before JDK 8.
    pub time_to_safepoint_ns: Option<u64>,
    /// Includes the time before and after the operation.
    pub total_ns: u64,
}

/// Line of JDK 8, and with tags `safepoint` of JDK 9 to 12.
pub(super) const STOPPED: &[u8] = b"Total time for which application threads were stopped: ";

/// `Safepoint "G1CollectFull", Time since last: … ns, Reaching safepoint: 1354 ns, … Total: 5709 ns`
pub(super) fn unified(message: &[u8]) -> Option<ParsedSafepoint<'_>> {
    let rest = message.strip_prefix(b"Safepoint \"")?;
    let (operation, rest) = rest.split_at(near::position(rest, b'"')?);
    let (time_to_safepoint_ns, rest) = field(rest, b"Reaching safepoint: ")?;
    let (total_ns, _) = field(rest, b"Total: ")?;
    Some(ParsedSafepoint {
        operation: Some(operation),
        time_to_safepoint_ns: Some(time_to_safepoint_ns),
        total_ns,
    })
}

/// `…, NAME: 1354 ns`, and the rest. Few names begin with the same letter.
#[inline]
fn field<'a, const LENGTH: usize>(text: &'a [u8], name: &[u8; LENGTH]) -> Option<(u64, &'a [u8])> {
    let mut from = 0;
    loop {
        let at = from + near::position(&text[from..], name[0])?;
        if text[..at].ends_with(b", ") && text[at..].starts_with(name) {
            let (value, rest) = digits(&text[at + LENGTH..])?;
            return rest.starts_with(b" ns").then_some((value, rest));
        }
        from = at + 1;
    }
}

/// `… were stopped: 0.0003502 seconds, Stopping threads took: 0.0000503 seconds`; the second half is missing
/// before JDK 8.
pub(super) fn stopped(message: &[u8]) -> Option<ParsedSafepoint<'static>> {
    let (total_ns, rest) = seconds(message.strip_prefix(STOPPED)?)?;
    let time_to_safepoint_ns = match rest.strip_prefix(b", Stopping threads took: ") {
        Some(rest) => Some(seconds(rest)?.0),
        None => None,
    };
    Some(ParsedSafepoint { operation: None, time_to_safepoint_ns, total_ns })
}

fn seconds(text: &[u8]) -> Option<(u64, &[u8])> {
    let end = near::position(text, b' ')?;
    let rest = text[end..].strip_prefix(b" seconds")?;
    Some((nanos(&text[..end], SECOND_EXPONENT)?, rest))
}
