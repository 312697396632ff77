//! The start of a shell script on a backing: its JVMs take their options from a variable.

use std::{env, fs, path::PathBuf};

use hugewise_linux::{executable::find, root::Root};

use crate::{
    jdks::{self, Environment},
    launch::{self, LaunchError, Script, ScriptVariable},
};

/// Longest part of a script that is read to find the variable.
const MAX_SCRIPT_BYTES: u64 = 64 << 10;

/// A script, and the variable that its JVMs take their options from.
#[derive(Clone, Debug)]
pub struct ScriptLaunch {
    pub script: Script,
    variable: ScriptVariable,
    /// Its present value, without flags about large pages.
    value: String,
    /// The flags about large pages that were removed from it.
    aside: Vec<String>,
}

impl ScriptLaunch {
    /// `None` if the command starts no shell script.
    pub fn of(command: &[String], root: &Root) -> Option<ScriptLaunch> {
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
        Some(ScriptLaunch { script, variable, value, aside })
    }

    /// The variables with these options behind the present value of its variable, and without other flags about large
    /// pages in those of JVMs; also returns the flags that were removed.
    pub fn variables(&self, options: &[String]) -> (Vec<(&'static str, String)>, Vec<String>) {
        let (mut variables, mut aside) =
            self.script.line().variables_without_page_flags(&|name| env::var(name).ok());
        aside.retain(|flag| !self.aside.contains(flag));
        aside.splice(0..0, self.aside.iter().cloned());
        let words = [self.value.as_str()].into_iter().filter(|value| !value.is_empty());
        let words: Vec<&str> = words.chain(options.iter().map(String::as_str)).collect();
        variables.retain(|(name, _)| *name != self.variable.name);
        variables.push((self.variable.name, words.join(" ")));
        (variables, aside)
    }

    /// That the command line of its JVM is not known.
    pub fn unknown_command(&self) -> LaunchError {
        LaunchError::Script { script: self.script.name().to_owned(), why: "it is a script in a file" }
    }

    /// Whether it is known to start a JVM.
    pub fn is_of_jvm(&self) -> bool {
        self.variable.is_of_launcher()
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
