//! Splits a stream of any size into lines, in constant memory.

use std::io::{self, Read};

use crate::near;

/// Bytes per read; the buffer fits in the CPU cache.
const BUFFER: usize = 256 << 10;
/// Longer lines are cut at this many bytes.
const MAX_LINE_BYTES: usize = 64 << 10;

/// Calls `line` for every line, without its end and cut at `MAX_LINE_BYTES`; the flag is true if it was cut.
pub fn each(mut input: impl Read, mut line: impl FnMut(&[u8], bool)) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    let mut filled = 0;
    let mut places = [0; near::CHUNK + 2];
    // Inside the rest of a line whose beginning was passed to `line` already.
    let mut passing = false;
    loop {
        let read = match input.read(&mut buffer[filled..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // Lines before the error count.
            Err(error) => {
                last(&buffer[..filled], passing, &mut line);
                return Err(error);
            }
            Ok(read) => read,
        };
        if read == 0 {
            last(&buffer[..filled], passing, &mut line);
            return Ok(());
        }
        filled += read;
        let mut start = 0;
        for (n, chunk) in buffer[filled - read..filled].chunks(near::CHUNK).enumerate() {
            let offset = filled - read + n * near::CHUNK;
            for place in near::all(chunk, b'\n', &mut places) {
                let end = offset + usize::from(*place);
                if !passing {
                    give(&buffer[start..end], &mut line);
                }
                passing = false;
                start = end + 1;
            }
        }
        if !passing {
            start += nuls(&buffer[start..filled]);
        }
        if passing {
            start = filled;
        } else if filled - start > MAX_LINE_BYTES {
            line(&buffer[start..start + MAX_LINE_BYTES], true);
            passing = true;
            start = filled;
        }
        buffer.copy_within(start..filled, 0);
        filled -= start;
    }
}

fn last(rest: &[u8], passing: bool, line: &mut impl FnMut(&[u8], bool)) {
    if rest.len() > nuls(rest) && !passing {
        give(rest, line);
    }
}

/// Number of NUL bytes at the beginning of a line: a log that was truncated while a program wrote it has a hole there.
#[inline]
fn nuls(text: &[u8]) -> usize {
    match text.first() {
        Some(0) => text.iter().position(|byte| *byte != 0).unwrap_or(text.len()),
        _ => 0,
    }
}

fn give(text: &[u8], line: &mut impl FnMut(&[u8], bool)) {
    let text = &text[nuls(text)..];
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    line(&text[..text.len().min(MAX_LINE_BYTES)], text.len() > MAX_LINE_BYTES);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns its content in pieces of a given size.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let size = self.1.min(self.0.len()).min(into.len());
            let (now, later) = self.0.split_at(size);
            into[..size].copy_from_slice(now);
            self.0 = later;
            Ok(size)
        }
    }

    #[test]
    fn lines_are_whole_however_they_arrive() -> io::Result<()> {
        let long = vec![b'y'; MAX_LINE_BYTES + 5];
        let text = [b"one\r\n\ntwo\n".as_slice(), &long, b"\nlast"].concat();
        for piece in [1, 3, 1000, usize::MAX] {
            let mut seen: Vec<(Vec<u8>, bool)> = Vec::new();
            each(Pieces(&text, piece), |line, cut| seen.push((line.to_vec(), cut)))?;
            let whole = |text: &[u8]| (text.to_vec(), false);
            let expected = [
                whole(b"one"),
                whole(b""),
                whole(b"two"),
                (long[..MAX_LINE_BYTES].to_vec(), true),
                whole(b"last"),
            ];
            assert!(seen == expected, "in pieces of {piece}");
        }
        Ok(())
    }
}
