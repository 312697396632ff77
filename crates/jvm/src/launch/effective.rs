//! All options that a JVM will finally have, in the order in which they count.
//!
//! Source: the `java` command's page of JDK 25, and JDK 17 and 25 as they were seen to behave:
//! JAVA_TOOL_OPTIONS, JDK_JAVA_OPTIONS, the command line, _JAVA_OPTIONS; of a repeated option the
//! last one counts. A file named by `-XX:VMOptionsFile` stands where it is named; the settings of
//! `-XX:Flags` come before everything.

use hugewise_linux::units::Bytes;

use super::{LARGEST_FILE, LaunchError, LaunchLine, Read, Variable, argfile, shell};

/// Where an option stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionSource {
    /// On the command line, or in an argument file named there.
    CommandLine,
    /// In a variable of [`super::OPTION_VARIABLES`].
    Variable(&'static str),
    /// In the file that `-XX:VMOptionsFile` names.
    OptionsFile {
        /// The file.
        file: String,
        /// The variable that names it; `None` if the command line does.
        named_in: Option<&'static str>,
    },
    /// In the file that `-XX:Flags` names.
    SettingsFile(String),
}

impl std::fmt::Display for OptionSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OptionSource::CommandLine => f.write_str("the command line"),
            OptionSource::Variable(name) => f.write_str(name),
            OptionSource::OptionsFile { file, .. } | OptionSource::SettingsFile(file) => f.write_str(file),
        }
    }
}

/// One option of the JVM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JvmOption {
    /// As the JVM sees it: quotes removed.
    pub text: String,
    /// Where it stands.
    pub from: OptionSource,
}

/// The options of a launch line, of its files and of its environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effective {
    /// In the order in which they count; the last of a kind wins.
    pub options: Vec<JvmOption>,
    /// What a reader should know about where they came from.
    pub notes: Vec<String>,
}

impl LaunchLine {
    /// The options that this line's JVM will have, with the environment `outer` in which the line
    /// is started. `major` is the feature release where it is known: JDK 8 does not read
    /// JDK_JAVA_OPTIONS.
    pub fn effective(
        &self,
        major: Option<u32>,
        outer: &Variable<'_>,
        read: &Read<'_>,
    ) -> Result<Effective, LaunchError> {
        let mut found = Effective { notes: self.cautions(), ..Effective::default() };
        let folder = self.folder();
        let read = &super::from(&folder, read);
        let variables = self.environment(outer);
        let from_variable = |name: &'static str, found: &mut Effective| -> Result<(), LaunchError> {
            let Some((_, value)) = variables.iter().find(|(set, _)| *set == name) else { return Ok(()) };
            if name == "JDK_JAVA_OPTIONS" && major.is_some_and(|major| major < 9) {
                found.notes.push("JDK_JAVA_OPTIONS is set, and no JDK before 9 reads it".to_owned());
                return Ok(());
            }
            let words = of_variable(name, value, read)?;
            found.add(words, &OptionSource::Variable(name), read)
        };
        from_variable("JAVA_TOOL_OPTIONS", &mut found)?;
        from_variable("JDK_JAVA_OPTIONS", &mut found)?;
        found.add(self.options.clone(), &OptionSource::CommandLine, read)?;
        from_variable("_JAVA_OPTIONS", &mut found)?;
        found.settings(read)?;
        Ok(found)
    }
}

/// The words of a variable; those of the launcher's may name argument files.
fn of_variable(name: &str, value: &str, read: &Read<'_>) -> Result<Vec<String>, LaunchError> {
    let words = shell::option_words(value, name)?;
    if name == "JDK_JAVA_OPTIONS" { argfile::expand(&words, read) } else { Ok(words) }
}

impl Effective {
    fn add(&mut self, words: Vec<String>, from: &OptionSource, read: &Read<'_>) -> Result<(), LaunchError> {
        for text in words {
            let file = text.strip_prefix("-XX:VMOptionsFile=").map(str::to_owned);
            self.options.push(JvmOption { text, from: from.clone() });
            // No such file names another: a JVM refuses that.
            let named_in = match from {
                OptionSource::CommandLine => None,
                OptionSource::Variable(name) => Some(*name),
                OptionSource::OptionsFile { .. } | OptionSource::SettingsFile(_) => continue,
            };
            if let Some(file) = file {
                let words = shell::option_words(
                    &super::open(&file, "file of JVM options", LARGEST_FILE, read)?,
                    &file,
                )?;
                self.add(words, &OptionSource::OptionsFile { file, named_in }, read)?;
            }
        }
        Ok(())
    }

    /// Puts the settings of `-XX:Flags=FILE` first: lines like `+UseLargePages` and `MaxHeapSize=1g`.
    fn settings(&mut self, read: &Read<'_>) -> Result<(), LaunchError> {
        let Some((file, _)) = self.value("Flags") else { return Ok(()) };
        let file = file.to_owned();
        let text = super::open(&file, "file of JVM settings", LARGEST_FILE, read)?;
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        let settings = lines.flat_map(str::split_whitespace).map(|setting| JvmOption {
            text: format!("-XX:{setting}"),
            from: OptionSource::SettingsFile(file.clone()),
        });
        self.options.splice(0..0, settings.collect::<Vec<_>>());
        Ok(())
    }

    /// The last setting of a boolean flag, and where it stands; nothing if it is not set.
    #[must_use]
    pub fn switch(&self, name: &str) -> Option<(bool, &JvmOption)> {
        self.options.iter().rev().find_map(|option| Some((option.switch_of(name)?, option)))
    }

    /// The last value of a flag `-XX:NAME=VALUE`.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<(&str, &JvmOption)> {
        self.options.iter().rev().find_map(|option| Some((option.value_of(name)?, option)))
    }

    /// The largest heap that was asked for: `-Xmx` or `-XX:MaxHeapSize`.
    #[must_use]
    pub fn max_heap(&self) -> Option<(Bytes, &JvmOption)> {
        self.size(&["-Xmx", "-XX:MaxHeapSize="])
    }

    /// The first heap that was asked for: `-Xms` or `-XX:InitialHeapSize`.
    #[must_use]
    pub fn initial_heap(&self) -> Option<(Bytes, &JvmOption)> {
        self.size(&["-Xms", "-XX:InitialHeapSize="])
    }

    fn size(&self, prefixes: &[&str]) -> Option<(Bytes, &JvmOption)> {
        self.options.iter().rev().find_map(|option| {
            let value = prefixes.iter().find_map(|prefix| option.text.strip_prefix(prefix))?;
            Some((value.parse().ok()?, option))
        })
    }
}

impl JvmOption {
    /// `-XX:+NAME` is true, `-XX:-NAME` false.
    pub(super) fn switch_of(&self, name: &str) -> Option<bool> {
        let flag = self.text.strip_prefix("-XX:")?;
        let on = flag.starts_with('+');
        (flag.strip_prefix(['+', '-'])? == name).then_some(on)
    }

    fn value_of(&self, name: &str) -> Option<&str> {
        self.text.strip_prefix("-XX:")?.strip_prefix(name)?.strip_prefix('=')
    }
}
