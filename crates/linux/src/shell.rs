//! Quoting for POSIX shells.

/// Quotes `text` as one word.
pub fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_+=:,./@%^".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Quotes words as a command line.
pub fn line(words: &[String]) -> String {
    words.iter().map(|text| word(text)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_the_words_back() {
        let words = ["java", "-Da=b c", "it's", "", "$HOME", "@app.args"].map(str::to_owned);
        assert_eq!(line(&words), r"java '-Da=b c' 'it'\''s' '' '$HOME' @app.args");
    }
}
