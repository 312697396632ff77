//! The words before `java`: programs that execute another command, and their changes to its environment.
//!
//! Source: the manual pages of GNU coreutils, util-linux, numactl, sudo, doas, tini, dumb-init and gosu;
//! POSIX for the shell's own words.

use std::{
    iter,
    path::{Path, PathBuf},
};

use super::{LaunchError, Variable, shell};

/// Programs that read scripts.
pub const SHELLS: [&str; 6] = ["sh", "bash", "dash", "ash", "ksh", "zsh"];

/// A program that executes the command after its own options and operands.
struct Wrapper {
    name: &'static str,
    /// Letters of short options with a value, which is the rest of the word or the next word.
    short: &'static str,
    /// Long options whose value is the next word, separated by blanks. Those with `=` need no entry.
    long: &'static str,
    /// Number of operands before the command.
    operands: usize,
    effect: Effect,
}

/// Effect on the JVM's flags.
#[derive(Clone, Copy, PartialEq)]
enum Effect {
    None,
    /// Changes the CPUs, memory or limits that the JVM sees.
    Machine,
    /// Changes the user as well, and possibly the environment.
    User,
}

const WRAPPERS: [Wrapper; 21] = [
    wrapper("nice", "n", "--adjustment", 0, Effect::None),
    wrapper("ionice", "cn", "--class --classdata", 0, Effect::None),
    wrapper("chrt", "TPD", "--sched-runtime --sched-period --sched-deadline", 1, Effect::None),
    wrapper("taskset", "", "", 1, Effect::Machine),
    wrapper("numactl", "ipPCNmw", NUMACTL, 0, Effect::Machine),
    wrapper("nohup", "", "", 0, Effect::None),
    wrapper("setsid", "", "", 0, Effect::None),
    wrapper("timeout", "ks", "--kill-after --signal", 1, Effect::None),
    wrapper("stdbuf", "ioe", "--input --output --error", 0, Effect::None),
    wrapper("time", "fo", "--format --output", 0, Effect::None),
    wrapper("prlimit", "", "", 0, Effect::Machine),
    wrapper("tini", "pe", "", 0, Effect::None),
    wrapper("tini-static", "pe", "", 0, Effect::None),
    wrapper("docker-init", "pe", "", 0, Effect::None),
    wrapper("dumb-init", "r", "--rewrite", 0, Effect::None),
    wrapper("catchsegv", "", "", 0, Effect::None),
    wrapper("sudo", "ughpCDRTUrtc", SUDO, 0, Effect::User),
    wrapper("doas", "uC", "", 0, Effect::User),
    wrapper("runuser", "ugG", "--user --group --supp-group", 0, Effect::User),
    wrapper("gosu", "", "", 1, Effect::User),
    wrapper("su-exec", "", "", 1, Effect::User),
];

const NUMACTL: &str = "--interleave --preferred --preferred-many --physcpubind --cpunodebind --membind \
                       --weighted-interleave --cpubind";
const SUDO: &str = "--user --group --host --prompt --close-from --chdir --chroot --command-timeout \
                    --other-user --role --type";

const fn wrapper(
    name: &'static str,
    short: &'static str,
    long: &'static str,
    operands: usize,
    effect: Effect,
) -> Wrapper {
    Wrapper { name, short, long, operands, effect }
}

/// Change to the environment, in order of execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EnvironmentChange {
    Clear,
    Unset(String),
    Set(String, String),
    Folder(String),
}

/// A command line, parsed up to `java`.
#[derive(Debug, Default)]
pub(super) struct ParsedWrapper {
    /// The words before `java`, without a shell.
    pub wrapper: Vec<String>,
    /// The words of the wrapper that the JVM's flags depend on.
    pub relevant_to_flags: Vec<String>,
    pub environment: Vec<EnvironmentChange>,
    /// Target of `env -C`, relative to the caller's directory; empty without `-C`.
    pub folder: PathBuf,
    /// Notes for the user: parts of the environment that cannot be known.
    pub cautions: Vec<String>,
    /// `java`, or the program that is looked for, and all words after it.
    pub rest: Vec<String>,
}

