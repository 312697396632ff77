//! Timestamps of log lines, by every clock that a line has.

use std::iter;

use super::{
    near,
    numbers::{NS_PER_MILLISECOND, NS_PER_SECOND, SECOND_EXPONENT, digits, nanos, whole},
};

/// Time of a line, by each clock that the log has. Most logs have one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Since the start of the JVM; `None` if the log lacks this clock.
    pub uptime_ns: Option<u64>,
    /// CLOCK_MONOTONIC, the clock of the kernel's events; `None` if the log lacks it.
    pub monotonic_ns: Option<u64>,
    /// Since 1970, UTC; `None` if the log lacks this clock.
    pub unix_ns: Option<u64>,
}

impl Stamp {
    /// The first available clock of: uptime, CLOCK_MONOTONIC, wall clock.
    pub fn best_ns(&self) -> Option<u64> {
        self.uptime_ns.or(self.monotonic_ns).or(self.unix_ns)
    }

    /// The time `duration_ns` earlier.
    pub(super) fn before(self, duration_ns: u64) -> Stamp {
        let earlier = |clock: Option<u64>| clock.map(|ns| ns.saturating_sub(duration_ns));
        Stamp {
            uptime_ns: earlier(self.uptime_ns),
            monotonic_ns: earlier(self.monotonic_ns),
            unix_ns: earlier(self.unix_ns),
        }
    }

    /// Parses the decorations of a unified log: `[0.033s][1795248120342ms][info ][gc,cpu  ]`.
    ///
    /// Only the order and magnitude of the numbers identify their clocks: `timenanos` precedes `uptimenanos`.
    /// `lone_is_uptime` decides to which clock a single number belongs.
    pub(super) fn of_decorations(decorations: &[u8], lone_is_uptime: bool) -> Stamp {
        let mut stamp = Stamp::default();
        if let Some(ns) = uptime_alone(decorations) {
            stamp.uptime_ns = Some(ns);
            return stamp;
        }
        let mut seconds = None;
        let mut nanoseconds = [None; 2];
        // The JVM writes its clocks first. They begin with a digit and are padded with spaces.
        let is_clock = |group: &&[u8]| group.first().is_some_and(u8::is_ascii_digit);
        let clocks = insides(decorations).skip_while(|group| !is_clock(group)).take_while(is_clock);
        for group in clocks.map(<[u8]>::trim_ascii_end) {
            if let Some(number) = group.strip_suffix(b"ns").and_then(whole) {
                let free = usize::from(nanoseconds[0].is_some());
                nanoseconds[free] = Some(number);
            } else if let Some(number) = group.strip_suffix(b"ms").and_then(whole) {
                // Milliseconds: uptime up to about three years, Unix time from 1973 on.
                let at = number.checked_mul(NS_PER_MILLISECOND);
                if number >= 100_000_000_000 { stamp.unix_ns = at } else { stamp.uptime_ns = at }
            } else if let Some(number) =
                group.strip_suffix(b"s").and_then(|text| nanos(text, SECOND_EXPONENT))
            {
                seconds = Some(number);
            } else if stamp.unix_ns.is_none() {
                stamp.unix_ns = date(group);
            }
        }
        stamp.uptime_ns = stamp.uptime_ns.or(seconds);
        match nanoseconds {
            [first, Some(second)] => (stamp.monotonic_ns, stamp.uptime_ns) = (first, Some(second)),
            [Some(only), None] => {
                let near = |uptime: u64| only.abs_diff(uptime) < NS_PER_SECOND;
                if stamp.uptime_ns.map_or(lone_is_uptime, near) {
                    stamp.uptime_ns = Some(only);
                } else {
                    stamp.monotonic_ns = Some(only);
                }
            }
            _ => {}
        }
        stamp
    }

    /// Parses the timestamp and GC id before a line of JDK 8 or older:
    /// `2012-05-23T08:32:10.809+0200: 133452.830: #7: `, or any part of it.
    pub(super) fn before_text(prefix: &[u8]) -> (Stamp, Option<u64>) {
        let (mut stamp, mut gc_id) = (Stamp::default(), None);
        let mut rest = prefix.trim_ascii_end();
        for _ in 0..3 {
            let Some(before) = rest.strip_suffix(b":") else { break };
            let start = before.iter().rposition(|byte| *byte == b' ').map_or(0, |space| space + 1);
            let word = &before[start..];
            if let Some(id) = word.strip_prefix(b"#") {
                gc_id = whole(id);
            } else if let Some(at) = date(&word[word.len().saturating_sub(DATE)..]) {
                stamp.unix_ns = Some(at);
            } else {
                // The text of another thread, or its timestamp, may directly precede the number.
                let number = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b',');
                let from = word.iter().rposition(|byte| !number(byte)).map_or(0, |at| at + 1);
                stamp.uptime_ns = nanos(&word[from..], SECOND_EXPONENT);
                if from > 0 {
                    break;
                }
            }
            rest = before[..start].trim_ascii_end();
        }
        (stamp, gc_id)
    }
}

/// `[0.033s][info ]`, the JVM's default decorations: uptime only, to milliseconds.
#[inline]
fn uptime_alone(decorations: &[u8]) -> Option<u64> {
    let (seconds, rest) = digits(decorations.strip_prefix(b"[")?)?;
    let [b'.' | b',', a @ b'0'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', b's', b']', rest @ ..] = rest else {
        return None;
    };
    if matches!(rest, [b'[', b'0'..=b'9', ..]) {
        return None;
    }
    let ms = [a, b, c].into_iter().fold(0, |number, digit| 10 * number + u64::from(digit - b'0'));
    seconds.checked_mul(NS_PER_SECOND)?.checked_add(ms * NS_PER_MILLISECOND)
}

