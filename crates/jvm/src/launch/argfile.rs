//! Argument files: `@file` on the command line of `java`.
//!
//! Source: the `java` command's page of JDK 25, and the observed behaviour of JDK 17 and 25. Argument files
//! do not nest: an `@word` in a file is taken literally.

use super::{LaunchError, LaunchLine, Read};

/// Maximum size of an argument file, in bytes. The `java` command itself refuses more than 2 GiB.
pub const MAX_ARGFILE_BYTES: usize = 16 << 20;

/// Expands `@file` arguments like the launcher: not after the main class, nor after `--disable-@files`; `@@`
/// stands for a plain `@`.
pub(super) fn expand(words: &[String], read: &Read<'_>) -> Result<Vec<String>, LaunchError> {
    let mut expanded = Vec::new();
    let mut options = 0;
    for (at, word) in words.iter().enumerate() {
        options = LaunchLine::options_end(&expanded, options);
        let main_class_seen = options < expanded.len();
        if main_class_seen || word == "--disable-@files" {
            expanded.extend_from_slice(&words[at..]);
            break;
        }
        match word.strip_prefix('@') {
            Some(plain) if plain.starts_with('@') => expanded.push(plain.to_owned()),
            Some(file) if !file.is_empty() => {
                expanded.extend(split(&super::open(file, "argument file", MAX_ARGFILE_BYTES, read)?));
            }
            _ => expanded.push(word.clone()),
        }
    }
    Ok(expanded)
}

/// The inverse of [`expand`]: escapes words that begin with `@`.
pub(super) fn protect(words: impl Iterator<Item = String>) -> impl Iterator<Item = String> {
    let mut disabled = false;
    words.map(move |word| {
        disabled |= word == "--disable-@files";
        if !disabled && word.starts_with('@') && word.len() > 1 { format!("@{word}") } else { word }
    })
}

/// Splits an argument file into words: white space separates, `#` begins a comment, quotes keep white space,
/// and a backslash is an escape inside quotes and joins lines at the end of one.
pub(super) fn split(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), '\\') => match chars.next() {
                Some('\n') => while chars.next_if(|c| *c == ' ' || *c == '\t').is_some() {},
                Some('n') => word.get_or_insert_default().push('\n'),
                Some('t') => word.get_or_insert_default().push('\t'),
                Some('r') => word.get_or_insert_default().push('\r'),
                Some('f') => word.get_or_insert_default().push('\x0c'),
                Some(other) => word.get_or_insert_default().push(other),
                None => {}
            },
            (Some(_), '\n') => quote = None, // An open quote ends with its line.
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => while chars.next().is_some_and(|c| c != '\n') {},
            (None, '\\') if chars.peek() == Some(&'\n') => {
                chars.next();
                while chars.next_if(|c| *c == ' ' || *c == '\t').is_some() {}
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::launch::tests::own;

    #[test]
    fn an_argument_file_opens_no_other_and_its_words_are_not_opened_later() -> Result<(), LaunchError> {
        let words = own(&["@opts", "@@plain", "-Xmx1g", "Main", "@opts"]);
        let opts = |_: &str| Ok("-cp '@opts' # itself\n\"-Da=b c\"".to_owned());
        let expanded = expand(&words, &opts)?;
        assert_eq!(expanded, own(&["-cp", "@opts", "-Da=b c", "@plain", "-Xmx1g", "Main", "@opts"]));
        let again: Vec<String> = protect(expanded[..4].iter().cloned()).collect();
        assert_eq!(again, own(&["-cp", "@@opts", "-Da=b c", "@@plain"]));
        assert_eq!(expand(&again, &opts)?, expanded[..4]);
        Ok(())
    }

    // In quadratic time, it would take minutes.
    #[test]
    fn the_time_for_many_options_is_not_quadratic() -> Result<(), LaunchError> {
        let words = vec!["-Da=b".to_owned(); 300_000];
        assert_eq!(expand(&words, &|_| Ok(String::new()))?.len(), words.len());
        Ok(())
    }

    #[test]
    fn lost_and_giant_files_are_named() {
        let lost = expand(&own(&["@gone"]), &|_| Err(std::io::ErrorKind::NotFound.into()));
        assert!(lost.is_err_and(|error| error.to_string().contains("the argument file gone")));
        let giant = expand(&own(&["@big"]), &|_| Ok(" ".repeat(MAX_ARGFILE_BYTES + 1)));
        assert!(giant.is_err_and(|error| error.to_string().contains("16MiB")));
        let disabled = expand(&own(&["--disable-@files", "@gone"]), &|_| Ok("-Xmx1g".to_owned()));
        assert_eq!(disabled.ok(), Some(own(&["--disable-@files", "@gone"])));
    }

    proptest! {
        #[test]
        fn any_argument_file_is_split_without_panic(text in "(.|\n)*") {
            let _ = split(&text);
        }
    }
}
