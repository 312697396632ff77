//! Byte searches within a line. A match is a few bytes away, at which distance a search for long texts spends
//! more time on its setup than on searching.

use std::array;

use wide::u8x16;

const ONES: u64 = u64::from_ne_bytes([1; 8]);

/// Bit mask of the positions of `byte`, the lowest bit for the first position.
#[inline]
pub fn mask(block: [u8; 16], byte: u8) -> u32 {
    u8x16::new(block).cmp_eq(u8x16::splat(byte)).move_mask() as u32
}

/// Bytes that [`all`] searches at once.
pub const CHUNK: usize = 4096;

/// All positions of `byte` in a chunk. The code has no branch that depends on the distance between two
/// matches, which the CPU cannot predict.
#[inline]
pub fn all<'a>(chunk: &[u8], byte: u8, places: &'a mut [u16; CHUNK + 2]) -> &'a [u16] {
    let (mut count, mut at) = (0, 0);
    let mut rest = chunk;
    while !rest.is_empty() {
        let padded;
        let block = match rest.split_first_chunk::<64>() {
            Some((block, after)) => {
                rest = after;
                block
            }
            None => {
                padded = array::from_fn(|n| rest.get(n).copied().unwrap_or(!byte));
                rest = &[];
                &padded
            }
        };
        let mut found = 0;
        for (quarter, sixteen) in block.chunks_exact(16).enumerate() {
            found |= u64::from(mask(array::from_fn(|n| sixteen[n]), byte)) << (16 * quarter);
        }
        let mut next = || {
            places[count] = at + found.trailing_zeros() as u16;
            count += usize::from(found != 0);
            found &= found.wrapping_sub(1);
            found != 0
        };
        // Blocks rarely have more than two matches: the first two take no branch.
        next();
        while next() {}
        at += 64;
    }
    &places[..count]
}

/// First position of `byte`.
#[inline]
pub fn position(text: &[u8], byte: u8) -> Option<usize> {
    let mut rest = text;
    while let Some((block, after)) = rest.split_first_chunk() {
        let found = mask(*block, byte);
        if found != 0 {
            return Some(text.len() - rest.len() + found.trailing_zeros() as usize);
        }
        rest = after;
    }
    if let Some((eight, after)) = rest.split_first_chunk() {
        if let Some(at) = first(*eight, byte) {
            return Some(text.len() - rest.len() + at);
        }
        rest = after;
    }
    rest.iter().position(|other| *other == byte).map(|at| text.len() - rest.len() + at)
}

/// First position of `byte` in eight bytes, in one step.
#[inline]
pub fn first(eight: [u8; 8], byte: u8) -> Option<usize> {
    // Matching bytes become zero, and subtracting 1 borrows there: the lowest such bit is that of the first
    // match.
    let word = u64::from_le_bytes(eight) ^ (ONES * u64::from(byte));
    let found = word.wrapping_sub(ONES) & !word & (ONES << 7);
    (found != 0).then(|| found.trailing_zeros() as usize / 8)
}

/// Last position of `byte`.
#[inline]
pub fn last_position(text: &[u8], byte: u8) -> Option<usize> {
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