/// Parses a command line up to its `java`; `None` if it has none.
pub(super) fn walk(command: &[String]) -> Result<Option<ParsedWrapper>, LaunchError> {
    walk_to(command, &["java"], &is_java)
}

/// Parses a command line up to the first program with a file name that `is_program` accepts, which contains one of
/// `names`; `None` if it has none.
pub(super) fn walk_to(
    command: &[String],
    names: &[&str],
    is_program: &dyn Fn(&str) -> bool,
) -> Result<Option<ParsedWrapper>, LaunchError> {
    let mut parsed_wrapper = ParsedWrapper { rest: command.to_vec(), ..ParsedWrapper::default() };
    // A shell reads these words: assignments and its own commands may come first.
    let mut shell_reads = true;
    loop {
        let assignments =
            parsed_wrapper.rest.iter().take_while(|word| shell_reads && assignment(word).is_some()).count();
        if assignments > 0 {
            let words: Vec<String> = parsed_wrapper.rest.drain(..assignments).collect();
            let env: Vec<String> = iter::once("env".to_owned()).chain(words).collect();
            parsed_wrapper.environment.extend(changes(&env));
            parsed_wrapper.keep(env, true);
        }
        let Some(word) = parsed_wrapper.rest.first() else { return Ok(None) };
        let name = Path::new(word).file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if is_program(name) {
            if word.contains(['$', '`']) || word.starts_with('~') {
                return Err(LaunchError::Unexpanded { word: word.clone() });
            }
            return Ok(Some(parsed_wrapper));
        }
        match name {
            "exec" | "command" if shell_reads => {
                let own_name = usize::from(parsed_wrapper.rest.get(1).is_some_and(|word| word == "-a")) * 2;
                parsed_wrapper.rest.drain(..=own_name.min(parsed_wrapper.rest.len() - 1));
            }
            name if SHELLS.contains(&name) => {
                let Some(words) = script(&parsed_wrapper.rest, names)? else { return Ok(None) };
                parsed_wrapper.rest = words;
                shell_reads = true;
                continue;
            }
            "env" => parsed_wrapper.env()?,
            name => match WRAPPERS.iter().find(|wrapper| wrapper.name == name) {
                Some(wrapper) => parsed_wrapper.wrapped(wrapper),
                None => return Ok(None),
            },
        }
        shell_reads = false;
    }
}

impl ParsedWrapper {
    /// The value of a variable for the program, if the line is started in the environment `outer`.
    pub(super) fn variable(&self, name: &str, outer: &Variable<'_>) -> Option<String> {
        self.environment.iter().fold(outer(name), |value, change| match change {
            EnvironmentChange::Clear => None,
            EnvironmentChange::Unset(unset) if unset == name => None,
            EnvironmentChange::Set(set, to) if set == name => Some(to.clone()),
            _ => value,
        })
    }

    /// Appends words to the wrapper.
    fn keep(&mut self, words: Vec<String>, relevant_to_flags: bool) {
        if let Some((program, arguments)) = words.split_first().filter(|_| relevant_to_flags) {
            self.relevant_to_flags.push(self.absolute(program));
            self.relevant_to_flags.extend_from_slice(arguments);
        }
        self.wrapper.extend(words);
    }

    /// Path of a program for a caller in another directory; a name without a slash is found through `PATH`.
    pub(super) fn absolute(&self, program: &str) -> String {
        let path = std::path::absolute(self.folder.join(program)).ok().filter(|_| program.contains('/'));
        path.map_or(program.to_owned(), |path| path.to_string_lossy().into_owned())
    }

    fn wrapped(&mut self, wrapper: &Wrapper) {
        let mut length = options_length(&self.rest, wrapper.short, wrapper.long) + wrapper.operands;
        if wrapper.name == "sudo" {
            // Assignments may occur between its options and after them.
            while let Some(word) = self.rest.get(length) {
                let options = options_length(&self.rest[length - 1..], wrapper.short, wrapper.long) - 1;
                if options == 0 && assignment(word).is_none() {
                    break;
                }
                length += options.max(1);
            }
        }
        let words: Vec<String> = self.rest.drain(..length.min(self.rest.len())).collect();
        if wrapper.effect == Effect::User {
            self.cautions.push(format!(
                "{} may change the environment of the JVM: its configuration decides which variables it keeps",
                wrapper.name
            ));
            self.environment.extend(changes(&words));
        }
        let at = self.relevant_to_flags.len() + 1;
        self.keep(words, wrapper.effect != Effect::None);
        if matches!(wrapper.name, "sudo" | "doas") {
            // Without -n, sudo would wait for a password.
            self.relevant_to_flags.insert(at, "-n".to_owned());
        }
    }

