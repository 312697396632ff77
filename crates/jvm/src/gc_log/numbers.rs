//! Numbers as a log writes them, read from bytes without a detour.

/// The digits at the beginning, and what follows them.
pub(super) fn digits(text: &[u8]) -> Option<(u64, &[u8])> {
    let (mut value, mut rest) = (0u64, text);
    while let [digit @ b'0'..=b'9', after @ ..] = rest {
        value = value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
        rest = after;
    }
    (rest.len() < text.len()).then_some((value, rest))
}

/// The whole text as a number.
pub(super) fn whole(text: &[u8]) -> Option<u64> {
    digits(text).filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value)
}

/// A decimal number of a unit that has `scale` nanoseconds, a power of ten; with a point or, in some
/// languages, a comma.
pub(super) fn nanos(text: &[u8], scale: u64) -> Option<u64> {
    let (whole, rest) = digits(text)?;
    let mut value = whole.checked_mul(scale)?;
    let Some((separator, fraction)) = rest.split_first() else { return Some(value) };
    if !matches!(separator, b'.' | b',') || fraction.is_empty() {
        return None;
    }
    let mut unit = scale;
    for digit in fraction {
        if !digit.is_ascii_digit() {
            return None;
        }
        unit /= 10;
        value = value.checked_add(u64::from(digit - b'0') * unit)?;
    }
    Some(value)
}

/// The nanoseconds of a second.
pub(super) const SECOND: u64 = 1_000_000_000;
/// The nanoseconds of a millisecond.
pub(super) const MILLISECOND: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact_to_the_nanosecond() {
        assert_eq!(nanos(b"1.551", MILLISECOND), Some(1_551_000));
        assert_eq!(nanos(b"0,3541657", SECOND), Some(354_165_700));
        assert_eq!(nanos(b"12", SECOND), Some(12 * SECOND));
        assert_eq!(nanos(b"0.1234567890123", SECOND), Some(123_456_789));
        for text in ["", ".5", "1.", "1.5x", "1.5.5", "-1", "99999999999999999999"] {
            assert_eq!(nanos(text.as_bytes(), SECOND), None, "{text}");
        }
    }
}
