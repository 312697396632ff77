//! Options for servers by name: `NAME=VALUE` is for one of them, `VALUE` for all that have no value of their own.

use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use hugewise_linux::hugepages::backing::{Backing, BackingError};

/// A value of `--backing`.
#[derive(Clone, Debug)]
pub struct BackingList {
    /// The server; `None` for all that have no list of their own.
    pub server: Option<String>,
    pub backings: Vec<Backing>,
}

impl FromStr for BackingList {
    type Err = BackingError;

    fn from_str(text: &str) -> Result<BackingList, BackingError> {
        let (server, list) = split(text);
        let backings = list.split(',').map(str::parse).collect::<Result<_, _>>()?;
        Ok(BackingList { server: server.map(str::to_owned), backings })
    }
}

/// `NAME=VALUE`, or `VALUE` if nothing before the first `=` is a name: lower-case letters, digits and `-`.
pub fn split(text: &str) -> (Option<&str>, &str) {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    match text.split_once('=') {
        Some((name, value)) if is_name(name) => (Some(name), value),
        _ => (None, text),
    }
}

/// Checks a name that `option` gives to a server.
pub fn check(option: &str, name: &str, servers: &[&str]) -> anyhow::Result<()> {
    if servers.contains(&name) {
        return Ok(());
    }
    match servers {
        [] => bail!("{option} {name}=…: no server has a name; give it one: --server {name}='CMD'"),
        _ => bail!("{option} {name}=…: no server is called {name}; the servers are {}", servers.join(", ")),
    }
}

/// The value of `option` for `server`, one of the `servers` with names; `None` if there is none. Without names all
/// values are taken as they are.
pub fn value<'v>(
    option: &str,
    values: &'v [String],
    server: &str,
    servers: &[&str],
) -> anyhow::Result<Option<&'v str>> {
    let (mut own, mut of_all) = (None, None);
    for text in values {
        let (name, value) = if servers.is_empty() { (None, text.as_str()) } else { split(text) };
        if let Some(name) = name {
            check(option, name, servers).with_context(|| {
                format!(
                    "a value with '=' begins with the name of its server, as in {option} {server}='{text}'"
                )
            })?;
        }
        let known = match name {
            Some(name) if name != server => continue,
            Some(_) => &mut own,
            None => &mut of_all,
        };
        ensure!(
            known.is_none(),
            "{option} is given twice{}",
            name.map(|name| format!(" for {name}")).unwrap_or_default()
        );
        *known = Some(value);
    }
    Ok(own.or(of_all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_precedes_its_value() {
        for (text, name, value) in [
            ("db=postgres -D data", Some("db"), "postgres -D data"),
            ("app-2=java -Da=b -jar x", Some("app-2"), "java -Da=b -jar x"),
            ("java -Da=b -jar x", None, "java -Da=b -jar x"),
            ("JAVA_HOME=/opt java -jar x", None, "JAVA_HOME=/opt java -jar x"),
            ("redis-server", None, "redis-server"),
            ("=x", None, "=x"),
        ] {
            assert_eq!(split(text), (name, value));
        }
    }

    #[test]
    fn backings_are_those_of_one_server_or_of_all() -> Result<(), BackingError> {
        let list: BackingList = "db=base,hugetlb:2MiB".parse()?;
        assert_eq!((list.server.as_deref(), list.backings.len()), (Some("db"), 2));
        assert_eq!("thp".parse::<BackingList>()?.server, None);
        assert!("db=base,4k".parse::<BackingList>().is_err() && "db=".parse::<BackingList>().is_err());
        Ok(())
    }

    #[test]
    fn each_server_has_its_value_or_that_of_all() -> anyhow::Result<()> {
        let values = ["db=1".to_owned(), "2".to_owned()];
        let servers = ["db", "app"];
        assert_eq!(value("--ready", &values, "db", &servers)?, Some("1"));
        assert_eq!(value("--ready", &values, "app", &servers)?, Some("2"));
        assert_eq!(value("--ready", &values[..1], "app", &servers)?, None);
        assert_eq!(value("--ready", &["state=up".to_owned()], "", &[])?, Some("state=up"));
        Ok(())
    }

    #[test]
    fn a_value_that_is_for_no_server_or_given_twice_is_refused() {
        let error = |values: &[&str]| {
            let values: Vec<String> = values.iter().map(|text| (*text).to_owned()).collect();
            value("--ready", &values, "db", &["db", "app"]).err().map(|error| format!("{error:#}"))
        };
        let unknown = error(&["bd=1"]).unwrap_or_default();
        assert!(unknown.contains("no server is called bd; the servers are db, app"), "{unknown}");
        assert!(error(&["db=1", "db=2"]).is_some_and(|text| text.contains("twice for db")));
        assert!(error(&["1", "2"]).is_some_and(|text| text.contains("twice")));
        assert!(
            check("--backing", "db", &[]).is_err_and(|error| error.to_string().contains("--server db='CMD'"))
        );
    }
}
