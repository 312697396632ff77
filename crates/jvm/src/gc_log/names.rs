//! Names of pauses: kind and cause.

use std::{borrow::Cow, str};

/// Names are cut at this many bytes.
const MAX_NAME_BYTES: usize = 200;
/// Pauses whose last parenthesized group is the cause of the collection, not part of its kind.
const WITH_CAUSE: [&str; 4] = ["Young", "Full", "Mixed", "Initial Mark"];
/// Groups that describe the outcome of a collection.
const OUTCOMES: [&str; 4] =
    ["Evacuation Failure", "To-space exhausted", "Promotion Failed", "Concurrent Mode Failure"];

/// Name of a pause. Consecutive pauses mostly have the same name, which is then not parsed again.
#[derive(Debug, Default)]
pub(super) struct Name {
    text: Vec<u8>,
    pub kind: String,
    /// Empty if the log has no cause.
    pub cause: String,
}

impl Name {
    /// A name whose kind and cause were parsed separately.
    pub fn of_parts(kind: String, cause: String) -> Name {
        Name { text: Vec::new(), kind, cause }
    }

    /// Whether it was parsed from this text.
    pub fn is(&self, text: &[u8]) -> bool {
        self.text == text
    }

    /// Parses `text`, unless it is the text parsed last.
    pub fn set(&mut self, text: &[u8]) {
        if !self.is(text) {
            text.clone_into(&mut self.text);
            split(&short(text), &mut self.kind, &mut self.cause);
        }
    }
}

/// As UTF-8, cut at [`MAX_NAME_BYTES`] bytes.
pub(super) fn short(name: &[u8]) -> Cow<'_, str> {
    let name = &name[..name.len().min(MAX_NAME_BYTES)];
    // Almost all names are valid UTF-8, and this check is faster.
    str::from_utf8(name).map_or_else(|_| String::from_utf8_lossy(name), Cow::Borrowed)
}

/// Splits `Young (Normal) (G1 Evacuation Pause) (Evacuation Failure: Allocation)`: `kind` becomes
/// `Young (Normal) (Evacuation Failure: Allocation)`, and `cause` the rest.
fn split(name: &str, kind: &mut String, cause: &mut String) {
    kind.clear();
    cause.clear();
    let title = name.split(" (").next().unwrap_or(name);
    let mut end = name.len();
    if WITH_CAUSE.contains(&title) {
        let (mut at, mut outcome) = (name.len(), "");
        while let Some(start) = last_group(&name[..at]) {
            let group = &name[start..at];
            if OUTCOMES.iter().any(|known| group[2..].starts_with(known)) {
                (at, outcome) = (start, &name[start..]);
                continue;
            }
            cause.push_str(&group[2..group.len() - 1]);
            end = start;
            kind.push_str(&name[..end]);
            kind.push_str(outcome);
            return;
        }
    }
    kind.push_str(&name[..end]);
}

/// Start of the ` (…)` at the end of the text.
fn last_group(text: &str) -> Option<usize> {
    if !text.ends_with(')') {
        return None;
    }
    let mut depth = 0usize;
    for (at, byte) in text.bytes().enumerate().rev() {
        match byte {
            b')' => depth += 1,
            b'(' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return text[..at].strip_suffix(' ').map(str::len);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_distinguished_from_causes() {
        for (name, kind, cause) in [
            ("Young (Allocation Failure)", "Young", "Allocation Failure"),
            ("Young (Normal) (G1 Evacuation Pause)", "Young (Normal)", "G1 Evacuation Pause"),
            (
                "Young (Mixed) (G1 Evacuation Pause) (Evacuation Failure: Allocation)",
                "Young (Mixed) (Evacuation Failure: Allocation)",
                "G1 Evacuation Pause",
            ),
            ("Full (System.gc())", "Full", "System.gc()"),
            ("Initial Mark (G1 Humongous Allocation)", "Initial Mark", "G1 Humongous Allocation"),
            ("Final Mark (unload classes)", "Final Mark (unload classes)", ""),
            ("Mark Start (Major)", "Mark Start (Major)", ""),
            ("Degenerated GC (Outside of Cycle)", "Degenerated GC (Outside of Cycle)", ""),
            ("Remark", "Remark", ""),
            ("Young (", "Young (", ""),
            ("Young ()", "Young", ""),
            ("Young)", "Young)", ""),
            ("", "", ""),
        ] {
            let (mut found, mut why) = (String::new(), String::new());
            split(name, &mut found, &mut why);
            assert_eq!((found.as_str(), why.as_str()), (kind, cause), "{name}");
        }
    }
}
