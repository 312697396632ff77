//! The table of variables that `mariadbd --verbose --help` prints.

use std::collections::BTreeMap;

/// Variables that decide the size of the buffers, or that the server needs to start.
const OF_BUFFERS: [&str; 16] = [
    "aria-block-size",
    "aria-pagecache-buffer-size",
    "aria-pagecache-file-hash-size",
    "aria-pagecache-segments",
    "basedir",
    "character-sets-dir",
    "innodb-buffer-pool-chunk-size",
    "innodb-buffer-pool-instances",
    "innodb-buffer-pool-size",
    "innodb-buffer-pool-size-max",
    "innodb-log-buffer-size",
    "innodb-page-size",
    "key-buffer-size",
    "key-cache-block-size",
    "key-cache-segments",
    "lc-messages-dir",
];
/// Value of a variable that is not set.
const NOT_SET: &str = "(No default value)";

/// Values of variables by name, with dashes in the names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Variables(BTreeMap<String, String>);

impl Variables {
    /// Parses the table, which follows a line of dashes.
    pub(super) fn parse(help: &str) -> Variables {
        let rows = help.lines().skip_while(|line| !line.starts_with("-----")).skip(1);
        let rows = rows.take_while(|line| !line.is_empty());
        let rows = rows.filter_map(|line| line.split_once(char::is_whitespace));
        Variables(rows.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| *value != NOT_SET)
    }

    /// Options that set the variables of the buffers which differ from `defaults`.
    pub(super) fn options_of_buffers(&self, defaults: &Variables) -> Vec<String> {
        let differs = |name: &&&str| self.get(name) != defaults.get(name);
        let option = |name: &&str| Some(format!("--{name}={}", self.get(name)?));
        OF_BUFFERS.iter().filter(differs).filter_map(option).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELP: &str = "\
mariadbd  Ver 10.11.19
  --key-buffer-size=#  The size of the buffer

Variables (--variable-name=value)
and boolean options {FALSE|TRUE}                             Value (after reading options)
------------------------------------------------------------ -------------
innodb-buffer-pool-size                                      134217728
innodb-buffer-pool-size-max                                  8796093022208
large-pages                                                  FALSE
lc-messages-dir                                              (No default value)

To see what variables a running server is using, type
";

    #[test]
    fn the_table_ends_at_an_empty_line() {
        let variables = Variables::parse(HELP);
        assert_eq!(variables.0.len(), 4);
        assert_eq!(variables.get("large-pages"), Some("FALSE"));
        assert_eq!(variables.get("lc-messages-dir"), None);
        assert_eq!(Variables::parse("no table\n"), Variables::default());
    }

    #[test]
    fn only_changed_variables_of_buffers_become_options() {
        let defaults = Variables::parse(HELP);
        let changed = HELP.replace("134217728", "268435456").replace("FALSE", "TRUE");
        let changed = changed.replace("(No default value)", "/share");
        assert_eq!(
            Variables::parse(&changed).options_of_buffers(&defaults),
            ["--innodb-buffer-pool-size=268435456", "--lc-messages-dir=/share"]
        );
        assert!(defaults.options_of_buffers(&defaults).is_empty());
    }
}
