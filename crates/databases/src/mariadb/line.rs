//! The command line of a MariaDB server.

use super::MariadbError;

/// File names of the server's program; `mysqld` may also be MySQL's.
pub const NAMES: [&str; 2] = ["mariadbd", "mysqld"];
/// Options that start no server.
const NOT_A_SERVER: [&str; 8] =
    ["--help", "-?", "--version", "-V", "--print-defaults", "--bootstrap", "--install", "--wsrep-recover"];
/// Options that select the option files; they precede all others.
const OF_OPTION_FILES: [&str; 2] = ["--no-defaults", "--defaults-"];

/// The command line of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MariadbLine {
    /// The program as given, with or without a path.
    pub program: String,
    pub options: Vec<String>,
}

impl MariadbLine {
    pub fn parse(words: &[String]) -> Result<MariadbLine, MariadbError> {
        let (program, options) = words.split_first().ok_or(MariadbError::NoProgram)?;
        match options.iter().find(|option| NOT_A_SERVER.contains(&option.as_str())) {
            Some(option) => Err(MariadbError::NotAServer { option: option.clone() }),
            None => Ok(MariadbLine { program: program.clone(), options: options.to_vec() }),
        }
    }

    /// The options that select the option files.
    pub(super) fn of_option_files(&self) -> &[String] {
        let is_first = |option: &String| OF_OPTION_FILES.iter().any(|name| option.starts_with(name));
        let count = self.options.iter().take_while(|option| is_first(option)).count();
        &self.options[..count]
    }
}

/// Value of the last `--user` of these options; `None` if they name no user.
pub(super) fn user(options: &[String]) -> Option<&str> {
    let value = |n: usize| match options[n].as_str() {
        "--user" | "-u" => options.get(n + 1).map(String::as_str),
        option => option
            .strip_prefix("--user=")
            .or_else(|| option.strip_prefix("-u"))
            .filter(|name| !name.is_empty()),
    };
    (0..options.len()).rev().find_map(value)
}

/// The options of key caches with names of their own: `--NAME.key_buffer_size=SIZE`.
pub(super) fn named_key_caches(options: &[String]) -> Vec<String> {
    let is_one = |option: &&String| {
        let setting = option.strip_prefix("--").and_then(|option| option.split_once('.'));
        setting.is_some_and(|(name, setting)| {
            let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            is_name && setting.replace('-', "_").starts_with("key_") && setting.contains('=')
        })
    };
    options.iter().filter(is_one).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn lines_that_start_no_server_are_refused() {
        for line in
            ["mariadbd --version", "mariadbd --datadir=x --help", "mariadbd --no-defaults --bootstrap"]
        {
            assert!(
                matches!(MariadbLine::parse(&words(line)), Err(MariadbError::NotAServer { .. })),
                "{line}"
            );
        }
        assert!(matches!(MariadbLine::parse(&[]), Err(MariadbError::NoProgram)));
    }

    #[test]
    fn options_of_option_files_come_first() -> Result<(), MariadbError> {
        for (line, count) in [
            ("mariadbd --no-defaults --large-pages", 1),
            ("mariadbd --defaults-file=a --defaults-group-suffix=b --user=c", 2),
            ("mariadbd --large-pages --defaults-file=a", 0),
        ] {
            assert_eq!(MariadbLine::parse(&words(line))?.of_option_files().len(), count, "{line}");
        }
        Ok(())
    }

    #[test]
    fn the_last_user_counts() {
        for (line, expected) in [
            ("--large-pages", None),
            ("--user=a --user b", Some("b")),
            ("-u a --port=7", Some("a")),
            ("--user=a -ub", Some("b")),
        ] {
            assert_eq!(user(&words(line)), expected, "{line}");
        }
    }

    #[test]
    fn key_caches_with_names_are_found() {
        let options =
            words("--key_buffer_size=1M --hot.key_buffer_size=2M --x.key-cache-block-size=1K --a.b=7");
        assert_eq!(named_key_caches(&options), ["--hot.key_buffer_size=2M", "--x.key-cache-block-size=1K"]);
    }
}
