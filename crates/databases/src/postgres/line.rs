//! The command line of a PostgreSQL server.
//!
//! Source: the options of `postgres` in PostgreSQL 15 (src/backend/postmaster/postmaster.c).

use super::PostgresError;

/// File names of the server's program.
pub const NAMES: [&str; 2] = ["postgres", "postmaster"];
/// Letters of options with a value.
const TAKES_VALUE: &str = "BCcDdfhkNprStW";
/// First arguments that start no server.
const NOT_A_SERVER: [&str; 10] = [
    "--single",
    "--boot",
    "--check",
    "--describe-config",
    "--version",
    "-V",
    "--help",
    "-?",
    "--forkchild",
    "-C",
];

/// The command line of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresLine {
    /// The program as given, with or without a path.
    pub program: String,
    /// Options without `-D`.
    pub options: Vec<String>,
    /// The folder of `-D` or `PGDATA`, which holds the configuration and usually the data.
    pub folder: String,
}

impl PostgresLine {
    /// Parses the words of a server; `pgdata` is the value of its variable `PGDATA`.
    pub fn parse(words: &[String], pgdata: Option<String>) -> Result<PostgresLine, PostgresError> {
        let (program, arguments) = words.split_first().ok_or(PostgresError::NoFolder)?;
        if let Some(first) = arguments.first().filter(|first| NOT_A_SERVER.contains(&first.as_str())) {
            return Err(PostgresError::NotAServer { option: first.clone() });
        }
        let (mut folder, mut options) = (pgdata, Vec::new());
        let mut left = arguments.iter();
        while let Some(word) = left.next() {
            let letters = word.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
            let with_value = letters.and_then(|letters| letters.find(|letter| TAKES_VALUE.contains(letter)));
            let Some((letters, at)) = letters.zip(with_value) else {
                options.push(word.clone());
                continue;
            };
            let (flags, option) = letters.split_at(at);
            let (letter, attached) = option.split_at(1);
            let is_folder = letter == "D";
            if letter == "C" {
                return Err(PostgresError::NotAServer { option: "-C".to_owned() });
            }
            let value = if attached.is_empty() { left.next().cloned() } else { Some(attached.to_owned()) };
            if is_folder {
                options.extend((!flags.is_empty()).then(|| format!("-{flags}")));
                folder = value;
            } else {
                options.push(format!("-{flags}{letter}"));
                options.extend(value);
            }
        }
        let folder = folder.filter(|folder| !folder.is_empty()).ok_or(PostgresError::NoFolder)?;
        Ok(PostgresLine { program: program.clone(), options, folder })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str, pgdata: Option<&str>) -> Result<PostgresLine, PostgresError> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        PostgresLine::parse(&words, pgdata.map(str::to_owned))
    }

    #[test]
    fn the_folder_and_the_other_options_are_separated() -> Result<(), PostgresError> {
        for (line, folder, options) in [
            ("postgres -D /data -c huge_pages=on", "/data", "-c huge_pages=on"),
            ("postgres -D/data -i -p 7", "/data", "-i -p 7"),
            ("postgres -iD /data -csort=D --huge_pages=on", "/data", "-i -c sort=D --huge_pages=on"),
            ("postgres -c -D -D a -D b", "b", "-c -D"),
            ("postgres -p 7", "/from-pgdata", "-p 7"),
        ] {
            let line = parsed(line, Some("/from-pgdata"))?;
            assert_eq!((line.folder.as_str(), line.options.join(" ").as_str()), (folder, options));
        }
        Ok(())
    }

    #[test]
    fn lines_that_start_no_server_are_refused() {
        for line in ["postgres --version", "postgres --single -D x", "postgres -D x -C port"] {
            assert!(matches!(parsed(line, None), Err(PostgresError::NotAServer { .. })), "{line}");
        }
        for line in ["postgres", "postgres -p 7", "postgres -D"] {
            assert!(matches!(parsed(line, None), Err(PostgresError::NoFolder)), "{line}");
        }
    }
}
