//! Decodes logs: takes off what runtimes, shippers, terminals and editors put around the lines of a log.
//!
//! [`text`] handles the stream: compression and encodings. [`Undresser`] handles each line: JSON, logfmt, CSV,
//! prefixes, suffixes, escape sequences, lines that were cut or joined. A log without any of these passes unchanged.

mod layers;
mod records;
mod stream;
mod undresser;

use std::{
    collections::BTreeSet,
    io::{self, Read},
};

use crate::lines;

pub use stream::{HEAD_BYTES, Text, open, text};
pub use undresser::Undresser;

/// Calls `line` for every line of a stream that is not compressed: as it is, the plain lines in it, and whether it was
/// cut. Returns what was taken off, and the error that ended the stream before its end.
pub fn each_line(
    input: impl Read,
    mut line: impl FnMut(&[u8], &[Vec<u8>], bool),
) -> io::Result<(BTreeSet<Layer>, Option<io::Error>)> {
    let text = text(input)?;
    let mut undresser = Undresser::default();
    undresser.begin(&text.head);
    undresser.note(&text.layers);
    let mut plain: Vec<Vec<u8>> = Vec::new();
    let ended = lines::each(text, |raw, cut| {
        plain.clear();
        undresser.line(raw, &mut |inside: &[u8]| plain.push(inside.to_vec()));
        line(raw, &plain, cut);
    });
    plain.clear();
    undresser.finish(&mut |inside: &[u8]| plain.push(inside.to_vec()));
    if !plain.is_empty() {
        line(b"", &plain, false);
    }
    Ok((undresser.layers, ended.err()))
}

/// What was taken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    Gzip,
    Utf16,
    CarriageReturns,
    Nuls,
    Escapes,
    Json,
    Logfmt,
    Csv,
    Entities,
    Prefix,
    Suffix,
    CutLines,
    JoinedLines,
}

impl Layer {
    /// Name for people.
    pub fn name(self) -> &'static str {
        match self {
            Layer::Gzip => "gzip",
            Layer::Utf16 => "UTF-16",
            Layer::CarriageReturns => "lines that end with CR only",
            Layer::Nuls => "NUL bytes",
            Layer::Escapes => "escape sequences",
            Layer::Json => "JSON",
            Layer::Logfmt => "logfmt",
            Layer::Csv => "quotes of CSV",
            Layer::Entities => "entities of HTML",
            Layer::Prefix => "prefixes",
            Layer::Suffix => "suffixes",
            Layer::CutLines => "cut lines",
            Layer::JoinedLines => "joined lines",
        }
    }
}
