//! The variables that a service gets at its next start, from its configuration: what its processes have made of them
//! does not count.

use std::fs;

use super::{Unit, ask, environment_file};
use crate::{reading::Reason, sys::file};

/// Largest file for `EnvironmentFile=`, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Variables of a service, as configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitEnvironment {
    variables: Vec<(String, String)>,
    /// Names in `PassEnvironment=`, whose values are those of systemd's own environment.
    passed: Vec<String>,
}

impl UnitEnvironment {
    /// Asks systemd, and reads the files that it names. Fails if users other than root could have written one of them.
    pub fn read(unit: &Unit) -> Result<UnitEnvironment, Reason> {
        let property = |name: &str| {
            let answer = ask(&["show", "--property", name, "--value", "--", unit.name()]);
            answer.map_err(|error| Reason::new(error.to_string()))
        };
        let words_of = |name: &str| {
            let answer = property(name)?;
            words(&answer).ok_or_else(|| Reason::new(format!("{unit}: systemd reports {name} as {answer:?}")))
        };
        if property("NeedDaemonReload")?.trim() == "yes" {
            return Reason::err(format!(
                "the configuration of {unit} has changed since systemd has read it: systemctl daemon-reload"
            ));
        }
        let mut files = Vec::new();
        for (path, may_be_missing) in environment_files(&property("EnvironmentFiles")?) {
            let read = read_file(&path, may_be_missing);
            files.push(read.map_err(|why| Reason::new(format!("EnvironmentFile={path} of {unit}: {why}")))?);
        }
        let of_all = ask(&["show", "--property", "Environment", "--value"])
            .map(|answer| words(&answer).unwrap_or_default())
            .map_err(|error| Reason::new(error.to_string()))?;
        let mut environment = UnitEnvironment { passed: words_of("PassEnvironment")?, ..Self::default() };
        // Those of all services (`systemctl set-environment`), which those of this one override.
        for assignments in [of_all, words_of("Environment")?] {
            environment.assign(assignments.iter().filter_map(|word| word.split_once('=')));
        }
        for file in &files {
            environment.assign(file.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        }
        environment.unset(&words_of("UnsetEnvironment")?);
        Ok(environment)
    }

    /// The value of a variable; fails if only systemd's own environment has it.
    pub fn value(&self, name: &str) -> Result<Option<&str>, Reason> {
        let found = self.variables.iter().find(|(known, _)| known == name);
        match found {
            Some((_, value)) => Ok(Some(value)),
            None if self.passed.iter().any(|passed| passed == name) => Reason::err(format!(
                "PassEnvironment={name} takes the value from the environment of systemd, which hugewise does not read: \
                 set it with Environment="
            )),
            None => Ok(None),
        }
    }

    /// Later values replace earlier ones.
    fn assign<'a>(&mut self, assignments: impl Iterator<Item = (&'a str, &'a str)>) {
        for (name, value) in assignments {
            self.variables.retain(|(known, _)| known != name);
            self.variables.push((name.to_owned(), value.to_owned()));
        }
    }

    /// Removes variables by their names, or by names and values.
    fn unset(&mut self, words: &[String]) {
        self.variables.retain(|(name, value)| {
            !words.iter().any(|word| word == name || word.split_once('=') == Some((name, value)))
        });
        self.passed.retain(|name| !words.contains(name));
    }
}

/// The words of a list, each of which may be quoted as for a shell.
///
/// Source: `shell_maybe_quote` of systemd's src/basic/escape.c.
fn words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut rest = text.trim_end_matches('\n');
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_word(quoted)?,
            None => {
                let (word, after) = rest.split_at(rest.find(' ').unwrap_or(rest.len()));
                (word.to_owned(), after)
            }
        };
        words.push(word);
        rest = match after {
            "" => after,
            after => after.strip_prefix(' ')?,
        };
    }
    Some(words)
}

/// A word up to its closing quote, and the rest after it.
fn quoted_word(text: &str) -> Option<(String, &str)> {
    let mut word = Vec::new();
    let mut rest = text.as_bytes();
    loop {
        let (first, after) = rest.split_first()?;
        rest = after;
        match first {
            b'"' => {
                let after = text.get(text.len() - rest.len()..)?;
                return Some((String::from_utf8(word).ok()?, after));
            }
            b'\\' => {
                let (escaped, after) = rest.split_first()?;
                rest = after;
                let named = b"abfnrtv".iter().position(|name| name == escaped);
                match (escaped, named) {
                    (_, Some(at)) => word.push(*b"\x07\x08\x0c\n\r\t\x0b".get(at)?),
                    (b'"' | b'\\' | b'$' | b'`', None) => word.push(*escaped),
                    (b'0'..=b'3', None) => {
                        let (digits, after) = rest.split_at_checked(2)?;
                        let octal = format!("{}{}", char::from(*escaped), std::str::from_utf8(digits).ok()?);
                        word.push(u8::from_str_radix(&octal, 8).ok()?);
                        rest = after;
                    }
                    _ => return None,
                }
            }
            other => word.push(*other),
        }
    }
}

