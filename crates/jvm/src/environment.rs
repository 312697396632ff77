//! What a process was started with: its environment, and the page flags of a JVM.

use std::collections::BTreeMap;

use hugewise_linux::root::Root;

/// The variables with which a process was started; empty if they cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    pub fn read(root: &Root, pid: u32) -> Environment {
        Environment::parse(&root.read_bytes(format!("proc/{pid}/environ")).unwrap_or_default())
    }

    pub fn parse(environ: &[u8]) -> Environment {
        let variable = |word: &[u8]| {
            let word = String::from_utf8_lossy(word);
            let (name, value) = word.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        };
        Environment(environ.split(|byte| *byte == 0).filter_map(variable).collect())
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The options in a variable, separated by commas.
    pub fn options(&self, name: &str) -> impl Iterator<Item = &str> {
        self.get(name).unwrap_or_default().split(',')
    }

    /// The restriction of an advice to set a variable that the process may have: programs that write their title over
    /// their environment hide it.
    pub fn doubt(&self) -> &'static str {
        if self.0.is_empty() { ", unless it has that already" } else { "" }
    }

    /// The value of a tunable of glibc.
    pub fn tunable(&self, name: &str) -> Option<&str> {
        let mut tunables = self.get("GLIBC_TUNABLES")?.split(':').filter_map(|one| one.split_once('='));
        tunables.rfind(|(one, _)| *one == name).map(|(_, value)| value)
    }

    /// The value of a switch of a JVM, such as `UseLargePages`; `None` if no option sets it. Of contradictory options
    /// the last one counts: JAVA_TOOL_OPTIONS, JDK_JAVA_OPTIONS, command line, _JAVA_OPTIONS. Files of options are
    /// not read.
    pub fn jvm_switch(&self, command: &[String], name: &str) -> Option<bool> {
        let words = |variable: &str| self.get(variable).unwrap_or_default().split_whitespace();
        let variables = words("JAVA_TOOL_OPTIONS").chain(words("JDK_JAVA_OPTIONS"));
        let all = variables.chain(command.iter().map(String::as_str)).chain(words("_JAVA_OPTIONS"));
        let value = |option: &str| match option.strip_prefix("-XX:")?.split_at_checked(1)? {
            ("+", switch) if switch == name => Some(true),
            ("-", switch) if switch == name => Some(false),
            _ => None,
        };
        all.filter_map(value).next_back()
    }

    /// Whether the JVM's flags request pages of a pool.
    pub fn jvm_wants_pool(&self, command: &[String]) -> bool {
        let is_on = |name| self.jvm_switch(command, name) == Some(true);
        is_on("UseLargePages") && !is_on("UseTransparentHugePages")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_flag_holds() {
        let wants = |line: &str| {
            let command: Vec<String> = line.split(' ').map(str::to_owned).collect();
            Environment::default().jvm_wants_pool(&command)
        };
        assert!(wants("java -XX:+UseLargePages A"));
        assert!(!wants("java -XX:+UseLargePages -XX:-UseLargePages A"));
        assert!(!wants("java -XX:+UseLargePages -XX:+UseTransparentHugePages A"));
        assert!(!wants("java -XX: -XX:é A"));
    }

    #[test]
    fn variables_are_options_too() {
        let environment = Environment::parse(
            b"JAVA_TOOL_OPTIONS=-XX:+UseLargePages -Xmx1g\0GLIBC_TUNABLES=a=1:glibc.malloc.hugetlb=1\0=\0x\0",
        );
        assert_eq!(environment.jvm_switch(&[], "UseLargePages"), Some(true));
        assert_eq!(environment.jvm_switch(&["-XX:-UseLargePages".to_owned()], "UseLargePages"), Some(false));
        assert_eq!(environment.tunable("glibc.malloc.hugetlb"), Some("1"));
        assert_eq!(environment.tunable("glibc.malloc"), None);
    }
}
