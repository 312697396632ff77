//! Launch lines: parses a `java` command line, and changes its backing.
//!
//! Source of the syntax: the `java` command of JDK 25 (options that take the next word, argument files, end
//! of the JVM's options), and the launcher's JDK_JAVA_OPTIONS.

mod argfile;
mod contradictions;
mod effective;
mod layout;
mod shell;
#[cfg(test)]
mod tests;
mod wrapper;

use std::{fmt, io, path::Path};

use hugewise_linux::{sys::file, units::Bytes};

pub use argfile::MAX_ARGFILE_BYTES as MAX_OPTION_FILE_BYTES;
pub use contradictions::{Contradiction, contradictions};
pub use effective::{EffectiveOptions, JvmOption, OptionSource};
pub use shell::{option_value, option_words};
pub use wrapper::SHELLS;

/// Environment variables with JVM options. Those of JDK_JAVA_OPTIONS (read by the launcher, JDK 9 and later)
/// precede the options of the command line, those of JAVA_TOOL_OPTIONS precede both, those of _JAVA_OPTIONS
/// follow all.
pub const OPTION_VARIABLES: [&str; 3] = ["JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"];

/// Returns the content of a file.
pub type Read<'a> = dyn Fn(&str) -> io::Result<String> + 'a;
/// Returns the value of an environment variable; `None` if it is not set.
pub type Variable<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Launcher options whose value is the next word.
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

/// JVM flags that decide the page size.
const PAGE_FLAGS: [&str; 6] = [
    "UseLargePages",
    "UseTransparentHugePages",
    "UseHugeTLBFS",
    "UseSHM",
    "LargePageSizeInBytes",
    "UseLargePagesIndividualAllocation",
];

/// A `java` command line, with argument files expanded and without a shell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchLine {
    /// The words before `java`: `env A=1 taskset -c 0`. A shell's assignments and the script of `sh -c` are
    /// replaced by equivalent words without a shell.
    pub wrapper: Vec<String>,
    /// `java` as given, with or without a path.
    pub java: String,
    /// Options before the main class, with their values.
    pub options: Vec<String>,
    /// `-jar FILE`, `-m MODULE` or the main class, and the program's own arguments.
    pub program: Vec<String>,
}

/// Why a launch line could not be parsed.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("the {kind} {file}: {source}")]
    File { kind: &'static str, file: String, source: io::Error },
    #[error("the {kind} {file} is larger than {limit}; check its name")]
    TooLarge { kind: &'static str, file: String, limit: Bytes },
    /// A quote that is not closed; a JVM with it does not start.
    #[error("{of}: a quote is not closed, and the JVM would not start; close it")]
    OpenQuote {
        /// A variable or a file.
        of: String,
    },
    /// The words depend on the execution of a shell script.
    #[error(
        "the command that '{script}' starts is unknown until a shell runs it: {why}; give the final java command \
         line; 'hugewise plan --pid PID' shows that of a running JVM"
    )]
    Script {
        script: String,
        /// Why they cannot be known.
        why: &'static str,
    },
    /// The path of `java` contains an unexpanded variable or `~`.
    #[error("'{word}' contains a shell expansion; give the path of java itself")]
    Unexpanded { word: String },
    /// The command starts no recognizable `java`.
    #[error(
        "'{word}' is neither java nor a program known to start it; give the final java command line, or start it and \
         plan for the running JVM: hugewise plan --pid PID"
    )]
    NotJava { word: String },
}

impl LaunchLine {
    /// Parses a command line; `None` if it starts no recognizable `java`.
    pub fn parse(command: &[String], read: &Read<'_>) -> Option<Result<LaunchLine, LaunchError>> {
        let parsed_wrapper = match wrapper::walk(command) {
            Ok(parsed_wrapper) => parsed_wrapper?,
            Err(error) => return Some(Err(error)),
        };
        let (java, words) = parsed_wrapper.rest.split_first()?;
        Some(argfile::expand(words, &from(&parsed_wrapper.folder, read)).map(|mut options| {
            let end = LaunchLine::options_end(&options, 0).min(options.len());
            let program = options.split_off(end);
            LaunchLine { wrapper: parsed_wrapper.wrapper, java: java.clone(), options, program }
        }))
    }

    /// Like [`LaunchLine::parse`], with an error if the command starts no recognizable `java`.
    pub fn of_java(command: &[String], read: &Read<'_>) -> Result<LaunchLine, LaunchError> {
        LaunchLine::parse(command, read).unwrap_or_else(|| {
            Err(LaunchError::NotJava { word: command.first().cloned().unwrap_or_default() })
        })
    }

    /// Number of words that are options of the launcher or the JVM, of which `at` are known already; one more than all
    /// words if the value of the last option is missing.
    fn options_end(words: &[String], mut at: usize) -> usize {
        while let Some(word) = words.get(at) {
            match word.as_str() {
                "-jar" | "-m" | "--module" => break,
                word if takes_next(word) => at += 2,
                word if word.starts_with('-') => at += 1,
                _ => break,
            }
        }
        at
    }

    /// This line with `flags` in place of its own flags about large pages; also returns the flags that were
    /// removed.
    pub fn with_page_flags(&self, flags: &[String]) -> (LaunchLine, Vec<String>) {
        let (aside, kept): (Vec<String>, Vec<String>) =
            self.options.iter().cloned().partition(|option| is_page_flag(option));
        let options = flags.iter().cloned().chain(kept).collect();
        (LaunchLine { options, ..self.clone() }, aside)
    }

    /// This line with these values of variables, which override those of its wrapper.
    pub fn with_environment(&self, variables: &[(impl fmt::Display, String)]) -> LaunchLine {
        let mut line = self.clone();
        if !variables.is_empty() {
            line.wrapper.push("env".to_owned());
            line.wrapper.extend(variables.iter().map(|(name, value)| format!("{name}={value}")));
        }
        line
    }

