//! Splits a simple shell command, and values of the JVM's variables, into words.

use super::LaunchError;

/// Splits a script into words, if it is one simple command without expansions; the error is the reason why it
/// is not.
///
/// Source: POSIX, "Shell Command Language", 2.2 and 2.3.
pub(super) fn simple_command(script: &str) -> Result<Vec<String>, &'static str> {
    const MORE_THAN_ONE: &str = "it contains more than one command, a pipe or a redirection";
    const EXPANSION: &str = "it contains a shell expansion";
    const OPEN_QUOTE: &str = "a quote is not closed";
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = script.trim().chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next().ok_or(OPEN_QUOTE)? {
                        '\'' => break,
                        c => word.push(c),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next().ok_or(OPEN_QUOTE)? {
                        '"' => break,
                        '$' | '`' => return Err(EXPANSION),
                        '\\' => match chars.next() {
                            Some('\n') => {}
                            Some(c @ ('$' | '`' | '"' | '\\')) => word.push(c),
                            other => word.extend(['\\'].into_iter().chain(other)),
                        },
                        c => word.push(c),
                    }
                }
            }
            '\\' => match chars.next() {
                Some('\n') => {}
                Some(c) => word.get_or_insert_default().push(c),
                None => return Err("it ends with a backslash"),
            },
            '$' | '`' | '*' | '?' | '[' | '{' => return Err(EXPANSION),
            '~' if word.as_ref().is_none_or(|word| word.ends_with(['=', ':'])) => return Err(EXPANSION),
            ';' | '&' | '|' | '<' | '>' | '(' | ')' | '\n' => return Err(MORE_THAN_ONE),
            '#' if word.is_none() => {
                // A comment ends with its line; another command may follow.
                while chars.next_if(|c| *c != '\n').is_some() {}
            }
            ' ' | '\t' => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

/// Splits the value of a variable with JVM options, or a file named by `-XX:VMOptionsFile`, into words: white
/// space separates, quotes of both kinds keep it, and there is no escape character.
///
/// Source: the `java` command's page of JDK 25; JDK 17 and 25 refuse a quote that is not closed.
pub fn option_words(value: &str, of: &str) -> Result<Vec<String>, LaunchError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in value.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '"' || c == '\'' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_ascii_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    if quote.is_some() { Err(LaunchError::OpenQuote { of: of.to_owned() }) } else { Ok(words) }
}

/// Joins options to a value for a variable of [`super::OPTION_VARIABLES`]; the inverse of `option_words`.
pub fn option_value(words: &[String]) -> String {
    let quoted = words.iter().map(|word| {
        let special = |c: char| c.is_ascii_whitespace() || c == '"' || c == '\'';
        if !word.is_empty() && !word.contains(special) {
            return word.clone();
        }
        // A quote cannot occur inside quotes of its own kind: each part gets the other kind.
        let stretches: Vec<String> = word.split('"').map(|stretch| format!("\"{stretch}\"")).collect();
        stretches.join("'\"'")
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::launch::tests::own;

    #[test]
    fn a_simple_command_is_split_as_a_shell_does() {
        for (script, words) in [
            ("exec java -jar a.jar", &["exec", "java", "-jar", "a.jar"][..]),
            (
                "  java '-Dx=a b' \"-Dy=c \\\"d\\\"\" e\\ f # the end",
                &["java", "-Dx=a b", "-Dy=c \"d\"", "e f"],
            ),
            ("java \\\n  -Xmx1g ''", &["java", "-Xmx1g", ""]),
            ("java -Dcolour=#fff a~b", &["java", "-Dcolour=#fff", "a~b"]),
            ("", &[]),
        ] {
            assert_eq!(simple_command(script), Ok(own(words)), "{script}");
        }
        for script in [
            "java $OPTS",
            "java \"$@\"",
            "java `cat x`",
            "java; true",
            "java &",
            "java | tee x",
            "java > log",
            "java *.jar",
            "java -cp ~/x:y",
            "java -cp=~/x",
            "java 'x",
            "java \"x",
            "java \\",
            "a\nb",
            "# x\njava",
            "(java)",
            "java {a,b}",
        ] {
            assert!(simple_command(script).is_err(), "{script}");
        }
    }

    #[test]
    fn values_of_variables_are_split_as_the_jvm_does() {
        let words = |value| option_words(value, "X").ok();
        assert_eq!(words("-Da=\"b c\" -Xm'x1g'\n -Xms1g\\ "), Some(own(&["-Da=b c", "-Xmx1g", "-Xms1g\\"])));
        assert_eq!(words("\"-Xmx1g"), None);
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in "(.|\n)*") {
            let _ = simple_command(&text);
            let _ = option_words(&text, "X");
        }

        #[test]
        fn joined_options_are_split_into_the_same(words in prop::collection::vec("(.|\n|[\"' ])*", 0..6)) {
            let joined = option_value(&words);
            prop_assert_eq!(option_words(&joined, "X").ok(), Some(words));
        }

        #[test]
        fn what_sh_would_split_is_split_the_same(words in prop::collection::vec("[ -~]*", 1..4)) {
            let quoted: Vec<_> = words.iter().map(|w| format!("'{}'", w.replace('\'', "'\\''"))).collect();
            prop_assert_eq!(simple_command(&quoted.join(" ")), Ok(words));
        }
    }
}
