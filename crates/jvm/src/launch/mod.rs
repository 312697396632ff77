//! Launch lines: what a `java` command line asks of the JVM, and how to put a backing on it.
//!
//! Source of the syntax: the `java` command of JDK 25 (options that take the next word, argument
//! files, where the JVM's options end), and the launcher's JDK_JAVA_OPTIONS.

mod argfile;
mod contradictions;
mod effective;
mod layout;
mod shell;
#[cfg(test)]
mod tests;
mod wrapper;

use std::{
    io,
    path::{Path, PathBuf},
};

use hugewise_linux::units::Bytes;

pub use argfile::LARGEST as LARGEST_FILE;
pub use contradictions::{Contradiction, contradictions};
pub use effective::{Effective, JvmOption, OptionSource};

/// Environment variables from which a JVM takes options: the launcher's (JDK 9 and later), whose
/// options stand before those of the command line; the JVM's before both; and the JVM's after all.
pub const OPTION_VARIABLES: [&str; 3] = ["JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"];

/// Reads a file by its name.
pub type Read<'a> = dyn Fn(&str) -> io::Result<String> + 'a;
/// The value of an environment variable.
pub type Variable<'a> = dyn Fn(&str) -> Option<String> + 'a;

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

/// A `java` command line, argument files opened and no shell in between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchLine {
    /// The words before `java`: `env A=1 taskset -c 0`. Assignments before a command and the script
    /// of `sh -c` stand here as the words that do the same without a shell.
    pub wrapper: Vec<String>,
    /// The program, as it was given.
    pub java: String,
    /// The options before the main class, their values included.
    pub options: Vec<String>,
    /// `-jar FILE`, `-m MODULE`, or the main class, and the program's own arguments.
    pub program: Vec<String>,
}

/// A launch line could not be understood.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// A file of options could not be read.
    #[error("the {kind} {file}: {source}")]
    File {
        /// What kind of file.
        kind: &'static str,
        /// Its name, as it was given.
        file: String,
        /// What the system answered.
        source: io::Error,
    },
    /// A file of options that is no such file.
    #[error("the {kind} {file} holds more than {limit}: is it the right file?")]
    TooLarge {
        /// What kind of file.
        kind: &'static str,
        /// Its name, as it was given.
        file: String,
        /// The most that is read.
        limit: Bytes,
    },
    /// A quote that is not closed; a JVM does not start with it.
    #[error("{of}: a quote is left open, and a JVM would not start; close it")]
    OpenQuote {
        /// A variable or a file.
        of: String,
    },
    /// Only a shell could tell what it starts.
    #[error(
        "what '{script}' starts cannot be known without running it: {why}; give the java command line that \
         it ends in (of a running JVM: tr '\\0' ' ' < /proc/PID/cmdline)"
    )]
    Script {
        /// The script.
        script: String,
        /// What stands in the way.
        why: &'static str,
    },
    /// A variable that a shell would have expanded.
    #[error("'{word}' still holds what a shell would expand; give the path of the java itself")]
    Unexpanded {
        /// The program, as it was given.
        word: String,
    },
    /// No `java` in it that could be seen.
    #[error("'{word}' is no java, and not known to start one{}", if *.mentioned {
        "; give the java command line that it ends in (of a running JVM: tr '\\0' ' ' < /proc/PID/cmdline)"
    } else {
        ""
    })]
    NotJava {
        /// The first word.
        word: String,
        /// Does a `java` stand further behind?
        mentioned: bool,
    },
}

impl LaunchLine {
    /// Reads a command line; nothing if it starts no `java` that could be seen.
    pub fn parse(command: &[String], read: &Read<'_>) -> Option<Result<LaunchLine, LaunchError>> {
        let walked = match wrapper::walk(command) {
            Ok(walked) => walked?,
            Err(error) => return Some(Err(error)),
        };
        let (java, words) = walked.rest.split_first()?;
        Some(argfile::expand(words, &from(&walked.folder, read)).map(|mut options| {
            let program = options.split_off(LaunchLine::options_end(&options));
            LaunchLine { wrapper: walked.wrapper, java: java.clone(), options, program }
        }))
    }

    /// The same for callers who need a `java`: anything else is an error that says what it is.
    pub fn of_java(command: &[String], read: &Read<'_>) -> Result<LaunchLine, LaunchError> {
        LaunchLine::parse(command, read).unwrap_or_else(|| {
            let is_java = |word: &String| wrapper::is_java(word.rsplit('/').next().unwrap_or_default());
            Err(LaunchError::NotJava {
                word: command.first().cloned().unwrap_or_default(),
                mentioned: command.iter().any(is_java),
            })
        })
    }