/// Contents of the groups of `[a][b ]`.
fn insides(decorations: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = decorations;
    iter::from_fn(move || {
        let inside = rest.strip_prefix(b"[")?;
        let end = near::position(inside, b']')?;
        rest = &inside[end + 1..];
        Some(&inside[..end])
    })
}

const DATE: usize = "2026-11-21T08:02:00.342+0000".len();

/// Nanoseconds since 1970 of `2026-11-21T08:02:00.342+0000`.
fn date(text: &[u8]) -> Option<u64> {
    if text.len() != DATE || text[4] != b'-' || text[7] != b'-' || text[10] != b'T' {
        return None;
    }
    let number = |from: usize, to: usize| whole(&text[from..to]);
    let (hour, minute) = (number(11, 13)?, number(14, 16)?);
    let second_ns = nanos(&text[17..23], SECOND_EXPONENT)?;
    let (zone_hours, rest) = digits(&text[24..26])?;
    let zone_ns = (zone_hours * 60 + number(26, 28)?) * 60 * NS_PER_SECOND;
    if !rest.is_empty() {
        return None;
    }
    let days = days_since_1970(number(0, 4)?, number(5, 7)?, number(8, 10)?)?;
    let local =
        (((days * 24 + hour) * 60) + minute).checked_mul(60 * NS_PER_SECOND)?.checked_add(second_ns)?;
    match text[23] {
        b'+' => local.checked_sub(zone_ns),
        b'-' => local.checked_add(zone_ns),
        _ => None,
    }
}

/// In the Gregorian calendar. Years are counted from March, so that the leap day is the last day.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    days.checked_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: u64 = 1_795_248_120_342 * NS_PER_MILLISECOND;

    #[test]
    fn every_clock_of_a_decorated_line_is_distinguished_from_the_others() {
        let all =
            b"[2026-11-21T08:02:00.342+0000][2026-11-21T08:02:00.342+0000][0.002s][1795248120342ms][2ms]\
                    [23357087740947ns][2350714ns][vm][24664][24665][info][gc,init]";
        let stamp = Stamp::of_decorations(all, false);
        let expected = Stamp {
            uptime_ns: Some(2_350_714),
            monotonic_ns: Some(23_357_087_740_947),
            unix_ns: Some(MOMENT),
        };
        assert_eq!(stamp, expected);
        let uptime = |ns| Stamp { uptime_ns: Some(ns), ..Stamp::default() };
        let unix = |ns| Stamp { unix_ns: Some(ns), ..Stamp::default() };
        for (decorations, expected) in [
            ("[0.169s][info ]", uptime(169 * NS_PER_MILLISECOND)),
            ("[0,169s]", uptime(169 * NS_PER_MILLISECOND)),
            ("[132ms]", uptime(132 * NS_PER_MILLISECOND)),
            ("[1795248120342ms]", unix(MOMENT)),
            ("[2026-11-21T10:02:00.342+0200]", unix(MOMENT)),
            ("[2026-11-21T02:32:00.342-0530]", unix(MOMENT)),
            ("[0.146s][146316472ns]", uptime(146_316_472)),
            ("[146316472ns]", Stamp { monotonic_ns: Some(146_316_472), ..Stamp::default() }),
            ("[web7][4711][gc,cpu  ]", Stamp::default()),
        ] {
            assert_eq!(Stamp::of_decorations(decorations.as_bytes(), false), expected, "{decorations}");
        }
        assert_eq!(Stamp::of_decorations(b"[146316472ns]", true), uptime(146_316_472));
    }

    #[test]
    fn stamps_of_jdk_8_are_read_from_their_end() {
        let both = Stamp {
            uptime_ns: Some(133_452_830 * NS_PER_MILLISECOND),
            unix_ns: Some(1_337_754_730_809 * NS_PER_MILLISECOND),
            ..Stamp::default()
        };
        let uptime = Stamp { unix_ns: None, ..both };
        for (prefix, expected, id) in [
            ("2012-05-23T08:32:10.809+0200: 133452.830: ", both, None),
            ("2012-05-23T08:32:10.809+0200: 133452,830: #7: ", both, Some(7)),
            ("133452.830: ", uptime, None),
            ("an application says133452.830: ", uptime, None),
            ("2012-05-23T08:32:10.809+0200: ", Stamp { uptime_ns: None, ..both }, None),
            ("#12: ", Stamp::default(), Some(12)),
            ("", Stamp::default(), None),
            ("   ", Stamp::default(), None),
            ("INFO: ", Stamp::default(), None),
        ] {
            assert_eq!(Stamp::before_text(prefix.as_bytes()), (expected, id), "{prefix}");
        }
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        for (date, days) in
            [((1970, 1, 1), 0), ((2000, 2, 29), 11_016), ((2000, 3, 1), 11_017), ((2026, 11, 21), 20_778)]
        {
            assert_eq!(days_since_1970(date.0, date.1, date.2), Some(days), "{date:?}");
        }
        assert_eq!(days_since_1970(1969, 12, 31), None);
        assert_eq!(days_since_1970(2000, 13, 1), None);
    }
}