/// The files of `EnvironmentFile=`, and whether each may be missing.
fn environment_files(text: &str) -> Vec<(String, bool)> {
    let file = |line: &str| {
        let (path, rest) = line.rsplit_once(" (ignore_errors=")?;
        Some((path.to_owned(), rest == "yes)"))
    };
    text.lines().filter_map(file).collect()
}

/// The assignments of a file that only root can have written.
fn read_file(path: &str, may_be_missing: bool) -> Result<Vec<(String, String)>, Reason> {
    if path.contains(['*', '?', '[', '\\']) {
        return Reason::err("hugewise does not read patterns: name the files one by one");
    }
    let resolved = match fs::canonicalize(path) {
        Err(error) if may_be_missing && error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        resolved => resolved?,
    };
    file::check_owners(&resolved, 0)?;
    let file = file::open(&resolved)?;
    let text = String::from_utf8(file::content(file, MAX_FILE_BYTES)?);
    Ok(environment_file::parse(&text.map_err(|_| Reason::new("it is not UTF-8"))?))
}

#[cfg(test)]
mod tests {
    use std::{error::Error, os::unix::fs::PermissionsExt, process::Command};

    use super::*;
    use crate::sys::process;

    #[test]
    fn words_are_read_with_their_quotes() {
        let text = r#"A=b "C=d e" "D=\"\$x\" \\n \n\t\033" E= "F=ä '*'""#;
        let read = words(&format!("{text}\n"));
        let expected = ["A=b", "C=d e", "D=\"$x\" \\n \n\t\u{1b}", "E=", "F=ä '*'"];
        assert_eq!(read, Some(expected.map(str::to_owned).to_vec()));
        assert_eq!(words("\n"), Some(Vec::new()));
        for broken in ["\"open", "\"a\"b", "\"\\q\"", "\"\\0", "\"\\377\""] {
            assert_eq!(words(broken), None, "{broken}");
        }
    }

    #[test]
    fn files_override_assignments_and_removed_variables_are_missing() -> Result<(), Reason> {
        let mut environment = UnitEnvironment {
            passed: ["P", "A", "Q"].map(str::to_owned).to_vec(),
            ..UnitEnvironment::default()
        };
        environment.assign([("A", "1"), ("B", "2"), ("C", "3"), ("D", "4")].into_iter());
        environment.assign([("A", "5"), ("A", "6")].into_iter());
        environment.unset(&["B", "C=3", "D=5", "Q"].map(str::to_owned));
        assert_eq!(environment.value("A")?, Some("6"));
        assert_eq!((environment.value("B")?, environment.value("C")?), (None, None));
        assert_eq!((environment.value("D")?, environment.value("Q")?), (Some("4"), None));
        assert!(environment.value("P").is_err());
        Ok(())
    }

    #[test]
    fn only_files_of_root_are_read() -> Result<(), Box<dyn Error>> {
        if !process::is_root() {
            return Ok(());
        }
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("env");
        let named = path.display().to_string();
        assert!(read_file(&named, false).is_err() && read_file(&named, true)?.is_empty());
        fs::write(&path, "A=1\n")?;
        assert_eq!(read_file(&named, false)?, [("A".to_owned(), "1".to_owned())]);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
        assert!(read_file(&named, true).is_err());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
        std::os::unix::fs::chown(&path, Some(65534), None)?;
        assert!(read_file(&named, true).is_err());
        std::os::unix::fs::chown(&path, Some(0), None)?;
        // The user of the folder could put a link there, to a file of root with lines of its own.
        std::os::unix::fs::chown(dir.path(), Some(65534), None)?;
        assert!(read_file(&named, true).is_err());
        std::os::unix::fs::chown(dir.path(), Some(0), None)?;
        fs::write(&path, vec![b'#'; MAX_FILE_BYTES as usize + 1])?;
        assert!(read_file(&named, true).is_err());
        fs::remove_file(&path)?;
        assert!(Command::new("mkfifo").arg(&path).status()?.success());
        assert!(read_file(&named, true).is_err());
        Ok(())
    }
}
