//! Parses the numbers of a log from bytes, without a conversion to text.

/// Number of decimal digits that always fit in a `u64`; no log has longer numbers.
const MAX_DIGITS: usize = 19;

/// The number at the beginning of `text`, and the rest.
#[inline]
pub(super) fn digits(text: &[u8]) -> Option<(u64, &[u8])> {
    // Ids and nanoseconds have many digits of varying number: eight digits take one step without a branch.
    if let Some(eight) = text.first_chunk() {
        let (value, count) = up_to_eight(*eight);
        if (1..8).contains(&count) {
            return Some((value, &text[count..]));
        }
    }
    let (mut value, mut rest) = (0u64, text);
    while let [digit @ b'0'..=b'9', after @ ..] = rest {
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
        rest = after;
    }
    (1..=MAX_DIGITS).contains(&(text.len() - rest.len())).then_some((value, rest))
}

/// The number at the beginning of eight bytes, and its count of digits.
#[inline]
fn up_to_eight(text: [u8; 8]) -> (u64, usize) {
    const fn each(byte: u8) -> u64 {
        u64::from_ne_bytes([byte; 8])
    }
    let values = u64::from_le_bytes(text) ^ each(b'0');
    // The highest bit of every byte above 9; exact up to the first such byte.
    let others = (values.wrapping_add(each(0x80 - 10)) | values) & each(0x80);
    let count = others.trailing_zeros() / 8;
    // Shifts zeros before the first digit and drops the bytes behind the last; then adds up neighbours to
    // pairs, pairs to fours, and fours to the number.
    let digits = values.checked_shl(64 - 8 * count).unwrap_or(0);
    let pairs = (digits.wrapping_mul(10) + (digits >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(100) + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    let number = (fours.wrapping_mul(10_000) + (fours >> 32)) & 0xffff_ffff;
    (number, count as usize)
}

/// The number, if `text` consists of digits only.
pub(super) fn whole(text: &[u8]) -> Option<u64> {
    digits(text).filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value)
}

/// Nanoseconds of a decimal number in units of 10^`power` ns, with a decimal point or, in some locales, a
/// comma.
pub(super) fn nanos(text: &[u8], power: usize) -> Option<u64> {
    leading_nanos(text, power).filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value)
}

/// Like [`nanos`], for the number at the beginning of `text`; also returns the rest.
#[inline]
pub(super) fn leading_nanos(text: &[u8], power: usize) -> Option<(u64, &[u8])> {
    let (mut value, mut count, mut whole) = (0u64, 0, None);
    for byte in text {
        match byte {
            b'0'..=b'9' => value = value.wrapping_mul(10).wrapping_add(u64::from(byte - b'0')),
            b'.' | b',' if whole.is_none() => whole = Some(count),
            _ => break,
        }
        count += 1;
    }
    let (fraction, digits) = match whole {
        Some(whole) => (count - whole - 1, count - 1),
        None => (0, count),
    };
    let readable =
        whole != Some(0) && (whole.is_none() || fraction > 0) && (1..=MAX_DIGITS).contains(&digits);
    let value = match power.checked_sub(fraction) {
        Some(missing) => value.checked_mul(POWERS[missing])?,
        None => value / POWERS[(fraction - power).min(MAX_DIGITS)],
    };
    readable.then(|| (value, &text[count..]))
}

/// Nanoseconds of seconds such as `0.01` at the beginning of `text`, and the rest. Almost all CPU times have
/// this form.
#[inline]
pub(super) fn hundredths(text: &[u8]) -> Option<(u64, &[u8])> {
    let digit = |byte: &u8| u64::from(byte.wrapping_sub(b'0'));
    let [whole, b'.' | b',', tenths, hundredths, rest @ ..] = text else { return None };
    let [whole, tenths, hundredths] = [digit(whole), digit(tenths), digit(hundredths)];
    let all = whole < 10 && tenths < 10 && hundredths < 10 && !rest.first().is_some_and(u8::is_ascii_digit);
    all.then(|| ((100 * whole + 10 * tenths + hundredths) * (NS_PER_SECOND / 100), rest))
}

/// Powers of ten that fit in a `u64`.
const POWERS: [u64; 20] = {
    let mut powers = [1; 20];
    let mut n = 1;
    while n < powers.len() {
        powers[n] = 10 * powers[n - 1];
        n += 1;
    }
    powers
};

/// Power of ten of a second in nanoseconds: 10^9 ns.
pub(super) const SECOND_EXPONENT: usize = 9;
/// Power of ten of a millisecond in nanoseconds: 10^6 ns.
pub(super) const MILLISECOND_EXPONENT: usize = 6;
pub(super) const NS_PER_SECOND: u64 = POWERS[SECOND_EXPONENT];
pub(super) const NS_PER_MILLISECOND: u64 = POWERS[MILLISECOND_EXPONENT];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn digits_are_those_of_the_number(text in "[0-9]{0,22}([^0-9][ -~]{0,10})?") {
            let count = text.bytes().take_while(u8::is_ascii_digit).count();
            let number = text[..count].parse().ok().filter(|_| count <= MAX_DIGITS);
            prop_assert_eq!(digits(text.as_bytes()), number.map(|number: u64| (number, &text.as_bytes()[count..])));
        }

        #[test]
        fn decimals_are_whole_and_fraction(whole in "[0-9]{0,8}", fraction in "([.,][0-9]{0,11})?", rest in "[s ]?.{0,9}") {
            let text = format!("{whole}{fraction}{rest}");
            let part: u64 = format!("{:0<9.9}", fraction.get(1..).unwrap_or("")).parse().unwrap_or(0);
            let number = whole.parse().ok().filter(|_| fraction.len() != 1).map(|whole: u64| whole * NS_PER_SECOND + part);
            prop_assume!(!rest.starts_with(|next: char| next.is_ascii_digit() || ".,".contains(next)));
            prop_assert_eq!(leading_nanos(text.as_bytes(), SECOND_EXPONENT), number.map(|number| (number, rest.as_bytes())));
        }
    }

    #[test]
    fn decimals_are_exact_to_the_nanosecond() {
        assert_eq!(nanos(b"1.551", MILLISECOND_EXPONENT), Some(1_551_000));
        assert_eq!(nanos(b"0,3541657", SECOND_EXPONENT), Some(354_165_700));
        assert_eq!(nanos(b"12", SECOND_EXPONENT), Some(12 * NS_PER_SECOND));
        assert_eq!(nanos(b"0.1234567890123", SECOND_EXPONENT), Some(123_456_789));
        for text in ["", ".5", "1.", "1.5x", "1.5.5", "-1", "99999999999999999999"] {
            assert_eq!(nanos(text.as_bytes(), SECOND_EXPONENT), None, "{text}");
        }
        for (text, is_short) in
            [("0.01s Sys=", true), ("9,99", true), ("10.01s", false), ("0.015s", false), ("0.0xs", false)]
        {
            let whole = leading_nanos(text.as_bytes(), SECOND_EXPONENT).filter(|_| is_short);
            assert_eq!(hundredths(text.as_bytes()), whole, "{text}");
        }
    }
}