    /// How many of these words are options of the launcher and the JVM.
    fn options_end(words: &[String]) -> usize {
        let mut at = 0;
        while let Some(word) = words.get(at) {
            match word.as_str() {
                "-jar" | "-m" | "--module" => break,
                word if TAKES_NEXT.contains(&word) => at += 2,
                word if word.starts_with('-') => at += 1,
                _ => break,
            }
        }
        at.min(words.len())
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

    /// The same line with these values of variables, whatever its wrapper sets them to.
    #[must_use]
    pub fn with_environment(&self, variables: &[(&str, String)]) -> LaunchLine {
        let mut line = self.clone();
        if !variables.is_empty() {
            line.wrapper.push("env".to_owned());
            line.wrapper.extend(variables.iter().map(|(name, value)| format!("{name}={value}")));
        }
        line
    }

    /// Those of [`OPTION_VARIABLES`] that the JVM will see, given the environment in which the
    /// line is started; in that order.
    #[must_use]
    pub fn environment(&self, outer: &Variable<'_>) -> Vec<(&'static str, String)> {
        let changes = self.walked().environment;
        let value = |name: &str| {
            changes.iter().fold(outer(name), |value, change| match change {
                wrapper::Change::Clear => None,
                wrapper::Change::Unset(unset) if unset == name => None,
                wrapper::Change::Set(set, to) if set == name => Some(to.clone()),
                _ => value,
            })
        };
        OPTION_VARIABLES.into_iter().filter_map(|name| Some((name, value(name)?))).collect()
    }

    /// Those variables of [`LaunchLine::environment`] that hold flags about large pages, without them; and
    /// what was set aside, with its place.
    #[must_use]
    pub fn variables_without_page_flags(
        &self,
        outer: &Variable<'_>,
    ) -> (Vec<(&'static str, String)>, Vec<String>) {
        let (mut variables, mut aside) = (Vec::new(), Vec::new());
        for (name, value) in self.environment(outer) {
            if let Some((kept, taken)) = without_page_flags(&value) {
                variables.push((name, kept));
                aside.extend(taken.into_iter().map(|flag| format!("{flag} of {name}")));
            }
        }
        (variables, aside)
    }

    /// What cannot be known of the environment, and why; for a reader.
    #[must_use]
    pub fn cautions(&self) -> Vec<String> {
        self.walked().cautions
    }

    /// The line that asks the same `java` for its flags, with `options` and nothing of the program, to be
    /// started in the folder `here`: behind those words of the wrapper that the flags depend on (processors,
    /// limits, user, variables), and with the paths of programs absolute.
    pub(crate) fn asking(&self, options: Vec<String>, here: &Path) -> LaunchLine {
        let walked = self.walked();
        let java = walked.absolute(&self.java);
        let mut wrapper = walked.deciding;
        if !walked.folder.as_os_str().is_empty() {
            let back = ["env", "-C"].map(str::to_owned);
            wrapper.extend(back.into_iter().chain([here.to_string_lossy().into_owned()]));
        }
        LaunchLine { wrapper, java, options, program: Vec::new() }
    }

    /// The folder in which the JVM starts, relative to that of the caller; empty if it is the same.
    fn folder(&self) -> PathBuf {
        self.walked().folder
    }

    fn walked(&self) -> wrapper::Walked {
        let words: Vec<String> = self.wrapper.iter().cloned().chain(["java".to_owned()]).collect();
        wrapper::walk(&words).ok().flatten().unwrap_or_default()
    }

    /// The whole line again, fit to be started as it stands.
    #[must_use]
    pub fn command(&self) -> Vec<String> {
        let main = self.program.first().into_iter().cloned();
        let read_by_launcher = argfile::protect(self.options.iter().cloned().chain(main));
        let wrapper = self.wrapper.iter().chain([&self.java]).cloned();
        wrapper.chain(read_by_launcher).chain(self.program.iter().skip(1).cloned()).collect()
    }
}

/// Takes the flags about large pages out of the value of a variable of [`OPTION_VARIABLES`];
/// answers the new value and what was set aside, or nothing if there is no such flag in it, or
/// no JVM would take it.
#[must_use]
pub fn without_page_flags(value: &str) -> Option<(String, Vec<String>)> {
    let (aside, kept): (Vec<String>, Vec<String>) =
        shell::option_words(value, "").ok()?.into_iter().partition(|word| is_page_flag(word));
    (!aside.is_empty()).then(|| (shell::join_options(kept.iter().map(String::as_str)), aside))
}

/// These options as the value of a variable of [`OPTION_VARIABLES`].
#[must_use]
pub fn option_value(options: &[String]) -> String {
    shell::join_options(options.iter().map(String::as_str))
}

/// Reads files by names that are relative to `folder`.
fn from<'a>(folder: &'a Path, read: &'a Read<'_>) -> impl Fn(&str) -> io::Result<String> + 'a {
    move |name| read(&folder.join(name).to_string_lossy())
}

/// Reads a file of options, of no more than `limit` bytes.
fn open(file: &str, kind: &'static str, limit: usize, read: &Read<'_>) -> Result<String, LaunchError> {
    let text = read(file).map_err(|source| LaunchError::File { kind, file: file.to_owned(), source })?;
    if text.len() > limit {
        return Err(LaunchError::TooLarge { kind, file: file.to_owned(), limit: Bytes(limit as u64) });
    }
    Ok(text)
}

fn is_page_flag(option: &str) -> bool {
    let Some(flag) = option.strip_prefix("-XX:") else { return false };
    let name = flag.trim_start_matches(['+', '-']);
    let name = name.split_once('=').map_or(name, |(name, _)| name);
    PAGE_FLAGS.contains(&name)
}
