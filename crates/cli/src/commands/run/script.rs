//! A shell script that `run` starts: its JVMs take their options from a variable.

use std::{env, fs, path::PathBuf};

use hugewise_jvm::{
    jdks::{self, Environment},
    large_page_flags,
    launch::{self, Script, ScriptVariable},
};
use hugewise_linux::{hugepages::backing::Backing, root::Root, units::Bytes};
use hugewise_plan::backing_selection::{BackingRequest, BackingSupport, JvmAnswers};

use super::executable::find;

/// Longest part of a script that is read to find the variable.
const MAX_SCRIPT_BYTES: u64 = 64 << 10;

/// A script, and the variable that its JVMs take their options from.
pub struct ScriptTarget {
    pub script: Script,
    variable: ScriptVariable,
    /// Its present value, without flags about large pages.
    value: String,
    /// The flags about large pages that were removed from it.
    pub aside: Vec<String>,
}

impl ScriptTarget {
    /// `None` if the command starts no shell script.
    pub fn of(command: &[String], root: &Root) -> Option<ScriptTarget> {
        let beginning = |program: &str| {
            let file = std::path::absolute(find(program.as_ref()).ok()?).ok()?;
            let file = file.strip_prefix("/").unwrap_or(&file);
            Some(String::from_utf8_lossy(&root.beginning(file, MAX_SCRIPT_BYTES).ok()?).into_owned())
        };
        let script = Script::parse(command, &beginning)?;
        let variable = script.variable(java_release(root));
        let value = script.line().variable(variable.name, &|name| env::var(name).ok()).unwrap_or_default();
        let (value, aside) = launch::without_page_flags(&value).unwrap_or((value, Vec::new()));
        let aside = aside.into_iter().map(|flag| format!("{flag} of {}", variable.name)).collect();
        Some(ScriptTarget { script, variable, value, aside })
    }

    /// What its JVMs support; their demand is unknown until they start. `auto` takes no pool for them.
    pub fn answers(&self, wanted: &BackingRequest) -> JvmAnswers {
        let first = wanted.backing.filter(|backing| !matches!(backing, Backing::Thp | Backing::Base));
        let least = if wanted.backing == Some(Backing::Base) { None } else { Some(Backing::Thp) };
        let offer = |backing| BackingSupport {
            backing,
            options: large_page_flags::of_any_jvm(backing).map_err(String::from),
            pages: Vec::new(),
        };
        JvmAnswers {
            version: String::new(),
            collector: String::new(),
            max_heap: Bytes::ZERO,
            offers: first.into_iter().chain(least).chain([Backing::Base]).map(offer).collect(),
        }
    }

    /// The variable with these options behind its present value.
    pub fn assignment(&self, options: &[String]) -> (&'static str, String) {
        let words = [self.value.as_str()].into_iter().filter(|value| !value.is_empty());
        let words: Vec<&str> = words.chain(options.iter().map(String::as_str)).collect();
        (self.variable.name, words.join(" "))
    }

    /// The options, and the JVMs that get them.
    pub fn describe(&self, options: &[String]) -> String {
        let ScriptVariable { name, jvms, .. } = self.variable;
        format!("{name} of {} passes {} to {jvms}", self.script.name(), options.join(" "))
    }
}

/// The feature release of the `java` that scripts usually start: that of JAVA_HOME, or else of PATH; `None` if unknown.
fn java_release(root: &Root) -> Option<u32> {
    let environment = Environment::of_this_process();
    let in_home = environment.java_home.as_ref().map(|home| home.join("bin/java"));
    let java = in_home
        .map_or_else(|| find("java".as_ref()).ok(), Some)
        .and_then(|java: PathBuf| fs::canonicalize(java).ok())?;
    jdks::find(root, &environment).into_iter().find(|jdk| jdk.java == java).map(|jdk| jdk.major)
}
