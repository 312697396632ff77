//! Takes the layers off each line of a stream.

use std::{collections::BTreeSet, sync::LazyLock};

use memchr::{memchr, memmem};
use regex::bytes::Regex;

use super::{
    Layer, layers,
    layers::Field,
    records::{self, Shape},
};

/// Largest number of layers, one in the other.
const MAX_LAYERS: usize = 8;
/// Longest line that is put together from pieces, in bytes.
const MAX_JOINED_BYTES: usize = 256 << 10;

/// Lines of container runtimes (CRI): time, stream, whole or part.
static CRI: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?-u)(?:^|[^0-9\x22'\\\\])\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d) (?:stdout|stderr) ([FP])(?: |$)",
    )
    .ok()
});

/// Takes off what is around the lines of a stream.
#[derive(Debug, Default)]
pub struct Undresser {
    /// What was taken off.
    pub layers: BTreeSet<Layer>,
    /// Whether the lines of this stream have layers.
    is_dressed: bool,
    /// Fields that had records.
    fields: BTreeSet<String>,
    /// Prefix of the last record.
    shape: Option<Shape>,
    /// Layers of JSON whose texts end with a newline: one that does not is a part.
    ends_lines: [bool; MAX_LAYERS],
    /// Parts of a line, by layer.
    parts: [Vec<u8>; MAX_LAYERS],
    /// Lines of an object of JSON that is printed over several lines, and its depth.
    object: Option<(Vec<u8>, i32)>,
    /// Length at which lines were cut.
    cut_at: Option<usize>,
    /// A cut line.
    cut: Vec<u8>,
}

impl Undresser {
    /// Decides by the beginning of a stream whether its lines have layers.
    pub fn begin(&mut self, head: &[u8]) {
        *self = Undresser { layers: std::mem::take(&mut self.layers), ..Undresser::default() };
        let lines = || head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        self.cut_at = cut_at(lines());
        let mut trial = Undresser::default();
        // The last line of the head may be incomplete.
        let dressed = lines().any(|line| trial.changes(line));
        self.is_dressed = dressed || self.cut_at.is_some();
    }

    /// Whether the lines of this stream have layers.
    pub fn is_dressed(&self) -> bool {
        self.is_dressed
    }

    /// Whether a record is in the line, and differs from the line. From then on, all lines are decoded.
    pub fn finds_record(&mut self, line: &[u8]) -> bool {
        let found = !self.is_dressed && Undresser::default().changes(line);
        self.is_dressed |= found;
        found
    }

    fn changes(&mut self, line: &[u8]) -> bool {
        let mut changed = false;
        let mut count = 0;
        self.whole(line, &mut |plain: &[u8]| {
            count += 1;
            changed |= plain != line && records::start(plain) == Some(0);
        });
        changed || count > 1
    }

    /// Passes the plain lines of a line to `sink`.
    pub fn line(&mut self, line: &[u8], sink: &mut impl FnMut(&[u8])) {
        let Some(width) = self.cut_at else { return self.whole(line, sink) };
        let begins = records::start(line).is_some();
        if !self.cut.is_empty() && begins {
            let cut = std::mem::take(&mut self.cut);
            self.whole(&cut, sink);
        }
        let goes_on = !self.cut.is_empty();
        self.cut.extend_from_slice(line);
        if line.len() == width && self.cut.len() < MAX_JOINED_BYTES {
            return;
        }
        if goes_on {
            self.layers.insert(Layer::CutLines);
        }
        let cut = std::mem::take(&mut self.cut);
        self.whole(&cut, sink);
    }

    /// Notes layers of the whole stream.
    pub fn note(&mut self, layers: &[Layer]) {
        self.layers.extend(layers);
    }

    /// Passes what is left to `sink`, at the end of a stream.
    pub fn finish(&mut self, sink: &mut impl FnMut(&[u8])) {
        let cut = std::mem::take(&mut self.cut);
        let parts = std::mem::take(&mut self.parts);
        for rest in std::iter::once(&cut).chain(&parts).filter(|rest| !rest.is_empty()) {
            self.take(rest, 0, &mut |plain: &[u8]| sink(plain));
        }
        if let Some((object, _)) = self.object.take() {
            object
                .split(|byte| *byte == b'\n')
                .for_each(|line| self.take(line, 0, &mut |plain: &[u8]| sink(plain)));
        }
    }

