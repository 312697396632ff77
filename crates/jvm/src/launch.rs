//! Launch lines: what a `java` command line asks of the JVM, and how to put a backing on it.
//!
//! Source of the syntax: the `java` command of JDK 25 (options that take the next word, argument
//! files, where the JVM's options end), and the launcher's JDK_JAVA_OPTIONS.

use std::path::Path;

/// Environment variables from which a JVM takes options, in the order in which they count:
/// the launcher's, then the JVM's before the command line, then the JVM's after it.
pub const OPTION_VARIABLES: [&str; 3] = ["JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"];

/// Options of the launcher whose value is the next word.
const TAKES_NEXT: [&str; 18] = [
    "-cp",
    "-classpath",
    "--class-path",
    "-p",
    "--module-path",
    "--upgrade-module-path",
    "--add-modules",
    "--enable-native-access",
    "--limit-modules",
    "--add-exports",
    "--add-opens",
    "--add-reads",
    "--patch-module",
    "--describe-module",
    "-d",
    "--source",
    "--finalization",
    "--illegal-native-access",
];

/// JVM flags that decide about large pages.
const PAGE_FLAGS: [&str; 6] = [
    "UseLargePages",
    "UseTransparentHugePages",
    "UseHugeTLBFS",
    "UseSHM",
    "LargePageSizeInBytes",
    "UseLargePagesIndividualAllocation",
];

/// A `java` command line, argument files opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchLine {
    /// The program, as it was given.
    pub java: String,
    /// The options before the main class, their values included.
    pub options: Vec<String>,
    /// `-jar FILE`, `-m MODULE`, or the main class, and the program's own arguments.
    pub program: Vec<String>,
}

/// An argument file could not be read.
#[derive(Debug, thiserror::Error)]
#[error("the argument file {file}: {source}")]
pub struct ArgumentFileError {
    file: String,
    source: std::io::Error,
}

impl LaunchLine {
    /// Reads a command line; nothing if its first word is not a `java`.
    pub fn parse(
        command: &[String],
        read: &dyn Fn(&str) -> std::io::Result<String>,
    ) -> Option<Result<LaunchLine, ArgumentFileError>> {
        let (java, words) = command.split_first()?;
        if Path::new(java).file_name()? != "java" {
            return None;
        }
        Some(expand(words, read).map(|words| LaunchLine::split(java, words)))
    }

    fn split(java: &str, mut options: Vec<String>) -> LaunchLine {
        let mut at = 0;
        while let Some(word) = options.get(at) {
            match word.as_str() {
                "-jar" | "-m" | "--module" => break,
                word if TAKES_NEXT.contains(&word) => at += 2,
                word if word.starts_with('-') => at += 1,
                _ => break,
            }
        }
        let program = options.split_off(at.min(options.len()));
        LaunchLine { java: java.to_owned(), options, program }
    }

    /// The same line with every flag about large pages set aside, and `flags` in their place;
    /// answers what was set aside too.
    #[must_use]
    pub fn with_page_flags(&self, flags: &[String]) -> (LaunchLine, Vec<String>) {
        let (aside, kept): (Vec<String>, Vec<String>) =
            self.options.iter().cloned().partition(|option| is_page_flag(option));
        let options = flags.iter().cloned().chain(kept).collect();
        (LaunchLine { options, ..self.clone() }, aside)
    }

    /// The options that decide how the JVM lays out its memory: those worth repeating when it is
    /// asked for its flags. Agents, logs, class paths and properties are not among them, for they
    /// could start something.
    pub fn memory_options(&self) -> impl Iterator<Item = &String> {
        self.options.iter().filter(|option| is_memory_option(option))
    }

    /// The whole line again.
    #[must_use]
    pub fn command(&self) -> Vec<String> {
        [std::slice::from_ref(&self.java), &self.options, &self.program].concat()
    }
}

/// Takes the flags about large pages out of the value of a variable of [`OPTION_VARIABLES`];
/// answers the new value and what was set aside, or nothing if there is no such flag in it.
#[must_use]
pub fn without_page_flags(value: &str) -> Option<(String, Vec<String>)> {
    let (aside, kept): (Vec<&str>, Vec<&str>) =
        value.split_whitespace().partition(|word| is_page_flag(word.trim_matches(['"', '\''])));
    (!aside.is_empty()).then(|| (kept.join(" "), aside.into_iter().map(str::to_owned).collect()))
}

/// The options of such a value that decide about the layout of memory, as [`LaunchLine::memory_options`].
pub fn memory_options_of(value: &str) -> impl Iterator<Item = &str> {
    value.split_whitespace().filter(|word| is_memory_option(word))
}

fn is_page_flag(option: &str) -> bool {
    let Some(flag) = option.strip_prefix("-XX:") else { return false };
    let name = flag.trim_start_matches(['+', '-']);
    let name = name.split_once('=').map_or(name, |(name, _)| name);
    PAGE_FLAGS.contains(&name)
}

fn is_memory_option(option: &str) -> bool {
    const STARTS_SOMETHING: [&str; 12] = [
        "-Xlog",
        "-Xloggc",
        "-Xrun",
        "-Xdebug",
        "-Xshare:dump",
        "-Xbootclasspath",
        "-XX:StartFlightRecording",
        "-XX:FlightRecorder",
        "-XX:OnError",
        "-XX:OnOutOfMemoryError",
        "-XX:ArchiveClassesAtExit",
        "-XX:CRaC",
    ];
    option.starts_with("-X") && !STARTS_SOMETHING.iter().any(|prefix| option.starts_with(prefix))
        || option == "-server"
}

