//! Files for `EnvironmentFile=`: assignments with the quotes of a shell.
//!
//! Source: systemd.exec(5), and `parse_env_file_internal` of systemd's src/basic/env-file.c.

use std::io;

/// Characters that are special between double quotes, as in a shell.
const ESCAPED: [char; 4] = ['"', '\\', '$', '`'];

/// A line that assigns this value to a variable.
///
/// Fails for names that are not those of variables, and for values that systemd refuses: before version 246, those
/// with a control character other than a tab or a line feed.
pub fn line(name: &str, value: &str) -> io::Result<String> {
    let refused = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, format!("the variable {why}")));
    if !is_name(name) {
        return refused(&format!("{name:?} has no name that systemd accepts"));
    }
    if value.chars().any(|c| c.is_control() && c != '\t' && c != '\n') {
        return refused(&format!("{name} contains a control character, which systemd may refuse"));
    }
    let mut line = format!("{name}=\"");
    for c in value.chars() {
        if ESCAPED.contains(&c) {
            line.push('\\');
        }
        line.push(c);
    }
    Ok(line + "\"\n")
}

fn is_name(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The part of an assignment that a character belongs to.
#[derive(Clone, Copy, PartialEq)]
enum At {
    Name,
    /// Between the equals sign and the value, or behind a quoted part of it.
    BeforeValue,
    Value,
    ValueEscape,
    SingleQuotes,
    DoubleQuotes,
    DoubleQuotesEscape,
    Comment,
    CommentEscape,
}

/// The assignments of a file, in order, as systemd reads them; those with an invalid name are left out.
pub fn parse(text: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let (mut name, mut value) = (String::new(), String::new());
    // Length of the value up to its last character that is not a blank, or that is quoted.
    let mut kept = 0;
    let mut at = At::Name;
    // The end of the file ends an assignment like the end of a line.
    for c in text.chars().chain(['\0']) {
        let ends_line = matches!(c, '\n' | '\r' | '\0');
        let is_blank = matches!(c, ' ' | '\t' | '\n' | '\r');
        at = match at {
            At::Name if name.is_empty() && matches!(c, '#' | ';') => At::Comment,
            At::Name if ends_line => {
                name.clear();
                At::Name
            }
            At::Name if c == '=' && !name.is_empty() => At::BeforeValue,
            At::Name => {
                if !(is_blank && name.is_empty()) {
                    name.push(c);
                }
                At::Name
            }
            At::Comment if c == '\\' => At::CommentEscape,
            At::Comment if ends_line => At::Name,
            At::Comment | At::CommentEscape => At::Comment,
            _ if c == '\0' || (ends_line && matches!(at, At::BeforeValue | At::Value)) => {
                if at == At::Value {
                    value.truncate(kept);
                }
                let (of, to) = (std::mem::take(&mut name), std::mem::take(&mut value));
                all.push((of.trim_end().to_owned(), to));
                kept = 0;
                At::Name
            }
            At::BeforeValue if c == '\'' => At::SingleQuotes,
            At::BeforeValue if c == '"' => At::DoubleQuotes,
            At::BeforeValue | At::Value if c == '\\' => At::ValueEscape,
            At::BeforeValue if is_blank => At::BeforeValue,
            At::BeforeValue | At::Value => {
                value.push(c);
                if !is_blank {
                    kept = value.len();
                }
                At::Value
            }
            At::ValueEscape => {
                if !ends_line {
                    value.push(c);
                }
                kept = value.len();
                At::Value
            }
            At::SingleQuotes if c == '\'' => At::BeforeValue,
            At::DoubleQuotes if c == '"' => At::BeforeValue,
            At::DoubleQuotes if c == '\\' => At::DoubleQuotesEscape,
            At::SingleQuotes | At::DoubleQuotes => {
                value.push(c);
                at
            }
            At::DoubleQuotesEscape => {
                if !ESCAPED.contains(&c) && c != '\n' {
                    value.push('\\');
                }
                if c != '\n' {
                    value.push(c);
                }
                At::DoubleQuotes
            }
        };
    }
    all.retain(|(name, _)| is_name(name));
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        parse(text)
    }

    #[test]
    fn assignments_are_read_as_systemd_does() {
        let text = "# A=1\n  ; B=2\\\n still a comment\nC = c d  \nD='x y'\"z\" w\nE=\"a\\\"\\$b\\n\\\nc\"\n\
                    no assignment\n1F=1\n-x=2\nG=a\\ b\\\nc \nH=\nI=\"open\nJ=1";
        let expected =
            [("C", "c d"), ("D", "x yzw"), ("E", "a\"$b\\nc"), ("G", "a bc"), ("H", ""), ("I", "open\nJ=1")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(pairs(text), expected);
    }

    #[test]
    fn what_systemd_does_not_accept_is_refused() {
        for (name, value) in [
            ("A", "a\0b"),
            ("A", "a\rb"),
            ("A", "\u{1b}[2J"),
            ("A", "\u{9b}"),
            ("A=b", "c"),
            ("", ""),
            ("1", ""),
        ] {
            assert!(line(name, value).is_err(), "{name} {value:?}");
        }
    }

    proptest! {
        /// No value becomes another one, or a further assignment.
        #[test]
        fn every_value_is_read_back_or_refused(
            value in r#"([ -~]|["'\\$`%=#;\n\t ]|\PC|[\r\u{0}\u{7f}\u{9b}])*"#,
            next in "[ -~\n]*",
        ) {
            if let Ok(line) = line("NAME", &value) {
                let read = parse(&format!("{line}{next}"));
                prop_assert_eq!(&read[..1], &[("NAME".to_owned(), value)][..]);
                prop_assert_eq!(&read[1..], &parse(&next)[..]);
            } else {
                prop_assert!(value.chars().any(char::is_control));
            }
        }
    }
}