    /// Parses `env` with its options and assignments.
    fn env(&mut self) -> Result<(), LaunchError> {
        // -S STRING is replaced by the words of STRING.
        while let Some((at, text, used)) = split_string(&self.rest) {
            let refused = |why| LaunchError::Script { script: text.clone(), why };
            if text.contains('\\') {
                return Err(refused("it contains a backslash"));
            }
            let words = shell::simple_command(&text).map_err(refused)?;
            self.rest.splice(at..at + used, words);
        }
        let options = options_length(&self.rest, "uC", "--unset --chdir");
        let options = options + usize::from(self.rest.get(options).is_some_and(|word| word == "-"));
        let behind = self.rest.get(options..).unwrap_or_default();
        let assignments = behind.iter().take_while(|word| assignment(word).is_some()).count();
        let length = (options + assignments).min(self.rest.len());
        let words: Vec<String> = self.rest.drain(..length).collect();
        let changes = changes(&words);
        let folder = changes.iter().rev().find_map(|change| match change {
            EnvironmentChange::Folder(folder) => Some(self.folder.join(folder)),
            _ => None,
        });
        self.environment.extend(changes);
        let in_any_folder = without_folder(&words);
        // Without other words, it would only start the next program.
        let is_needed = in_any_folder.len() > 1 || in_any_folder.len() == words.len();
        self.keep(words, false);
        if is_needed {
            self.relevant_to_flags.push(self.absolute(&in_any_folder[0]));
            self.relevant_to_flags.extend_from_slice(&in_any_folder[1..]);
        }
        self.folder = folder.unwrap_or_else(|| std::mem::take(&mut self.folder));
        Ok(())
    }
}

/// The words of `env` without its options for a folder, which not every `env` has.
fn without_folder(words: &[String]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-C" | "--chdir" => drop(words.next()),
            word if word.starts_with("--chdir=") || word.starts_with("-C") => {}
            _ => kept.push(word.clone()),
        }
    }
    kept
}

/// `-S STRING` among the options of `env`: its position, the string, and the number of words it takes.
fn split_string(words: &[String]) -> Option<(usize, String, usize)> {
    let mut at = 1;
    while let Some(word) = words.get(at) {
        if let Some(text) = word.strip_prefix("--split-string=") {
            return Some((at, text.to_owned(), 1));
        }
        if word == "--split-string" {
            return Some((at, words.get(at + 1)?.clone(), 2));
        }
        if word == "--" || word == "-" || !word.starts_with('-') {
            return None;
        }
        if let Some(cluster) = word.strip_prefix('-').filter(|cluster| !cluster.starts_with('-')) {
            // The letters before S are flags (-iS, -vS); -u and -C take the rest of the word as their value.
            let flags = cluster.find(|c| !matches!(c, 'i' | 'v' | '0')).unwrap_or(cluster.len());
            if let Some(text) = cluster.get(flags..).and_then(|rest| rest.strip_prefix('S')) {
                let text = text.strip_prefix('=').unwrap_or(text);
                // The flags before S disappear with the word; only -i matters.
                let clears = cluster.get(..flags).unwrap_or_default().contains('i');
                let (text, used) = match text {
                    "" => (words.get(at + 1)?.as_str(), 2),
                    text => (text, 1),
                };
                return Some((at, if clears { format!("-i {text}") } else { text.to_owned() }, used));
            }
        }
        at += option_length(word, "uC", "--unset --chdir");
    }
    None
}