/// Opens `@file` arguments, as the launcher does: not behind the main class, nor after
/// `--disable-@files`; `@@` stands for a plain `@`.
fn expand(
    words: &[String],
    read: &dyn Fn(&str) -> std::io::Result<String>,
) -> Result<Vec<String>, ArgumentFileError> {
    let mut expanded = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let main_class_seen = !LaunchLine::split("java", expanded.clone()).program.is_empty();
        if main_class_seen || word == "--disable-@files" {
            expanded.extend_from_slice(&words[at..]);
            break;
        }
        match word.strip_prefix('@') {
            Some(plain) if plain.starts_with('@') => expanded.push(plain.to_owned()),
            Some(file) if !file.is_empty() => {
                let text =
                    read(file).map_err(|source| ArgumentFileError { file: file.to_owned(), source })?;
                expanded.extend(argument_file(&text));
            }
            _ => expanded.push(word.clone()),
        }
    }
    Ok(expanded)
}

/// Words of an argument file: white space separates, `#` begins a comment, quotes keep white space,
/// a backslash escapes inside quotes, and at a line's end joins it with the next.
fn argument_file(text: &str) -> Vec<String> {
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
            (Some(_), '\n') => quote = None, // A quote left open ends with its line.
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

    fn line(text: &str) -> LaunchLine {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let files = |name: &str| match name {
            "opts" => Ok("-Xmx1g # the heap\n-cp \"/a dir/x.jar\" Main".to_owned()),
            _ => Err(std::io::ErrorKind::NotFound.into()),
        };
        LaunchLine::parse(&words, &files).expect("a java").expect("files")
    }

    #[test]
    fn options_end_where_the_program_begins() {
        for (text, options, program) in [
            ("java -Xmx1g Main -Xmx2g", vec!["-Xmx1g"], vec!["Main", "-Xmx2g"]),
            ("/opt/jdk/bin/java -cp a.jar:b.jar Main", vec!["-cp", "a.jar:b.jar"], vec!["Main"]),
            ("java -Dx=y -jar app.jar --port 80", vec!["-Dx=y"], vec!["-jar", "app.jar", "--port", "80"]),
            ("java -p mods -m app/app.Main", vec!["-p", "mods"], vec!["-m", "app/app.Main"]),
            ("java @opts arg", vec!["-Xmx1g", "-cp", "/a dir/x.jar"], vec!["Main", "arg"]),
            ("java Main @opts", vec![], vec!["Main", "@opts"]),
            ("java -cp", vec!["-cp"], vec![]),
        ] {
            let line = line(text);
            assert_eq!((line.options, line.program), (own(&options), own(&program)), "{text}");
        }
    }

    fn own(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn other_programs_and_lost_files_are_told_apart() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let none = |_: &str| Err(std::io::ErrorKind::NotFound.into());
        assert!(LaunchLine::parse(&words("javac X.java"), &none).is_none());
        let lost = LaunchLine::parse(&words("java @gone"), &none).expect("a java");
        assert!(lost.is_err_and(|error| error.to_string().contains("gone")));
    }

    #[test]
    fn page_flags_are_set_aside_and_replaced() {
        let line = line("java -XX:+UseLargePages -Xmx1g -XX:LargePageSizeInBytes=1g Main -XX:+UseLargePages");
        let (ours, aside) = line.with_page_flags(&own(&["-XX:+UseTransparentHugePages"]));
        assert_eq!(aside, ["-XX:+UseLargePages", "-XX:LargePageSizeInBytes=1g"]);
        let expected = ["java", "-XX:+UseTransparentHugePages", "-Xmx1g", "Main", "-XX:+UseLargePages"];
        assert_eq!(ours.command(), expected);
        assert_eq!(
            without_page_flags("-Da=b -XX:-UseLargePages  -Xms1g"),
            Some(("-Da=b -Xms1g".to_owned(), vec!["-XX:-UseLargePages".to_owned()]))
        );
        assert_eq!(without_page_flags("-XX:+UseLargePagesInMetaspace -Dx='a  b'"), None);
    }

    #[test]
    fn asking_for_flags_starts_nothing() {
        let line =
            line("java -Xmx1g -XX:+UseZGC -javaagent:a.jar -Xlog:gc -agentlib:jdwp=x -Dp=1 -Xrunhprof Main");
        assert_eq!(line.memory_options().collect::<Vec<_>>(), ["-Xmx1g", "-XX:+UseZGC"]);
    }

    proptest! {
        #[test]
        fn any_argument_file_is_split_without_panic(text in "(.|\n)*") {
            let _ = argument_file(&text);
        }

        #[test]
        fn any_command_survives_parse_and_print(words in prop::collection::vec("[^@].*", 0..8)) {
            let mut command = vec!["java".to_owned()];
            command.extend(words);
            let none = |_: &str| Err(std::io::ErrorKind::NotFound.into());
            if let Some(Ok(line)) = LaunchLine::parse(&command, &none) {
                prop_assert_eq!(line.command(), command);
            }
        }
    }
}
