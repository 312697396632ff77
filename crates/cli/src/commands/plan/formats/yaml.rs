//! YAML that all parsers read alike: block style, each string quoted as in JSON.

use hugewise_linux::printable::is_printable;
use serde_json::Value;

/// Formats `value` as a document. Keys are not quoted: they are constants of this program.
pub fn document(value: &Value) -> String {
    let mut text = String::new();
    write(value, 0, &mut text);
    text
}

fn write(value: &Value, indent: usize, text: &mut String) {
    let blanks = " ".repeat(indent);
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                text.push_str(&format!("{blanks}{key}:"));
                below(value, indent + 2, text);
            }
        }
        Value::Array(items) => {
            for item in items {
                let mut entry = String::new();
                if holds_more(item) {
                    write(item, indent + 2, &mut entry);
                    text.push_str(&format!("{blanks}- {}", entry.trim_start_matches(' ')));
                } else {
                    text.push_str(&format!("{blanks}-"));
                    below(item, indent + 2, text);
                }
            }
        }
        scalar => text.push_str(&self::scalar(scalar)),
    }
}

/// Writes the value after a key or a dash.
fn below(value: &Value, indent: usize, text: &mut String) {
    if holds_more(value) {
        text.push('\n');
        write(value, indent, text);
    } else {
        text.push_str(&format!(" {}\n", scalar(value)));
    }
}

fn holds_more(value: &Value) -> bool {
    value.as_object().is_some_and(|entries| !entries.is_empty())
        || value.as_array().is_some_and(|items| !items.is_empty())
}

/// A scalar as JSON, which is valid YAML once characters are escaped that end a line in YAML 1.1, are invalid in it, or
/// not printable.
fn scalar(value: &Value) -> String {
    let mut text = String::new();
    for c in value.to_string().chars() {
        match u32::from(c) {
            _ if is_printable(c) => text.push(c),
            // YAML has no pairs of surrogates.
            number @ 0x1_0000.. => text.push_str(&format!("\\U{number:08x}")),
            number => text.push_str(&format!("\\u{number:04x}")),
        }
    }
    text
}
