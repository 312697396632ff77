//! All options of a JVM, in the order in which they take effect.
//!
//! Source: the `java` command's page of JDK 25, and the observed behaviour of JDK 17 and 25. The order is
//! JAVA_TOOL_OPTIONS, JDK_JAVA_OPTIONS, the command line, _JAVA_OPTIONS; the last of repeated options takes
//! effect. The options of a file named by `-XX:VMOptionsFile` replace that option in the order; the settings
//! of `-XX:Flags` precede all others.

use std::{env, fmt};

use hugewise_linux::units::Bytes;

use super::{
    LaunchError, LaunchLine, MAX_OPTION_FILE_BYTES, Read, Variable, argfile, read_option_file, shell,
};

/// Source of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionSource {
    /// The command line, or an argument file named there.
    CommandLine,
    /// A variable of [`super::OPTION_VARIABLES`].
    Variable(&'static str),
    /// The file named by `-XX:VMOptionsFile`.
    OptionsFile {
        file: String,
        /// The variable that contains `-XX:VMOptionsFile`; `None` if the command line does.
        named_in: Option<&'static str>,
    },
    /// The file named by `-XX:Flags`.
    SettingsFile(String),
}

impl fmt::Display for OptionSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionSource::CommandLine => f.write_str("the command line"),
            OptionSource::Variable(name) => f.write_str(name),
            OptionSource::OptionsFile { file, .. } | OptionSource::SettingsFile(file) => f.write_str(file),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JvmOption {
    /// As the JVM sees it: quotes removed.
    pub text: String,
    pub from: OptionSource,
}

/// Options from the command line, files and environment of a launch line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EffectiveOptions {
    /// In the order in which they take effect; of repeated options the last takes effect.
    pub options: Vec<JvmOption>,
    /// Notes for the user about the sources of the options.
    pub notes: Vec<String>,
}

impl LaunchLine {
    /// Like [`LaunchLine::effective`], in the environment and directory of this process.
    pub fn effective_here(&self, major: Option<u32>) -> Result<EffectiveOptions, LaunchError> {
        self.effective(major, &|name| env::var(name).ok(), &read_option_file)
    }

    /// Collects the options of this line's JVM, when started in the environment `outer`. `major` is the
    /// feature release if known: JDK 8 does not read JDK_JAVA_OPTIONS.
    pub fn effective(
        &self,
        major: Option<u32>,
        outer: &Variable<'_>,
        read: &Read<'_>,
    ) -> Result<EffectiveOptions, LaunchError> {
        let wrapper = self.parsed_wrapper();
        let mut found = EffectiveOptions { notes: wrapper.cautions, ..EffectiveOptions::default() };
        let read = &super::from(&wrapper.folder, read);
        let variables = self.environment(outer);
        let from_variable = |name: &'static str, found: &mut EffectiveOptions| -> Result<(), LaunchError> {
            let Some((_, value)) = variables.iter().find(|(set, _)| *set == name) else { return Ok(()) };
            if name == "JDK_JAVA_OPTIONS" && major.is_some_and(|major| major < 9) {
                found.notes.push("JDK_JAVA_OPTIONS is set, but only JDK 9 and later read it".to_owned());
                return Ok(());
            }
            let mut words = shell::option_words(value, name)?;
            // Only the launcher's variable may name argument files.
            if name == "JDK_JAVA_OPTIONS" {
                words = argfile::expand(&words, read)?;
            }
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

impl EffectiveOptions {
    /// Whether an option sets the largest heap, which otherwise follows from the memory of the machine.
    pub fn fixes_heap(&self) -> bool {
        let sets = |option: &JvmOption| {
            option.text.starts_with("-Xmx") || option.text.starts_with("-XX:MaxHeapSize=")
        };
        self.options.iter().any(sets)
    }

    fn add(&mut self, words: Vec<String>, from: &OptionSource, read: &Read<'_>) -> Result<(), LaunchError> {
        for text in words {
            let file = text.strip_prefix("-XX:VMOptionsFile=").map(str::to_owned);
            self.options.push(JvmOption { text, from: from.clone() });
            // Options files do not nest: a JVM refuses that.
            let named_in = match from {
                OptionSource::CommandLine => None,
                OptionSource::Variable(name) => Some(*name),
                OptionSource::OptionsFile { .. } | OptionSource::SettingsFile(_) => continue,
            };
            if let Some(file) = file {
                let text = super::open(&file, "file of JVM options", MAX_OPTION_FILE_BYTES, read)?;
                self.add(
                    shell::option_words(&text, &file)?,
                    &OptionSource::OptionsFile { file, named_in },
                    read,
                )?;
            }
        }
        Ok(())
    }

    /// Prepends the settings of `-XX:Flags=FILE`: words such as `+UseLargePages` and `MaxHeapSize=1g`.
    fn settings(&mut self, read: &Read<'_>) -> Result<(), LaunchError> {
        let Some((file, _)) = self.value("Flags") else { return Ok(()) };
        let file = file.to_owned();
        let text = super::open(&file, "file of JVM settings", MAX_OPTION_FILE_BYTES, read)?;
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        let settings = lines.flat_map(str::split_whitespace).map(|setting| JvmOption {
            text: format!("-XX:{setting}"),
            from: OptionSource::SettingsFile(file.clone()),
        });
        self.options.splice(0..0, settings.collect::<Vec<_>>());
        Ok(())
    }

    /// The last setting of a boolean flag; `None` if it is not set.
    pub fn switch(&self, name: &str) -> Option<(bool, &JvmOption)> {
        self.options.iter().rev().find_map(|option| Some((option.switch_of(name)?, option)))
    }

    /// The last value of a flag `-XX:NAME=VALUE`; `None` if it is not set.
    pub fn value(&self, name: &str) -> Option<(&str, &JvmOption)> {
        self.options.iter().rev().find_map(|option| Some((option.value_of(name)?, option)))
    }

    /// The last maximum heap size: `-Xmx` or `-XX:MaxHeapSize`; `None` if neither is set.
    pub fn max_heap(&self) -> Option<(Bytes, &JvmOption)> {
        self.size(&["-Xmx", "-XX:MaxHeapSize="])
    }

    /// The last initial heap size: `-Xms` or `-XX:InitialHeapSize`; `None` if neither is set.
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
    /// `true` for `-XX:+NAME`, `false` for `-XX:-NAME`.
    pub(super) fn switch_of(&self, name: &str) -> Option<bool> {
        let flag = self.text.strip_prefix("-XX:")?;
        let on = flag.starts_with('+');
        (flag.strip_prefix(['+', '-'])? == name).then_some(on)
    }

    fn value_of(&self, name: &str) -> Option<&str> {
        self.text.strip_prefix("-XX:")?.strip_prefix(name)?.strip_prefix('=')
    }
}
