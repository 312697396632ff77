//! The layers around a line: each function takes one off, or returns `None` if the line does not have it.

use std::sync::LazyLock;

use memchr::{memchr, memchr2, memmem};
use regex::bytes::Regex;
use serde_json::Value;

/// Keys of the text of a line, the most common first.
const KEYS: [&str; 14] = [
    "log",
    "message",
    "msg",
    "MESSAGE",
    "line",
    "text",
    "textPayload",
    "@message",
    "_raw",
    "body",
    "content",
    "event",
    "data",
    "value",
];
/// Deepest level of an object in which texts are searched.
const MAX_DEPTH: usize = 6;

/// Escape sequences of terminals, also as `cat -v`, rsyslog and languages write ESC.
static ESCAPES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let sequence = r"(?-u)(?:\x1b|\^\[|#033|\\x1[bB]|\\033|\\e|\\u001[bB]|\xe2\x90\x9b)";
    Regex::new(&format!(
        r"{sequence}(?:\[[0-9;:?<=>]*[ -/]*[@-~]|\][^\x07\x1b\\]*(?:\x07|\x1b\\|\\x07|\^G|\\a)|[()][A-Z0-9]|[=>78cDEHMNOZ])|(?-u)\x1b[\[\]]?|(?-u)[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]"
    ))
    .ok()
});

/// Without escape sequences, other control characters, and marks of UTF-8.
pub(super) fn escapes(line: &[u8]) -> Option<Vec<u8>> {
    let quick = line.iter().any(|byte| *byte < b' ' && *byte != b'\t' || *byte == 0x7f)
        || memmem::find(line, b"#0").is_some()
        || memmem::find(line, b"^[").is_some()
        || memmem::find(line, b"\\").is_some()
        || memchr2(0xe2, 0xef, line).is_some()
        || memmem::find(line, b"\xc2\xa0").is_some();
    if !quick {
        return None;
    }
    let plain = ESCAPES.as_ref()?.replace_all(line, &b""[..]);
    let plain = replace(&plain, b"#011", b"\t");
    let plain = replace(&replace(&plain, b"\xc2\xa0", b" "), b"\xef\xbb\xbf", b"");
    (plain != line).then_some(plain)
}

fn replace(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    for found in memmem::find_iter(text, from) {
        out.extend_from_slice(&text[at..found]);
        out.extend_from_slice(to);
        at = found + from.len();
    }
    out.extend_from_slice(&text[at..]);
    out
}

/// A text, with the name of its field.
pub(super) type Field = (String, Vec<u8>);

/// The texts of a JSON object that begins in the line, possibly behind other text; of a damaged object those that can
/// be read.
pub(super) fn json(line: &[u8]) -> Option<Vec<Field>> {
    memmem::find(line, b"\":").or_else(|| memmem::find(line, b"\" :"))?;
    let mut fields = Vec::new();
    let mut from = 0;
    for _ in 0..4 {
        let Some(at) = memchr(b'{', &line[from..]) else { break };
        from += at;
        let mut values = serde_json::Deserializer::from_slice(&line[from..]).into_iter::<Value>();
        match values.next() {
            Some(Ok(value @ Value::Object(_))) => {
                collect("", &value, 0, &mut fields);
                return (!fields.is_empty()).then_some(fields);
            }
            _ => from += 1,
        }
    }
    // A line of an object that is printed over several lines, or cut.
    members(line, &mut fields);
    (!fields.is_empty()).then_some(fields)
}

/// The text of an element of an array of JSON that ends the line, if it has escapes.
pub(super) fn element(line: &[u8]) -> Option<Vec<u8>> {
    let start = memchr(b'"', line)?;
    let stands_alone = line[..start].last().is_none_or(u8::is_ascii_whitespace);
    let text = line[start..].trim_ascii_end();
    let text = text.strip_suffix(b",").unwrap_or(text);
    let is_quoted = stands_alone && text.ends_with(b"\"") && memchr(b'\\', text).is_some();
    is_quoted.then(|| serde_json::from_slice::<String>(text).ok())?.map(String::into_bytes)
}

fn collect(key: &str, value: &Value, depth: usize, fields: &mut Vec<Field>) {
    if depth > MAX_DEPTH {
        return;
    }
    match value {
        Value::String(text) => fields.push((key.to_owned(), text.as_bytes().to_vec())),
        Value::Object(members) => {
            members.iter().for_each(|(key, value)| collect(key, value, depth + 1, fields))
        }
        Value::Array(items) => {
            let bytes: Option<Vec<u8>> =
                items.iter().map(|item| item.as_u64().and_then(|byte| u8::try_from(byte).ok())).collect();
            match bytes {
                Some(bytes) if !bytes.is_empty() => fields.push((key.to_owned(), bytes)),
                _ if items.iter().all(Value::is_string) => {
                    let lines: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
                    fields.push((key.to_owned(), lines.join("\n").into_bytes()));
                }
                _ => items.iter().for_each(|item| collect(key, item, depth + 1, fields)),
            }
        }
        _ => {}
    }
}

