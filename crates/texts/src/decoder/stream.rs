//! The stream of a log: compression, UTF-16, and lines that end with CR only.

use std::io::{self, Chain, Cursor, Read};

use flate2::read::MultiGzDecoder;
use memchr::memchr;

use super::Layer;

/// Bytes at the beginning of a stream that decide how it is read.
pub const HEAD_BYTES: usize = 64 << 10;
/// Largest number of compressions, one in the other.
const MAX_PACKED: usize = 3;
/// Magic bytes of unsupported compression formats, and the programs that decompress them.
const UNSUPPORTED: [(&[u8], &str); 4] = [
    (b"\x28\xb5\x2f\xfd", "zstdcat"),
    (b"\xfd7zXZ", "xzcat"),
    (b"BZh", "bzcat"),
    (b"\x04\x22\x4d\x18", "lz4cat"),
];
const GZIP: &[u8] = b"\x1f\x8b";

/// A stream whose beginning is known.
pub struct Text<'a> {
    input: Box<dyn Read + 'a>,
    /// At most [`HEAD_BYTES`].
    pub head: Vec<u8>,
    pub layers: Vec<Layer>,
}

impl Read for Text<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.input.read(into)
    }
}

/// Decompresses a stream. Other compressions than gzip are an error that names the program to put before.
pub fn open<'a>(input: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let (mut input, mut magic) = beginning(Box::new(input), 6)?;
    for _ in 0..MAX_PACKED {
        if let Some((_, cat)) = UNSUPPORTED.iter().find(|(begins, _)| magic.starts_with(begins)) {
            let advice =
                format!("this compression format is not supported; put before: {cat} FILE | hugewise … -");
            return Err(io::Error::new(io::ErrorKind::InvalidData, advice));
        }
        if !magic.starts_with(GZIP) {
            return Ok(input);
        }
        (input, magic) = match beginning(Box::new(MultiGzDecoder::new(input)), 6) {
            Ok(unpacked) => unpacked,
            // The damage is reported where the stream is read.
            Err(error) => return Ok(Box::new(Failing(Some(error)))),
        };
    }
    Ok(input)
}

/// Fails with its error once, then ends.
struct Failing(Option<io::Error>);

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

/// The first `size` bytes, and the stream with them.
fn beginning<'a>(mut input: Box<dyn Read + 'a>, size: usize) -> io::Result<(Box<dyn Read + 'a>, Vec<u8>)> {
    let mut head = Vec::new();
    let failed = input.by_ref().take(size as u64).read_to_end(&mut head).err();
    if let Some(error) = failed {
        if head.is_empty() {
            return Err(error);
        }
        let rest: Chain<Cursor<Vec<u8>>, Failing> = Cursor::new(head.clone()).chain(Failing(Some(error)));
        return Ok((Box::new(rest), head));
    }
    Ok((Box::new(Cursor::new(head.clone()).chain(input)), head))
}

/// Decodes a stream that is not compressed to lines of UTF-8, or of bytes that resemble it.
pub fn text<'a>(input: impl Read + 'a) -> io::Result<Text<'a>> {
    let (mut input, mut head) = match beginning(Box::new(input), HEAD_BYTES) {
        Ok(begun) => begun,
        Err(error) => {
            return Ok(Text { input: Box::new(Failing(Some(error))), head: Vec::new(), layers: Vec::new() });
        }
    };
    let mut layers = Vec::new();
    // The hole of a log that was truncated while a program wrote it.
    while head.len() > 2 && head.iter().all(|byte| *byte == 0) {
        layers = vec![Layer::Nuls];
        let mut hole = Vec::new();
        input.by_ref().take(head.len() as u64).read_to_end(&mut hole)?;
        (input, head) = beginning(input, HEAD_BYTES)?;
    }
    if let Some(order) = utf16(&head) {
        layers.push(Layer::Utf16);
        (input, head) = beginning(Box::new(Utf16::new(input, order)), HEAD_BYTES)?;
    }
    if memchr(b'\r', &head).is_some() && memchr(b'\n', &head).is_none() {
        layers.push(Layer::CarriageReturns);
        (input, head) = beginning(Box::new(CarriageReturns(input)), HEAD_BYTES)?;
    }
    Ok(Text { input, head, layers })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Little,
    Big,
}

/// Byte order, if the text is UTF-16: by its mark, or as it is text in this order.
fn utf16(head: &[u8]) -> Option<Order> {
    let sample = &head[..head.len().min(4096)];
    let orders = match sample {
        [0xff, 0xfe, ..] => &[Order::Little][..],
        [0xfe, 0xff, ..] => &[Order::Big],
        _ => &[Order::Little, Order::Big],
    };
    orders.iter().copied().find(|order| is_text(sample, *order))
}

