//! Takes secrets out of command lines, environments and logs that people pass on.

use std::{borrow::Cow, sync::LazyLock};

use regex::{Captures, Regex};

/// What stands in place of a secret.
pub const REMOVED: &str = "REMOVED";

/// Names of secrets, as a part of the name of an option, a property, a variable, a header or a field.
const NAMES: &str = "passw|passphrase|pwd|secret|token|credential|api[_.-]?key|access[_.-]?key|private[_.-]?key|auth|bearer|cookie|\
                     session[_.-]?id|signature|licen[cs]e|connection[_.-]?string|dsn|salt|encryption";
/// Values that are secrets by their form: keys of clouds and forges, signed tokens.
const FORMS: &str = r"\b(?:A(?:KI|SI)A[0-9A-Z]{16}|gh[pousr]_\w{20,}|glpat-[\w-]{20,}|xox[abpr]-[\w-]{10,}|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?)";

/// Variables that decide about memory, the JVM or allocators; all others are removed.
const VARIABLES: &str = r"^(?:JAVA_TOOL_OPTIONS|JDK_JAVA_OPTIONS|_JAVA_OPTIONS|JAVA_HOME|JAVA_OPTS|CATALINA_OPTS|[A-Z]+_JAVA_OPT(?:ION)?S|GC_TUNE|GLIBC_TUNABLES|LD_PRELOAD|MALLOC_[A-Z_]+|HUGETLB_\w+|MIMALLOC_\w+|TCMALLOC_\w+|_RJEM_MALLOC_CONF|GODEBUG|GOGC|GOMEMLIMIT|DOTNET_GC\w+|COMPlus_GC\w+|NODE_OPTIONS|ERL_FLAGS|OPENJ9_JAVA_OPTIONS)$";

struct Patterns {
    named: Regex,
    option: Regex,
    user: Regex,
    form: Regex,
    variable: Regex,
}

/// `None` only if an expression does not compile, which a test excludes.
static PATTERNS: LazyLock<Option<Patterns>> = LazyLock::new(|| {
    let named = format!(
        r#"(?i)([\w.-]*(?:{NAMES})[\w.-]*["']?\s*[=:]\s*["']?(?:(?:basic|bearer|digest)\s+)?)([^\s"'&;,}})\]]+)"#
    );
    Some(Patterns {
        named: Regex::new(&named).ok()?,
        option: Regex::new(&format!(r"(?i)^--?[\w.-]*(?:{NAMES})[\w.-]*$")).ok()?,
        user: Regex::new(r#"([a-zA-Z][\w+.-]*://)[^\s/@"']+@"#).ok()?,
        form: Regex::new(FORMS).ok()?,
        variable: Regex::new(VARIABLES).ok()?,
    })
});

/// The text without secrets: values behind names of secrets, names and passwords in addresses, keys by their form.
pub fn without(text: &str) -> Cow<'_, str> {
    // Without the expressions, nothing is known to be free of secrets.
    let Some(patterns) = PATTERNS.as_ref() else { return Cow::Borrowed(REMOVED) };
    let behind = |found: &Captures<'_>| format!("{}{REMOVED}", &found[1]);
    let plain = patterns.named.replace_all(text, behind).into_owned();
    let plain = patterns.user.replace_all(&plain, format!("${{1}}{REMOVED}@")).into_owned();
    Cow::Owned(patterns.form.replace_all(&plain, REMOVED).into_owned())
}

/// The words of a command line without secrets, also without the word behind an option that names one.
pub fn without_in_words(words: &[String]) -> Vec<String> {
    let is_option = |word: &String| PATTERNS.as_ref().is_none_or(|patterns| patterns.option.is_match(word));
    // `mysql -pSECRET`
    let short = words.first().is_some_and(|program| program.contains("mysql") || program.contains("maria"));
    let mut plain: Vec<String> = Vec::with_capacity(words.len());
    for (n, word) in words.iter().enumerate() {
        let follows = n > 0 && is_option(&words[n - 1]) && !word.starts_with('-');
        let attached = short && word.starts_with("-p") && word.len() > 2;
        plain.push(match (follows, attached) {
            (true, _) => REMOVED.to_owned(),
            (_, true) => format!("-p{REMOVED}"),
            _ => without(word).into_owned(),
        });
    }
    plain
}

/// The lines of a configuration file without secrets; of `Environment=` of a unit, only the variables that are kept.
pub fn without_in_file(text: &str) -> String {
    let line = |line: &str| match line.trim_start().strip_prefix("Environment=") {
        Some(variables) => {
            let mut names = variables.split_whitespace().filter_map(|word| word.split_once('='));
            let keeps = names.all(|(name, _)| keeps_variable(name.trim_matches(['"', '\''])));
            if keeps { without(line).into_owned() } else { format!("Environment={REMOVED}") }
        }
        None => without(line).into_owned(),
    };
    text.split_inclusive('\n')
        .map(|whole| match whole.strip_suffix('\n') {
            Some(content) => line(content) + "\n",
            None => line(whole),
        })
        .collect()
}

/// Whether a variable of the environment is kept, by its name.
pub fn keeps_variable(name: &str) -> bool {
    PATTERNS.as_ref().is_some_and(|patterns| patterns.variable.is_match(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_removed_and_flags_are_kept() {
        assert!(PATTERNS.is_some());
        for (text, plain) in [
            ("-Djavax.net.ssl.keyStorePassword=hunter2", "-Djavax.net.ssl.keyStorePassword=REMOVED"),
            ("--db-password=hunter2", "--db-password=REMOVED"),
            (
                "jdbc:postgresql://u:hunter2@db/x?password=hunter2&ssl=1",
                "jdbc:postgresql://REMOVED@db/x?password=REMOVED&ssl=1",
            ),
            (r#"{"token": "hunter2", "n": 1}"#, r#"{"token": "REMOVED", "n": 1}"#),
            ("Authorization: Bearer hunter2", "Authorization: Bearer REMOVED"),
            ("key AKIAABCDEFGHIJKLMNOP.", "key REMOVED."),
            ("SPRING_DATASOURCE_PASSWORD: 'hunter2'", "SPRING_DATASOURCE_PASSWORD: 'REMOVED'"),
            ("-XX:+UseLargePages -Xmx4g", "-XX:+UseLargePages -Xmx4g"),
            ("[1.0s][info][gc] GC(0) Pause Young 1.0ms", "[1.0s][info][gc] GC(0) Pause Young 1.0ms"),
        ] {
            assert_eq!(without(text), plain);
        }
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            without_in_words(&words("java --token hunter2 -Xmx1g")),
            words("java --token REMOVED -Xmx1g")
        );
        assert_eq!(without_in_words(&words("mysqld -phunter2 -P 1")), words("mysqld -pREMOVED -P 1"));
        let unit = "[Service]\nEnvironment=\"GLIBC_TUNABLES=glibc.malloc.hugetlb=1\"\nEnvironment=A=hunter2 B=c\nExecStart=/bin/x \
                    --password=hunter2 echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
        assert_eq!(without_in_file(unit), unit.replace("A=hunter2 B=c", REMOVED).replace("hunter2", REMOVED));
        for (name, kept) in [
            ("JAVA_TOOL_OPTIONS", true),
            ("ES_JAVA_OPTS", true),
            ("AWS_SECRET_ACCESS_KEY", false),
            ("PATH", false),
        ] {
            assert_eq!(keeps_variable(name), kept, "{name}");
        }
    }
}