    fn whole(&mut self, line: &[u8], sink: &mut impl FnMut(&[u8])) {
        match self.gather(line) {
            Gathered::Line => self.take(line, 0, &mut |plain: &[u8]| sink(plain)),
            Gathered::Object(object) => self.take(&object, 0, &mut |plain: &[u8]| sink(plain)),
            Gathered::Part => {}
        }
    }

    /// Puts the lines of an object together.
    fn gather(&mut self, line: &[u8]) -> Gathered {
        let text = line.trim_ascii();
        let depth = |line: &[u8]| match (line.first(), line.last()) {
            (Some(b'}' | b']'), Some(b'{' | b'[')) => 0,
            (_, Some(b'{' | b'[')) => 1,
            (Some(b'}' | b']'), _) => -1,
            _ => 0,
        };
        match &mut self.object {
            Some((object, open)) => {
                object.extend_from_slice(line);
                object.push(b'\n');
                *open += depth(text);
                let ends = *open <= 0 || object.len() > MAX_JOINED_BYTES;
                match ends.then(|| self.object.take()).flatten() {
                    Some((object, _)) => Gathered::Object(object),
                    None => Gathered::Part,
                }
            }
            None if text == b"{" || text == b"[{" => {
                self.object = Some((b"{\n".to_vec(), 1));
                Gathered::Part
            }
            None => Gathered::Line,
        }
    }

    /// Takes the layers off, the outermost first.
    fn take(&mut self, line: &[u8], depth: usize, sink: &mut dyn FnMut(&[u8])) {
        if depth < MAX_LAYERS {
            if let Some((layer, inside)) = self.peel(line, depth) {
                self.layers.insert(layer);
                return self.lines(&inside, depth + 1, sink);
            }
        }
        self.record(line, depth, sink);
    }

    /// The lines of a text.
    fn lines(&mut self, text: &[u8], depth: usize, sink: &mut dyn FnMut(&[u8])) {
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        for line in text.split(|byte| *byte == b'\n' || *byte == b'\r').filter(|line| !line.is_empty()) {
            self.take(line, depth, sink);
        }
    }

    /// Takes one layer off.
    fn peel(&mut self, line: &[u8], depth: usize) -> Option<(Layer, Vec<u8>)> {
        if let Some(found) = CRI.as_ref().and_then(|cri| cri.captures(line)) {
            let length = found.get(0).map_or(0, |whole| whole.end());
            let is_part = found.get(1).is_some_and(|flag| flag.as_bytes() == b"P");
            return Some((Layer::Prefix, self.joined(&line[length..], is_part, depth)));
        }
        if memchr(0, line).is_some() {
            let text = line.iter().copied().filter(|byte| *byte != 0).collect();
            return Some((Layer::Nuls, text));
        }
        if let Some(plain) = layers::escapes(line) {
            return Some((Layer::Escapes, plain));
        }
        if let Some(fields) = layers::json(line) {
            if let Some(text) = self.field(fields, records::start(line) != Some(0)) {
                let ends = text.ends_with(b"\n");
                let is_part = !ends && self.ends_lines[depth];
                self.ends_lines[depth] |= ends;
                return Some((Layer::Json, self.joined(&text, is_part, depth)));
            }
        }
        if let Some(text) = layers::element(line) {
            return Some((Layer::Json, text));
        }
        if let Some(text) = line.trim_ascii_start().strip_prefix(b"MESSAGE=") {
            return Some((Layer::Prefix, text.to_vec()));
        }
        if memchr(b'"', line).is_some() {
            if let Some(text) = layers::logfmt(line).and_then(|fields| self.field(fields, false)) {
                return Some((Layer::Logfmt, text));
            }
            if let Some(text) = layers::csv(line).and_then(|fields| self.field(fields, false)) {
                return Some((Layer::Csv, text));
            }
        }
        if memchr(b'\r', line).is_some() {
            return Some((Layer::CarriageReturns, line.to_vec()));
        }
        if let Some(text) = layers::entities(line) {
            return Some((Layer::Entities, text));
        }
        if memmem::find(line, b"\\n").is_some() || memmem::find(line, b"#012").is_some() {
            let text =
                String::from_utf8_lossy(line).replace("\\r", "").replace("\\n", "\n").replace("#012", "\n");
            return Some((Layer::JoinedLines, text.into_bytes()));
        }
        None
    }

