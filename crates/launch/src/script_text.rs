//! The text of a script: whether it starts a JVM, and what it does with variables.
//!
//! Nothing is executed, and nothing is expanded: a line counts by the words in it.

use std::path::Path;

use hugewise_linux::root::Root;
use regex::Regex;

/// Longest part of a script that is read, in bytes.
const MAX_SCRIPT_BYTES: u64 = 64 << 10;
/// Largest number of scripts that are read with the one that is started.
const MAX_SCRIPTS: usize = 8;

/// A script, with those of its folder that it names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScriptText(Vec<String>);

impl ScriptText {
    /// Text without comments.
    pub(crate) fn new(text: &str) -> ScriptText {
        let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        ScriptText(lines.map(str::to_owned).collect())
    }

    /// Reads a file that names its interpreter, and the scripts of its folder that it names. `path` is relative to the
    /// root. `None` for a binary.
    pub(crate) fn of_script(root: &Root, path: &Path) -> Option<ScriptText> {
        beginning(root, path).filter(|text| text.starts_with("#!"))?;
        ScriptText::of_file(root, path)
    }

    /// Reads a script, and those of its folder that it names by a path, as in `. "$HOME_OF_IT"/bin/env.sh`. `path` is
    /// relative to the root. `None` for a binary.
    pub(crate) fn of_file(root: &Root, path: &Path) -> Option<ScriptText> {
        let path = root.resolve(path).unwrap_or_else(|_| path.to_owned());
        let mut all = ScriptText::new(&beginning(root, &path)?);
        let folder = path.parent()?;
        let mut known = vec![path.file_name()?.to_string_lossy().into_owned()];
        let mut at = 0;
        while at < all.0.len() && known.len() < MAX_SCRIPTS {
            for name in names_of_files(&all.0[at]) {
                if known.len() >= MAX_SCRIPTS || known.contains(&name) {
                    continue;
                }
                let Some(text) = beginning(root, &folder.join(&name)) else { continue };
                known.push(name);
                all.0.extend(ScriptText::new(&text).0);
            }
            at += 1;
        }
        Some(all)
    }

    /// Whether it names a `java` or a variable with the path of one.
    pub(crate) fn names_java(&self) -> bool {
        self.matches(r"(?:^|[^\w.-])(?:java|JAVA|JAVA_HOME|JRE_HOME|JAVACMD|JAVA_CMD|JAVA_EXE)(?:$|[^\w.-])")
    }

    /// The flags about pages that it passes to its JVMs itself.
    pub(crate) fn page_flags(&self) -> Vec<String> {
        let flag = r"-XX:[+-](?:UseLargePages|UseTransparentHugePages|UseHugeTLBFS|UseSHM)\b";
        let mut found = Vec::new();
        if let Ok(flag) = Regex::new(flag) {
            for flag in self.0.iter().flat_map(|line| flag.find_iter(line)) {
                if !found.iter().any(|known| known == flag.as_str()) {
                    found.push(flag.as_str().to_owned());
                }
            }
        }
        found
    }

    /// Whether it passes the value of a variable on.
    pub(crate) fn reads(&self, variable: &str) -> bool {
        self.matches(&format!(
            r#"\$\{{?{variable}\b|environ\S*["']{variable}["']|ENV\S*\{{?["']?{variable}\b"#
        ))
    }

