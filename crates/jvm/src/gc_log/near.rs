//! Searches in a line. What is looked for is some bytes away, where a search that is made for long texts
//! takes longer to begin than to find.

const ONES: u64 = u64::from_ne_bytes([1; 8]);

/// Where the byte is first.
#[inline]
pub(super) fn position(text: &[u8], byte: u8) -> Option<usize> {
    let mut rest = text;
    while let Some((eight, after)) = rest.split_first_chunk() {
        if let Some(at) = first(*eight, byte) {
            return Some(text.len() - rest.len() + at);
        }
        rest = after;
    }
    rest.iter().position(|other| *other == byte).map(|at| text.len() - rest.len() + at)
}

/// The same of eight bytes, in one step.
#[inline]
pub(super) fn first(eight: [u8; 8], byte: u8) -> Option<usize> {
    // What is looked for becomes zero, and a zero borrows: the lowest such bit is that of the first.
    let word = u64::from_le_bytes(eight) ^ (ONES * u64::from(byte));
    let found = word.wrapping_sub(ONES) & !word & (ONES << 7);
    (found != 0).then(|| found.trailing_zeros() as usize / 8)
}

/// Where the byte is last.
#[inline]
pub(super) fn last_position(text: &[u8], byte: u8) -> Option<usize> {
    let mut rest = text;
    while let Some((before, eight)) = rest.split_last_chunk() {
        let mut mirrored = *eight;
        mirrored.reverse();
        if let Some(from_end) = first(mirrored, byte) {
            return Some(rest.len() - 1 - from_end);
        }
        rest = before;
    }
    rest.iter().rposition(|other| *other == byte)
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    proptest! {
        #[test]
        fn the_first_and_the_last_one_are_found(text in vec(prop_oneof![1 => Just(b']'), 30 => any::<u8>()], 0..100)) {
            prop_assert_eq!(position(&text, b']'), text.iter().position(|byte| *byte == b']'));
            prop_assert_eq!(last_position(&text, b']'), text.iter().rposition(|byte| *byte == b']'));
        }
    }
}