    /// Puts the parts of a line together; the text is empty if a part is missing.
    fn joined(&mut self, text: &[u8], is_part: bool, depth: usize) -> Vec<u8> {
        let part = &mut self.parts[depth];
        part.extend_from_slice(text);
        if is_part && part.len() < MAX_JOINED_BYTES {
            return Vec::new();
        }
        if part.len() > text.len() {
            self.layers.insert(Layer::CutLines);
        }
        std::mem::take(part)
    }

    /// The text of the line: a record, or else the text of the field that had one. `any`: or else the field that is
    /// most likely.
    fn field(&mut self, fields: Vec<Field>, any: bool) -> Option<Vec<u8>> {
        let mut best: Option<(Field, usize)> = None;
        for field in fields {
            let known = self.fields.contains(&field.0);
            let value = match (records::start(&field.1), known) {
                (Some(_), true) => 200,
                (Some(_), false) => 100,
                (None, _) if field.1.trim_ascii_start().starts_with(b"{") => 60,
                (None, true) => 50,
                (None, false) => 40 - layers::rank(&field.0),
            };
            if best.as_ref().is_none_or(|(_, other)| value > *other) {
                best = Some((field, value));
            }
        }
        let ((key, text), value) = best?;
        if value >= 100 {
            self.fields.insert(key);
        }
        (value >= 50 || (any && self.fields.is_empty() && value > 40 - layers::rank(""))).then_some(text)
    }

    /// Takes prefix and suffix off, and separates joined records.
    fn record(&mut self, line: &[u8], depth: usize, sink: &mut dyn FnMut(&[u8])) {
        let Some(start) = records::start(line) else {
            let prefix = self.shape.as_ref().and_then(|shape| shape.length(line)).unwrap_or(0);
            if prefix > 0 {
                self.layers.insert(Layer::Prefix);
            }
            return sink(&line[prefix..]);
        };
        if start > 0 {
            self.layers.insert(Layer::Prefix);
        }
        self.shape = (start > 0).then(|| Shape::of(&line[..start]));
        let line = &line[start..];
        if let Some(next) = records::further(line).first().filter(|_| depth < MAX_LAYERS) {
            self.layers.insert(Layer::JoinedLines);
            let shape = self.shape.take();
            self.record(&line[..*next], depth + 1, sink);
            self.record(&line[*next..], depth, sink);
            self.shape = shape;
            return;
        }
        let length = records::length(line).unwrap_or(line.len());
        if line.len() > length && !line[length..].trim_ascii().is_empty() {
            self.layers.insert(Layer::Suffix);
        }
        sink(&line[..length]);
    }
}

enum Gathered {
    Line,
    Part,
    Object(Vec<u8>),
}

/// Length at which a terminal or an editor cut the lines: the longest one, which many lines have, each followed by a
/// line that begins neither with a record nor with a prefix.
fn cut_at<'a>(lines: impl Iterator<Item = &'a [u8]> + Clone) -> Option<usize> {
    let width = lines.clone().map(<[u8]>::len).max().filter(|width| (20..400).contains(width))?;
    let mut cut = 0;
    let mut before: Option<Shape> = None;
    for line in lines {
        let start = records::start(line);
        if let Some(prefix) = before {
            let has_prefix = prefix.length(line).is_some_and(|length| length > 0)
                || CRI.as_ref().is_some_and(|cri| cri.is_match(line));
            let goes_on = start.is_none() && !line.is_empty() && !has_prefix;
            if !goes_on {
                return None;
            }
            cut += 1;
        }
        before = start.filter(|_| line.len() == width).map(|start| Shape::of(&line[..start]));
    }
    (cut >= 2).then_some(width)
}
