//! Text of other programs without what a terminal obeys, hides or reorders.

/// Whether a terminal shows `c` itself, at its place: no control character, line end, bidirectional control,
/// private or unassigned character, and no character without width except combining marks.
pub fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return matches!(c, ' '..='~');
    }
    // The standard library escapes what is not printable, and a combining mark that follows no letter.
    !is_ignorable(c) && format!("a{c}").escape_debug().count() == 2
}

/// Characters of the letters and marks that are shown as nothing.
///
/// Source: Unicode 16, DerivedCoreProperties.txt, Default_Ignorable_Code_Point.
fn is_ignorable(c: char) -> bool {
    matches!(
        c,
        '\u{34f}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{ffa0}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// A value of another program, in one line: each character that is not printable is replaced by U+FFFD.
pub fn plain(text: &str) -> String {
    text.chars().map(printed).collect()
}

/// Text of several lines: like [`plain`], and line feeds stay.
pub fn lines(text: &str) -> String {
    text.chars().map(|c| if c == '\n' { c } else { printed(c) }).collect()
}

fn printed(c: char) -> char {
    if is_printable(c) { c } else { char::REPLACEMENT_CHARACTER }
}

/// JSON with the same values, in which each character that is not printable is written as `\u`.
pub fn json(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        // Outside of strings JSON has no other control character than those that `serde_json` writes.
        if c == '\n' || is_printable(c) {
            escaped.push(c);
        } else {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| escaped.push_str(&format!("\\u{unit:04x}")));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn letters_of_all_scripts_are_printable() {
        for text in ["a b~", "Ünïcödé", "日本語", "भाषा", "e\u{301}", "🦀", "–≤±µ…×█", "\u{fffd}"]
        {
            assert_eq!(plain(text), text);
        }
    }

    #[test]
    fn what_a_terminal_obeys_hides_or_reorders_is_replaced() {
        let each = [
            "\0",
            "\t",
            "\n",
            "\r",
            "\x1b",
            "\x7f",
            "\u{80}",
            "\u{9b}",
            "\u{9f}",
            "\u{a0}",
            "\u{ad}",
            "\u{61c}",
            "\u{200b}",
            "\u{200d}",
            "\u{200e}",
            "\u{200f}",
            "\u{2028}",
            "\u{2029}",
            "\u{202a}",
            "\u{202e}",
            "\u{2060}",
            "\u{2066}",
            "\u{2069}",
            "\u{3164}",
            "\u{fe0f}",
            "\u{feff}",
            "\u{fff9}",
            "\u{e000}",
            "\u{e0041}",
            "\u{e0100}",
            "\u{10ffff}",
        ];
        for text in each {
            assert_eq!(plain(text), "\u{fffd}", "{}", text.escape_unicode());
        }
        assert_eq!(lines("a\nb\r\n"), "a\nb\u{fffd}\n");
    }

    proptest! {
        #[test]
        fn only_printable_characters_and_line_feeds_come_out(text in ".*|\\PC*|[\\x00-\\u{ff}]*") {
            prop_assert!(plain(&text).chars().all(is_printable));
            prop_assert!(lines(&text).chars().all(|c| c == '\n' || is_printable(c)));
            prop_assert_eq!(lines(&text).chars().count(), text.chars().count());
        }

        #[test]
        fn json_keeps_its_values(text in ".*|[\\x00-\\u{ff}\\u{2000}-\\u{2fff}\\u{e0000}-\\u{e01ff}]*") {
            let before = serde_json::json!({ text.clone(): [text] });
            let escaped = json(&(serde_json::to_string_pretty(&before)? + "\n"));
            prop_assert!(escaped.chars().all(|c| c == '\n' || is_printable(c)));
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped)?, before);
        }
    }
}
