//! A program other than `java` that may start a JVM: a script, or a binary.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use hugewise_jvm::{
    jdks::{self, Environment},
    large_page_flags,
    launch::{self, LaunchError, LaunchLine, SHELLS},
};
use hugewise_linux::{c_library, executable::find, hugepages::backing::Backing, reading::Reason, root::Root};

use crate::{
    channel::{self, Channel},
    proof::PassedOptions,
    script_text::ScriptText,
};

/// Interpreters that read a script whose file is the first operand, by the beginnings of their names.
const INTERPRETERS: [&str; 4] = ["python", "perl", "ruby", "node"];

/// A program that may start JVMs, and the channel by which they take options.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// The words before it.
    pub wrapper: Vec<String>,
    /// The program with its arguments.
    pub words: Vec<String>,
    name: String,
    /// The text of a script; `None` for a binary.
    text: Option<ScriptText>,
    /// Whether it names a `java`: then it most likely starts one.
    names_java: bool,
    channel: Option<Channel>,
    /// The present value of its variable, without flags about large pages.
    value: String,
    /// The flags about large pages that were removed from it.
    aside: Vec<String>,
}

impl Launcher {
    /// `None` if the command names no program that is found.
    pub fn of(command: &[String], root: &Root) -> Option<Launcher> {
        let (wrapper, words) = launch::behind_wrappers(command)?;
        let StartedProgram { name, text, names_java } = StartedProgram::read(root, &words)?;
        let channel = match &text {
            Some(text) => Channel::choose(&name, text, java_release(root)),
            None => Some(Channel::of_every_jvm()),
        };
        let mut launcher = Launcher {
            wrapper,
            words,
            channel,
            name,
            text,
            names_java,
            value: String::new(),
            aside: Vec::new(),
        };
        if let Some(Channel { variable, .. }) = &launcher.channel {
            let line = launcher.line();
            let value = line.variable(variable, &|name| env::var(name).ok()).unwrap_or_default();
            let (value, aside) = launch::without_page_flags(&value).unwrap_or((value, Vec::new()));
            launcher.aside = aside.into_iter().map(|flag| format!("{flag} of {variable}")).collect();
            launcher.value = value;
        }
        Some(launcher)
    }

    /// The channel of the program that a service starts; `None` if it is a script that leaves no variable.
    pub fn channel_of_file(root: &Root, file: &Path) -> Option<Channel> {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        match ScriptText::of_script(root, &relative(file)) {
            Some(text) => Channel::choose(&name, &text, None),
            None => Some(Channel::of_every_jvm()),
        }
    }

    /// A `java` behind the same words, with the same environment.
    fn line(&self) -> LaunchLine {
        LaunchLine { wrapper: self.wrapper.clone(), java: "java".to_owned(), ..LaunchLine::default() }
    }

    /// The file name of the program; of a script, not of its interpreter.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it most likely starts a JVM.
    pub fn names_java(&self) -> bool {
        self.names_java
    }

    /// Whether it is a script, or names a `java`.
    pub fn is_known(&self) -> bool {
        self.text.is_some() || self.names_java
    }

    /// The options of the backing for a JVM that is not known.
    fn options(&self, backing: Backing) -> Result<Vec<String>, Reason> {
        let mut options = large_page_flags::of_any_jvm(backing)?;
        let overriding = self.channel.as_ref().and_then(|channel| channel.overriding(backing));
        options.extend(overriding.map(str::to_owned));
        Ok(options)
    }

    /// The variables with these options behind the present value of its variable, and without other flags about large
    /// pages in those of JVMs; also returns the flags that were removed.
    pub fn variables(&self, options: &[String]) -> (Vec<(String, String)>, Vec<String>) {
        let (variables, mut aside) = self.line().variables_without_page_flags(&|name| env::var(name).ok());
        let mut variables: Vec<(String, String)> =
            variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        aside.retain(|flag| !self.aside.contains(flag));
        aside.splice(0..0, self.aside.iter().cloned());
        if let Some(Channel { variable, .. }) = &self.channel {
            let words = [self.value.as_str()].into_iter().filter(|value| !value.is_empty());
            let words: Vec<&str> = words.chain(options.iter().map(String::as_str)).collect();
            variables.retain(|(name, _)| name != variable);
            variables.push((variable.clone(), words.join(" ")));
        }
        (variables, aside)
    }