    /// Whether it removes the variable, or replaces its value, before its JVMs start.
    pub(crate) fn drops(&self, variable: &str) -> bool {
        // The value of `A="$A -x"` is kept.
        let is_kept =
            |line: &str| line.contains(&format!("${variable}")) || line.contains(&format!("${{{variable}"));
        let assigns = Regex::new(&format!(r#"^\s*(?:export\s+|local\s+)?{variable}="#));
        self.matches(&format!(
            r#"\bunset\b.*\b{variable}\b|\benv\b.*\s(?:-u|--unset)[ =]?{variable}\b|\benv\s+(?:-i|-|--ignore-environment)\s|(?:pop\(|\bdel\b|\bdelete\b).*\b{variable}\b"#
        )) || assigns.is_ok_and(|assigns| self.0.iter().any(|line| assigns.is_match(line) && !is_kept(line)))
    }

    /// Whether it has options of its own that it passes only if the variable is not set.
    pub(crate) fn has_default(&self, variable: &str) -> bool {
        self.matches(&format!(
            r#"\$\{{{variable}:?[-=]|-[zn]\s+"?\$\{{?{variable}\b|["']x?\$\{{?{variable}\}}?["']\s*!?==?\s*["']x?["']"#
        ))
    }

    /// The variables with options of JVMs that it reads, by the endings that are usual for their names.
    pub(crate) fn option_variables(&self) -> Vec<String> {
        let mut found = Vec::new();
        if let Ok(name) =
            Regex::new(r"\$\{?([A-Z][A-Z0-9_]*_(?:OPTS|JAVA_OPTIONS|JVM_OPTIONS|JVM_ARGS|JAVA_ARGS))\b")
        {
            for name in self.0.iter().flat_map(|line| name.captures_iter(line)) {
                if !found.contains(&name[1].to_owned()) {
                    found.push(name[1].to_owned());
                }
            }
        }
        found
    }

    fn matches(&self, pattern: &str) -> bool {
        Regex::new(pattern).is_ok_and(|pattern| self.0.iter().any(|line| pattern.is_match(line)))
    }
}

/// The text at the beginning of a file; `None` for other files. An archive may follow the text, as in an executable jar.
fn beginning(root: &Root, path: &Path) -> Option<String> {
    let mut read = root.beginning(path, MAX_SCRIPT_BYTES).ok()?;
    let text = read.iter().position(|byte| *byte == 0);
    if text.is_some() && !read.starts_with(b"#!") {
        return None;
    }
    read.truncate(text.unwrap_or(read.len()));
    Some(String::from_utf8_lossy(&read).into_owned())
}

/// The last names of the paths in a line.
fn names_of_files(line: &str) -> Vec<String> {
    let words = line.split(|c: char| c.is_whitespace() || "\"'`;()&|<>=".contains(c));
    let names = words.filter(|word| word.contains('/')).filter_map(|word| word.rsplit('/').next());
    let is_name = |name: &&str| {
        name.len() > 2
            && !name.starts_with('.')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    };
    names.filter(is_name).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_script_names_java_as_a_word_of_its_own() {
        for text in [
            "exec java -jar a.jar",
            "exec \"$JAVA_HOME/bin/java\" Main",
            "\"${JAVA}\" -cp x",
            "java = os.environ.get('X', '/usr/bin/java')",
            "exec \"$JAVACMD\" $ARGS",
        ] {
            assert!(ScriptText::new(text).names_java(), "{text}");
        }
        for text in [
            "exec python3 \"$@\"",
            "# starts java",
            "exec node javascript.js",
            "R CMD javareconf",
            "exec /opt/chromium --js-flags=x java-like",
            "rm x.java",
        ] {
            assert!(!ScriptText::new(text).names_java(), "{text}");
        }
    }

    #[test]
    fn variables_are_read_dropped_or_have_a_default() {
        // The text, and whether it reads A_OPTS, drops it, and has a default for it.
        for (text, reads, drops, default) in [
            ("exec java $A_OPTS Main", true, false, false),
            ("exec java ${A_OPTS} Main", true, false, false),
            ("unset A_OPTS", false, true, false),
            ("if x; then unset B A_OPTS; fi", false, true, false),
            ("A_OPTS=\"$A_OPTS -Xmx1g\"", true, false, false),
            ("A_OPTS=\"-Xmx1g\"\nexec java $A_OPTS", true, true, false),
            ("export A_OPTS=", false, true, false),
            ("exec env -u A_OPTS java", false, true, false),
            ("exec env -i PATH=/bin java", false, true, false),
            ("os.environ.pop('A_OPTS', None)", true, true, false),
            ("del os.environ[\"A_OPTS\"]", true, true, false),
            ("delete $ENV{A_OPTS};", true, true, false),
            ("opts = os.environ.get(\"A_OPTS\", \"\")", true, false, false),
            ("exec java ${A_OPTS:--Xmx1g}", true, false, true),
            ("if [ -z \"$A_OPTS\" ]; then A_OPTS=-Xmx1g; fi", true, false, true),
            ("if [ \"x$A_OPTS\" = \"x\" ]; then", true, false, true),
            ("exec java $A_OPTSX", false, false, false),
            ("# unset A_OPTS", false, false, false),
        ] {
            let script = ScriptText::new(text);
            let found = (script.reads("A_OPTS"), script.drops("A_OPTS"), script.has_default("A_OPTS"));
            assert_eq!(found, (reads, drops, default), "{text}");
        }
    }

    #[test]
    fn flags_and_variables_are_found_once() {
        let script = ScriptText::new(
            "G='-XX:+UseLargePages'\njava -XX:+UseLargePages -XX:-UseTransparentHugePages $SOLR_OPTS ${A_JAVA_OPTS} $SOLR_OPTS",
        );
        assert_eq!(script.page_flags(), ["-XX:+UseLargePages", "-XX:-UseTransparentHugePages"]);
        assert_eq!(script.option_variables(), ["SOLR_OPTS", "A_JAVA_OPTS"]);
    }

    #[test]
    fn scripts_of_its_folder_belong_to_it() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text);
        write("start", "#!/bin/sh\n. \"`dirname \"$0\"`\"/start-env\nexec \"$bin\"/start-main \"$@\"\n")?;
        write("start-env", "unset JAVA_TOOL_OPTIONS\n. $bin/start-env\n")?;
        write("start-main", "#!/bin/sh\nexec java $ES_JAVA_OPTS Main\n")?;
        write("other", "exec java $OTHER_OPTS\n")?;
        write("binary", "\u{7f}ELF\0")?;
        let root = Root::live();
        let path = |name: &str| folder.path().join(name).strip_prefix("/").map(Path::to_owned);
        let script = ScriptText::of_script(&root, &path("start")?).ok_or("no script")?;
        assert!(script.drops("JAVA_TOOL_OPTIONS") && script.reads("ES_JAVA_OPTS") && script.names_java());
        assert!(!script.reads("OTHER_OPTS"));
        assert_eq!(ScriptText::of_script(&root, &path("binary")?), None);
        write("app.jar", "#!/bin/sh\nexec \"$JAVA_HOME/bin/java\" -jar \"$0\"\nexit\nPK\u{3}\u{4}\0\0\u{8}")?;
        let jar = ScriptText::of_script(&root, &path("app.jar")?).ok_or("no script")?;
        assert!(jar.names_java(), "{jar:?}");
        assert_eq!(ScriptText::of_script(&root, &path("gone")?), None);
        Ok(())
    }
}