/// Whether the bytes are UTF-16 in this order. Bytes of ASCII in pairs are letters of Chinese, too; but a text of those has
/// blanks, digits or line ends of its own, and other letters than such pairs.
fn is_text(sample: &[u8], order: Order) -> bool {
    let mark = usize::from(sample.starts_with(&[0xff, 0xfe]) || sample.starts_with(&[0xfe, 0xff]));
    let pairs: Vec<[u8; 2]> = sample.chunks_exact(2).skip(mark).map(|pair| [pair[0], pair[1]]).collect();
    let unit = |pair: &[u8; 2]| match order {
        Order::Little => u16::from_le_bytes(*pair),
        Order::Big => u16::from_be_bytes(*pair),
    };
    let is_ascii = |unit: u16| matches!(unit, 0x09 | 0x0a | 0x0d | 0x1b | 0x20..=0x7e);
    let is_foreign = |unit: u16| matches!(unit, 0..0x20 | 0x7f..0xa0 | 0xd800..0xf900 | 0xfff0..);
    let is_pair_of_ascii = |pair: &&[u8; 2]| pair.iter().all(|byte| matches!(byte, 0x20..=0x7e));
    let ascii = pairs.iter().filter(|pair| is_ascii(unit(pair))).count();
    let foreign = pairs.iter().filter(|pair| !is_ascii(unit(pair)) && is_foreign(unit(pair))).count();
    let wide = pairs.len() - ascii;
    let has_other_letters = pairs.iter().filter(is_pair_of_ascii).count() * 10 <= wide * 8;
    // Characters beyond the basic plane are two units each, and few.
    let is_clean = foreign * 10 <= pairs.len();
    is_clean
        && ascii >= 4
        && (ascii * 10 >= pairs.len() * 8 || (ascii * 50 >= pairs.len() && has_other_letters))
}

/// UTF-16 as UTF-8; what is not UTF-16 is replaced.
struct Utf16<R> {
    input: R,
    order: Order,
    /// Half of a code unit.
    half: Option<u8>,
    /// First half of a pair.
    high: Option<u16>,
    ready: Cursor<Vec<u8>>,
}

impl<R: Read> Utf16<R> {
    fn new(input: R, order: Order) -> Utf16<R> {
        Utf16 { input, order, half: None, high: None, ready: Cursor::default() }
    }

    fn decode(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut units = Vec::with_capacity(bytes.len() / 2 + 2);
        units.extend(self.high.take());
        for byte in bytes {
            match self.half.take() {
                None => self.half = Some(*byte),
                Some(first) if self.order == Order::Little => units.push(u16::from_le_bytes([first, *byte])),
                Some(first) => units.push(u16::from_be_bytes([first, *byte])),
            }
        }
        self.high = units.last().copied().filter(|last| (0xd800..0xdc00).contains(last));
        if self.high.is_some() {
            units.pop();
        }
        let text: String = char::decode_utf16(units)
            .map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER))
            .filter(|letter| *letter != '\u{feff}')
            .collect();
        text.into_bytes()
    }
}

impl<R: Read> Read for Utf16<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.ready.read(into)?;
            if read > 0 || into.is_empty() {
                return Ok(read);
            }
            let mut buffer = vec![0; 16 << 10];
            let read = self.input.read(&mut buffer)?;
            if read == 0 {
                return Ok(0);
            }
            self.ready = Cursor::new(self.decode(&buffer[..read]));
        }
    }
}

/// Makes CR the end of a line.
struct CarriageReturns<R>(R);

impl<R: Read> Read for CarriageReturns<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(into)?;
        into[..read].iter_mut().filter(|byte| **byte == b'\r').for_each(|byte| *byte = b'\n');
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utf16_is_known_by_its_text_and_nothing_else_is() {
        let texts = [
            "12:00:01 starting\n",
            "2026-11-29 03:12:44 致命错误:  无法映射匿名共享内存: 无法分配内存\r\n",
            "大页内存不足，请检查系统设置。大页内存不足，请检查系统设置。 1\n 2\n",
            "12:00 не хватает огромных страниц\n",
        ];
        for text in texts {
            let units = || text.repeat(9).encode_utf16().collect::<Vec<u16>>();
            let little: Vec<u8> = units().into_iter().flat_map(u16::to_le_bytes).collect();
            let big: Vec<u8> = units().into_iter().flat_map(u16::to_be_bytes).collect();
            assert_eq!(utf16(&little), Some(Order::Little), "{text}");
            assert_eq!(utf16(&big), Some(Order::Big), "{text}");
            assert_eq!(utf16(&[&[0xff, 0xfe], &little[..]].concat()), Some(Order::Little), "{text}");
            assert_eq!(utf16(text.as_bytes()), None, "{text}");
        }
        let environment = b"PATH=/usr/bin:/bin\0HOME=/root\0JAVA_TOOL_OPTIONS=-Xmx1g\0LANG=C\0".repeat(9);
        let truncated = [&[0; 600], &b"12:00:01 starting\n".repeat(20)[..]].concat();
        for bytes in [&environment[..], &truncated, b"", b"a\0", &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3]] {
            assert_eq!(utf16(bytes), None, "{bytes:?}");
        }
    }
}