    /// The words that start it with these variables, which are set after the wrapper.
    pub fn with_environment(&self, variables: &[(String, String)]) -> Vec<String> {
        let mut words = self.wrapper.clone();
        if !variables.is_empty() {
            words.push("env".to_owned());
            words.extend(variables.iter().map(|(name, value)| format!("{name}={value}")));
        }
        words.extend(self.words.iter().cloned());
        words
    }

    /// That the command line of its JVM is not known.
    pub fn unknown_command(&self) -> LaunchError {
        let why = match self.text {
            Some(_) => "it is a script in a file",
            None => "it is a program that names a java",
        };
        LaunchError::Script { script: self.name.clone(), why }
    }

    /// What is set, and for whom, without a claim that a JVM takes it; `None` for a program that is not expected to start
    /// one.
    pub fn describe(&self, options: &[String]) -> Option<String> {
        let (name, options) = (&self.name, options.join(" "));
        let Some(Channel { variable, jvms }) = &self.channel else {
            return Some(format!(
                "{name} drops or replaces every variable by which a JVM takes options: {options} cannot be passed to a \
                 JVM that it starts; add it to the options that {name} reads"
            ));
        };
        let text = self.text.as_ref();
        let own = text.map(ScriptText::page_flags).unwrap_or_default();
        let drops = text.is_some_and(|text| text.drops(channel::OF_EVERY_JVM));
        let mut described = match self.names_java {
            true => format!("{variable} of {name} has {options} for {jvms}"),
            false => {
                text?;
                format!("{name} names no java; {variable} has {options} for {jvms}, if any")
            }
        };
        if !own.is_empty() {
            described += &format!("; {name} itself has {}", own.join(" "));
        }
        if drops {
            described += &format!("; {name} drops {}", channel::OF_EVERY_JVM);
        }
        Some(described)
    }

    /// The options of a backing for its JVMs.
    pub fn passed(&self, backing: Backing) -> Result<PassedOptions, Reason> {
        Ok(PassedOptions {
            backing,
            variable: self.channel.as_ref().map(|channel| channel.variable.clone()),
            options: self.options(backing)?,
            other_variables: self.other_variables(),
        })
    }

    /// Variables with options of JVMs that the program reads, besides the one that was chosen.
    fn other_variables(&self) -> Vec<String> {
        let chosen = self.channel.as_ref().map(|channel| channel.variable.as_str());
        let all = self.text.as_ref().map(ScriptText::option_variables).unwrap_or_default();
        all.into_iter().filter(|variable| Some(variable.as_str()) != chosen).collect()
    }
}

/// A program that may start JVMs.
struct StartedProgram {
    /// Its file name; of a script, not of its interpreter.
    name: String,
    /// The text of a script; `None` for a binary.
    text: Option<ScriptText>,
    names_java: bool,
}

impl StartedProgram {
    fn read(root: &Root, words: &[String]) -> Option<StartedProgram> {
        let first = words.first()?;
        let name = file_name(first);
        let of_script = |name: &str, text: ScriptText| StartedProgram {
            name: name.to_owned(),
            names_java: text.names_java(),
            text: Some(text),
        };
        let is_shell = SHELLS.contains(&name);
        if is_shell || INTERPRETERS.iter().any(|interpreter| name.starts_with(interpreter)) {
            match operand(words, if is_shell { 'c' } else { 'e' }) {
                Some(Operand::Text(text)) => return Some(of_script(name, ScriptText::new(text))),
                Some(Operand::File(file)) => {
                    let path = relative(&std::path::absolute(file).ok()?);
                    if let Some(text) = ScriptText::of_file(root, &path) {
                        return Some(of_script(file_name(file), text));
                    }
                }
                None => {}
            }
        }
        let file = relative(&std::path::absolute(find(first.as_ref()).ok()?).ok()?);
        if let Some(text) = ScriptText::of_script(root, &file) {
            return Some(of_script(name, text));
        }
        let names_java = c_library::of_program(root, &file).is_ok_and(|program| program.names_java);
        Some(StartedProgram { name: name.to_owned(), text: None, names_java })
    }
}

