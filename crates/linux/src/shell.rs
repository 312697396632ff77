//! Quoting for shells.

use crate::printable::is_printable;

/// Quotes `text` as one word of printable characters. What is not printable is written as `$'…'`, which bash, zsh, ksh
/// and POSIX since 2024 read.
pub fn word(text: &str) -> String {
    if !text.chars().all(is_printable) {
        return ansi_c(text);
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_+=:,./@%^".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Octal numbers have three digits in all shells; hexadecimal ones may go on.
fn ansi_c(text: &str) -> String {
    let mut word = String::from("$'");
    for c in text.chars() {
        match c {
            '\'' | '\\' => word.extend(['\\', c]),
            c if is_printable(c) => word.push(c),
            c => c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| word.push_str(&format!("\\{byte:03o}"))),
        }
    }
    word + "'"
}

/// Quotes words as a command line.
pub fn line(words: &[String]) -> String {
    words.iter().map(|text| word(text)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_shell_reads_the_words_back() {
        let words = ["java", "-Da=b c", "it's", "", "$HOME", "@app.args"].map(str::to_owned);
        assert_eq!(line(&words), r"java '-Da=b c' 'it'\''s' '' '$HOME' @app.args");
        assert_eq!(word("it's\n\u{202e}9\\"), r"$'it\'s\012\342\200\2569\\'");
    }

    proptest! {
        #[test]
        fn a_word_is_printable_and_bash_reads_it_back(text in "([^\x00]|[\x01-\u{ff}'\\\\$]|[\u{2000}-\u{206f}0-9]){0,12}") {
            let quoted = word(&text);
            prop_assert!(quoted.chars().all(is_printable), "{quoted:?}");
            let script = format!("printf %s {quoted}");
            if let Ok(read) = Command::new("bash").args(["--norc", "-c", &script]).output() {
                prop_assert_eq!(String::from_utf8_lossy(&read.stdout), text);
            }
        }
    }
}