/// `"key": "text"` without the object around it; the last text may be cut.
fn members(line: &[u8], fields: &mut Vec<Field>) {
    let mut at = 0;
    while let Some((key, after)) = quoted(line, at) {
        let rest = line[after..].trim_ascii_start();
        let value = rest.strip_prefix(b":").map(|rest| line.len() - rest.trim_ascii_start().len());
        match value {
            Some(value) if line.get(value) == Some(&b'"') => match quoted(line, value) {
                Some((text, after)) => {
                    fields.push((String::from_utf8_lossy(&key).into_owned(), text));
                    at = after;
                }
                None => {
                    let text = unescaped(&line[value + 1..]);
                    fields.push((String::from_utf8_lossy(&key).into_owned(), text));
                    return;
                }
            },
            _ => at = after,
        }
    }
}

/// The text in the first pair of double quotes from a position, and the position behind it.
fn quoted(line: &[u8], from: usize) -> Option<(Vec<u8>, usize)> {
    let open = from + memchr(b'"', &line[from..])?;
    let mut at = open + 1;
    while let Some(found) = memchr2(b'"', b'\\', &line[at..]) {
        at += found;
        if line[at] == b'"' {
            return Some((unescaped(&line[open + 1..at]), at + 1));
        }
        at = (at + 2).min(line.len());
    }
    None
}

/// Text with the escapes of JSON and of Go replaced.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let quoted = [b"\"", text.strip_suffix(b"\\").unwrap_or(text), b"\""].concat();
    if let Ok(text) = serde_json::from_slice::<String>(&quoted) {
        return text.into_bytes();
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match (*byte, bytes.as_slice().first()) {
            (b'\\', Some(next)) => {
                bytes.next();
                match next {
                    b'n' => out.push(b'\n'),
                    b't' => out.push(b'\t'),
                    b'r' => out.push(b'\r'),
                    b'"' | b'\\' | b'/' | b'\'' => out.push(*next),
                    // Others stay for the next layer.
                    other => out.extend([b'\\', *other]),
                }
            }
            (byte, _) => out.push(byte),
        }
    }
    out
}

/// The quoted values of `key="text"` and `key='text'`.
pub(super) fn logfmt(line: &[u8]) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    let mut at = 0;
    while let Some(found) = memmem::find(&line[at..], b"=\"") {
        let equals = at + found;
        let key =
            line[..equals].rsplit(|byte| byte.is_ascii_whitespace() || *byte == b',' || *byte == b'{').next();
        let key = String::from_utf8_lossy(key.unwrap_or_default()).into_owned();
        let Some((text, after)) = quoted(line, equals + 1) else { break };
        // Doubled quotes are of CSV.
        if text.is_empty() && memmem::find(&line[after..], b"\"\"").is_some() {
            return None;
        }
        if line
            .get(after)
            .is_some_and(|next| !next.is_ascii_whitespace() && !matches!(next, b',' | b'}' | b')'))
        {
            return None;
        }
        fields.push((key, text));
        at = after;
    }
    (!fields.is_empty()).then_some(fields)
}

/// The quoted fields of CSV, with `""` for a quote; their names are their numbers.
pub(super) fn csv(line: &[u8]) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    let (mut at, mut number) = (0, 0);
    loop {
        let field = &line[at..];
        let blanks = field.len() - field.trim_ascii_start().len();
        let end = match field.get(blanks) {
            Some(b'"') => {
                let (text, length) = csv_field(&field[blanks + 1..]);
                fields.push((number.to_string(), text));
                at + blanks + 1 + length
            }
            _ => at,
        };
        let Some(next) = line[end..].iter().position(|byte| matches!(byte, b',' | b';' | b'\t')) else {
            break;
        };
        at = end + next + 1;
        number += 1;
    }
    (!fields.is_empty()).then_some(fields)
}

/// The text up to the closing quote, and the length with the quote.
fn csv_field(field: &[u8]) -> (Vec<u8>, usize) {
    let mut text = Vec::new();
    let mut at = 0;
    while let Some(found) = memchr(b'"', &field[at..]) {
        text.extend_from_slice(&field[at..at + found]);
        at += found + 1;
        if field.get(at) != Some(&b'"') {
            return (text, at);
        }
        text.push(b'"');
        at += 1;
    }
    text.extend_from_slice(&field[at..]);
    (text, field.len())
}

/// Entities and tags of HTML.
pub(super) fn entities(line: &[u8]) -> Option<Vec<u8>> {
    let has = |word: &[u8]| memmem::find(line, word).is_some();
    if !(has(b"&gt;")
        || has(b"&lt;")
        || has(b"&quot;")
        || has(b"&amp;")
        || has(b"&#")
        || has(b"<br")
        || has(b"</"))
    {
        return None;
    }
    static TAGS: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"(?-u)</?[a-zA-Z][^<>]{0,200}>").ok());
    let mut text = TAGS.as_ref()?.replace_all(line, &b""[..]).into_owned();
    let pairs: [(&[u8], &[u8]); 8] = [
        (b"&gt;", b">"),
        (b"&lt;", b"<"),
        (b"&quot;", b"\""),
        (b"&#34;", b"\""),
        (b"&#39;", b"'"),
        (b"&#62;", b">"),
        (b"&nbsp;", b" "),
        (b"&amp;", b"&"),
    ];
    for (entity, letter) in pairs {
        text = replace(&text, entity, letter);
    }
    (text != line).then_some(text)
}

/// Rank of a key: the smaller, the more likely it holds the line.
pub(super) fn rank(key: &str) -> usize {
    KEYS.iter().position(|known| *known == key).unwrap_or(KEYS.len())
}