/// The first operand of an interpreter.
enum Operand<'a> {
    Text(&'a str),
    File(&'a str),
}

/// The script of an interpreter, which gets it as text with option `letter`.
fn operand(words: &[String], letter: char) -> Option<Operand<'_>> {
    let is_option = |word: &&String| word.starts_with(['-', '+']);
    let operand = words.iter().skip(1).find(|word| !is_option(word))?;
    let options = words.iter().skip(1).take_while(is_option);
    let mut letters = options.filter_map(|word| word.strip_prefix('-').filter(|word| !word.starts_with('-')));
    Some(if letters.any(|letters| letters.contains(letter)) {
        Operand::Text(operand)
    } else {
        Operand::File(operand)
    })
}

fn relative(file: &Path) -> PathBuf {
    file.strip_prefix("/").unwrap_or(file).to_owned()
}

fn file_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    fn launcher(words: &[&str]) -> Option<Launcher> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Launcher::of(&words, &Root::live())
    }

    #[test]
    fn scripts_of_any_interpreter_are_read_behind_wrappers() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
            Ok::<_, std::io::Error>(path.display().to_string())
        };
        let python = write("launcher.py", "#!/usr/bin/env python3\nos.execv('/usr/bin/java', x)\n")?;
        let shim = write("python9", "#!/bin/sh\nexec pyenv exec python9 \"$@\"\n")?;
        let text = write("no-first-line", "exec java $CATALINA_OPTS Main\n")?;
        for (words, name, names_java, variable) in [
            (&[&*python][..], "launcher.py", true, "A_OPTIONS"),
            (&["python3", "-u", &python], "launcher.py", true, "A_OPTIONS"),
            (&["nice", "-n", "5", &shim, "x.py"], "python9", false, "A_OPTIONS"),
            (&["sh", &text, "run"], "no-first-line", true, "CATALINA_OPTS"),
            (&["sh", "-c", "exec java ${MAVEN_OPTS} Main"], "sh", true, "MAVEN_OPTS"),
            (&["bash", "-ec", "exec python3"], "bash", false, "A_OPTIONS"),
            (&["perl", "-e", "exec 'java', @ARGV"], "perl", true, "A_OPTIONS"),
            (&["/bin/sleep", "1"], "sleep", false, "JAVA_TOOL_OPTIONS"),
        ] {
            let found = launcher(words).ok_or_else(|| format!("{words:?}"))?;
            assert_eq!((found.name(), found.names_java()), (name, names_java), "{words:?}");
            let of_java = ["JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS"];
            let chosen = found.channel.as_ref().map(|channel| channel.variable.clone()).unwrap_or_default();
            assert!(
                chosen == variable || (variable == "A_OPTIONS" && of_java.contains(&&*chosen)),
                "{words:?}: {chosen}"
            );
        }
        assert!(
            launcher(&["/gone"]).is_none() || launcher(&["/gone"]).is_some_and(|gone| !gone.names_java())
        );
        Ok(())
    }

    #[test]
    fn a_script_whose_flags_come_first_gets_the_variable_that_comes_last() {
        let found = launcher(&["sh", "-c", "exec java -XX:+UseTransparentHugePages Main"]);
        let options = found.as_ref().and_then(|found| found.options(Backing::Base).ok());
        let expected = ["-XX:-UseLargePages", "-XX:-UseTransparentHugePages"];
        assert_eq!(options.as_deref(), Some(&expected.map(str::to_owned)[..]));
        let described = found.and_then(|found| found.describe(&["-X".to_owned()])).unwrap_or_default();
        assert!(described.contains("_JAVA_OPTIONS of sh has -X"), "{described}");
        assert!(described.contains("sh itself has -XX:+UseTransparentHugePages"), "{described}");
    }

    #[test]
    fn nothing_is_claimed_of_a_script_that_drops_all_variables() {
        let found = launcher(&["sh", "-c", "exec env -i java Main"]);
        let described = found.and_then(|found| found.describe(&["-X".to_owned()])).unwrap_or_default();
        assert!(described.contains("-X cannot be passed to a JVM"), "{described}");
    }
}