    /// The value of a variable for the JVM, if the line is started in the environment `outer`.
    pub fn variable(&self, name: &str, outer: &Variable<'_>) -> Option<String> {
        self.parsed_wrapper().variable(name, outer)
    }

    /// Those of [`OPTION_VARIABLES`] that the JVM sees if the line is started in the environment `outer`, in
    /// that order.
    pub fn environment(&self, outer: &Variable<'_>) -> Vec<(&'static str, String)> {
        let wrapper = self.parsed_wrapper();
        let value = |name| Some((name, wrapper.variable(name, outer)?));
        OPTION_VARIABLES.into_iter().filter_map(value).collect()
    }

    /// Those variables of [`LaunchLine::environment`] that contain flags about large pages, without these
    /// flags; also returns the removed flags with their variables.
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

    /// Notes for the user: parts of the environment that cannot be known, and why.
    pub fn cautions(&self) -> Vec<String> {
        self.parsed_wrapper().cautions
    }

    /// The line that starts the same `java` in any directory to print its flags, with `options` and without the
    /// program. Keeps those words of the wrapper that the flags depend on (CPUs, limits, user, variables), and makes the
    /// paths of programs absolute.
    pub(crate) fn flags_line(&self, options: Vec<String>) -> LaunchLine {
        let parsed_wrapper = self.parsed_wrapper();
        let java = parsed_wrapper.absolute(&self.java);
        LaunchLine { wrapper: parsed_wrapper.relevant_to_flags, java, options, program: Vec::new() }
    }

    /// The names of the programs of its wrapper, in order.
    pub(crate) fn wrapper_programs(&self) -> Vec<String> {
        let names = self.wrapper.iter().filter_map(|word| Path::new(word).file_name()?.to_str());
        names.filter(|name| wrapper::is_wrapper(name)).map(str::to_owned).collect()
    }

    fn parsed_wrapper(&self) -> wrapper::ParsedWrapper {
        let words: Vec<String> = self.wrapper.iter().cloned().chain(["java".to_owned()]).collect();
        wrapper::walk(&words).ok().flatten().unwrap_or_default()
    }

    /// The words of the line, ready to be executed.
    pub fn command(&self) -> Vec<String> {
        let main = self.program.first().into_iter().cloned();
        let read_by_launcher = argfile::protect(self.options.iter().cloned().chain(main));
        let wrapper = self.wrapper.iter().chain([&self.java]).cloned();
        wrapper.chain(read_by_launcher).chain(self.program.iter().skip(1).cloned()).collect()
    }
}

/// A program behind wrappers such as `sudo -u postgres`, `env A=1` or `sh -c`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrappedProgram {
    /// The program and its arguments.
    pub words: Vec<String>,
    /// Values of the requested variables for the program; `None` for those that are not set.
    pub variables: Vec<Option<String>>,
}

/// Finds the first program with one of these file names in a command line, and the values that `variables` have for
/// it; `None` if it has none.
pub fn find_program(
    command: &[String],
    names: &[&str],
    variables: &[&str],
    outer: &Variable<'_>,
) -> Result<Option<WrappedProgram>, LaunchError> {
    let parsed = wrapper::walk_to(command, names, &|name| names.contains(&name))?;
    Ok(parsed.map(|parsed| WrappedProgram {
        variables: variables.iter().map(|name| parsed.variable(name, outer)).collect(),
        words: parsed.rest,
    }))
}

/// The wrappers at the beginning of a command line, and the program behind them with its arguments; `None` if the line
/// ends with a wrapper.
pub fn behind_wrappers(command: &[String]) -> Option<(Vec<String>, Vec<String>)> {
    let parsed = wrapper::walk_to(command, &[], &|name| !wrapper::is_wrapper(name)).ok()??;
    Some((parsed.wrapper, parsed.rest))
}

/// Removes the flags about large pages from the value of a variable of [`OPTION_VARIABLES`]; returns the new
/// value and the removed flags. `None` if it contains no such flag, or if a JVM would refuse it.
pub fn without_page_flags(value: &str) -> Option<(String, Vec<String>)> {
    let (aside, kept): (Vec<String>, Vec<String>) =
        option_words(value, "").ok()?.into_iter().partition(|word| is_page_flag(word));
    (!aside.is_empty()).then(|| (option_value(&kept), aside))
}

/// Reads files with names relative to `folder`.
fn from<'a>(folder: &'a Path, read: &'a Read<'_>) -> impl Fn(&str) -> io::Result<String> + 'a {
    move |name| read(&folder.join(name).to_string_lossy())
}

/// Reads a file of options that a command line or variable names, in the folder of this process.
pub fn read_option_file(name: &str) -> io::Result<String> {
    let text = file::read(Path::new(name), MAX_OPTION_FILE_BYTES as u64)?;
    String::from_utf8(text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Reads a file of options, of at most `limit` bytes.
fn open(file: &str, kind: &'static str, limit: usize, read: &Read<'_>) -> Result<String, LaunchError> {
    let text = read(file).map_err(|source| LaunchError::File { kind, file: file.to_owned(), source })?;
    if text.len() > limit {
        return Err(LaunchError::TooLarge { kind, file: file.to_owned(), limit: Bytes(limit as u64) });
    }
    Ok(text)
}

fn takes_next(option: &str) -> bool {
    TAKES_NEXT.contains(&option)
}

fn is_page_flag(option: &str) -> bool {
    option.strip_prefix("-XX:").is_some_and(|flag| PAGE_FLAGS.contains(&layout::flag_name(flag)))
}