/// Changes made by `env` or `sudo`: first its options, then its assignments.
fn changes(words: &[String]) -> Vec<EnvironmentChange> {
    let is_env = words.first().is_some_and(|word| word.ends_with("env"));
    let mut changes = Vec::new();
    let mut words = words.iter().skip(1);
    while let Some(word) = words.next() {
        if let Some((name, value)) = assignment(word) {
            changes.push(EnvironmentChange::Set(name.to_owned(), value.to_owned()));
        } else if !is_env {
            continue;
        } else if matches!(word.as_str(), "-" | "--ignore-environment") {
            changes.push(EnvironmentChange::Clear);
        } else if let Some(name) = word.strip_prefix("--unset=") {
            changes.push(EnvironmentChange::Unset(name.to_owned()));
        } else if word == "--unset" {
            changes.extend(words.next().cloned().map(EnvironmentChange::Unset));
        } else if let Some(folder) = word.strip_prefix("--chdir=") {
            changes.push(EnvironmentChange::Folder(folder.to_owned()));
        } else if word == "--chdir" {
            changes.extend(words.next().cloned().map(EnvironmentChange::Folder));
        } else if let Some(cluster) = word.strip_prefix('-').filter(|cluster| !cluster.starts_with('-')) {
            for (at, letter) in cluster.char_indices() {
                let attached = || cluster[at + 1..].to_owned();
                match letter {
                    'i' => changes.push(EnvironmentChange::Clear),
                    'u' | 'C' => {
                        let value = Some(attached()).filter(|value| !value.is_empty());
                        let value = value.or_else(|| words.next().cloned());
                        changes.extend(value.map(if letter == 'u' {
                            EnvironmentChange::Unset
                        } else {
                            EnvironmentChange::Folder
                        }));
                        break;
                    }
                    _ => {}
                }
            }
        }
    }
    changes
}

/// Words of the script of `sh -c SCRIPT`; `None` if the script contains none of `names`.
fn script(words: &[String], names: &[&str]) -> Result<Option<Vec<String>>, LaunchError> {
    let mut at = 1;
    let (mut is_script, mut login) = (false, false);
    while let Some(word) = words.get(at).filter(|word| word.starts_with(['-', '+']) && word.len() > 1) {
        at += 1;
        if word == "--" {
            break;
        }
        if let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.starts_with('-')) {
            is_script |= letters.contains('c');
            login |= letters.contains(['l', 'i']);
        }
        login |= word == "--login";
        // -o pipefail, -euo pipefail
        at += usize::from(!word.starts_with("--") && word.ends_with(['o', 'O']));
    }
    let Some(text) = words.get(at).filter(|_| is_script) else { return Ok(None) };
    if !names.iter().any(|name| text.contains(name)) {
        return Ok(None);
    }
    let refused = |why| LaunchError::Script { script: text.clone(), why };
    let words = shell::simple_command(text).map_err(refused)?;
    if login {
        return Err(refused("its shell first reads the user's startup files, which may set variables"));
    }
    Ok(Some(words))
}

/// Number of words of a program and its options.
fn options_length(words: &[String], short: &str, long: &str) -> usize {
    let mut at = 1;
    while let Some(word) = words.get(at).filter(|word| word.starts_with('-') && word.len() > 1) {
        at += option_length(word, short, long);
        if word == "--" {
            break;
        }
    }
    at
}

/// Number of words of an option: 2 if its value is the next word, otherwise 1.
fn option_length(word: &str, short: &str, long: &str) -> usize {
    let takes_next = if word.starts_with("--") {
        long.split(' ').any(|option| option == word)
    } else {
        // The first letter with a value takes the rest of the word.
        let mut letters = word.chars().skip(1).skip_while(|letter| !short.contains(*letter));
        letters.next().is_some() && letters.next().is_none()
    };
    1 + usize::from(takes_next)
}

/// Parses `NAME=VALUE`, as a shell and `env` do.
fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let is_name = !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then_some((name, value))
}

/// Whether a program of this name executes the command that follows its own options. Shells do not count.
pub(super) fn is_wrapper(name: &str) -> bool {
    matches!(name, "exec" | "command" | "env") || WRAPPERS.iter().any(|wrapper| wrapper.name == name)
}

/// Whether a program name is `java`, or a variant such as `java21` or `java-17`.
pub(super) fn is_java(name: &str) -> bool {
    name.strip_prefix("java")
        .is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == '.' || c == '-'))
}
