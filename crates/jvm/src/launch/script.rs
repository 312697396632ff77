//! Shell scripts that start JVMs, and the variable by which each takes their options.
//!
//! Sources: the scripts of Tomcat 10, Kafka 3, Elasticsearch 8, OpenSearch 2, Spark 3, Cassandra 4, Maven 3 and
//! Gradle 8.

use super::{
    LaunchLine,
    wrapper::{self, SHELLS},
};

/// A variable with options of JVMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptVariable {
    pub name: &'static str,
    /// The JVMs that get its options.
    pub jvms: &'static str,
    /// Beginnings of the file names of its scripts, separated by blanks.
    scripts: &'static str,
}

impl ScriptVariable {
    /// Whether it is that of a launcher, which starts a JVM.
    pub fn is_of_launcher(self) -> bool {
        !self.scripts.is_empty()
    }
}

const VARIABLES: [ScriptVariable; 8] = [
    variable("CATALINA_OPTS", "the JVM of Tomcat", "catalina.sh startup.sh"),
    variable("KAFKA_OPTS", "the JVM of Kafka", "kafka- connect- zookeeper-"),
    variable("ES_JAVA_OPTS", "the JVM of Elasticsearch, not its launcher's", "elasticsearch"),
    variable("OPENSEARCH_JAVA_OPTS", "the JVM of OpenSearch", "opensearch"),
    variable(
        "SPARK_SUBMIT_OPTS",
        "the JVM of the driver (executors: spark.executor.extraJavaOptions)",
        "spark- pyspark",
    ),
    variable("JVM_EXTRA_OPTS", "the JVM of Cassandra", "cassandra"),
    variable("MAVEN_OPTS", "the JVM of Maven, not those of tests (argLine of Surefire)", "mvn"),
    variable("GRADLE_OPTS", "the JVM of the Gradle client (its daemon: org.gradle.jvmargs)", "gradle"),
];
const OF_LAUNCHER: ScriptVariable =
    variable("JDK_JAVA_OPTIONS", "every java of JDK 9 or later that the script starts", "");
const OF_EVERY_JVM: ScriptVariable = variable("JAVA_TOOL_OPTIONS", "every JVM that the script starts", "");

const fn variable(name: &'static str, jvms: &'static str, scripts: &'static str) -> ScriptVariable {
    ScriptVariable { name, jvms, scripts }
}

/// A command line that starts a shell script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// The words before the script or its shell.
    pub wrapper: Vec<String>,
    /// The script with its arguments, behind its shell if that is named.
    pub words: Vec<String>,
    /// Its text, or the beginning of it.
    text: String,
}

impl Script {
    /// Parses a command line; `None` if it starts no shell script. `beginning` reads the beginning of a program's file.
    pub fn parse(command: &[String], beginning: &dyn Fn(&str) -> Option<String>) -> Option<Script> {
        let parsed = wrapper::walk_to(command, &[], &|name| !wrapper::is_wrapper(name)).ok()??;
        let words = parsed.rest;
        let text = if is_shell(words.first()?) {
            let operand = words.iter().skip(1).find(|word| !word.starts_with(['-', '+']))?;
            let options = words.iter().skip(1).take_while(|word| *word != operand);
            let is_text = options.clone().any(|word| word.starts_with('-') && word.contains('c'));
            if is_text { operand.clone() } else { beginning(operand)? }
        } else {
            let text = beginning(words.first()?)?;
            let first = text.lines().next()?.strip_prefix("#!")?;
            first.split_whitespace().any(is_shell).then_some(text)?
        };
        Some(Script { wrapper: parsed.wrapper, words, text })
    }

    /// A `java` behind the same words, with the same environment.
    pub fn line(&self) -> LaunchLine {
        LaunchLine { wrapper: self.wrapper.clone(), java: "java".to_owned(), ..LaunchLine::default() }
    }

    /// The words that start it with these variables, which are set after the wrapper.
    pub fn with_environment(&self, variables: &[(&str, String)]) -> Vec<String> {
        let mut words = self.wrapper.clone();
        if !variables.is_empty() {
            words.push("env".to_owned());
            words.extend(variables.iter().map(|(name, value)| format!("{name}={value}")));
        }
        words.extend(self.words.iter().cloned());
        words
    }

    /// The file name of the script, or of its shell.
    pub fn name(&self) -> &str {
        let shell = self.words.first().filter(|word| is_shell(word));
        let named =
            self.words.iter().skip(usize::from(shell.is_some())).find(|word| !word.starts_with(['-', '+']));
        let is_text = |word: &&String| **word == self.text;
        file_name(named.filter(|word| !is_text(word)).or(shell).map_or("", String::as_str))
    }

    /// The variable by which its JVMs take their options: the one that it reads or is known to read, or else the one
    /// of the `java` launcher, or that of every JVM. `major`: the feature release of `java`; `None` if unknown.
    pub fn variable(&self, major: Option<u32>) -> ScriptVariable {
        let reads = |variable: &&ScriptVariable| {
            ["$", "${"].iter().any(|sign| self.text.contains(&format!("{sign}{}", variable.name)))
        };
        let name = self.name();
        let is_known =
            |variable: &&ScriptVariable| variable.scripts.split(' ').any(|known| name.starts_with(known));
        let known = VARIABLES.iter().find(reads).or_else(|| VARIABLES.iter().find(is_known)).copied();
        let newer = major.is_some_and(|major| major >= 9);
        known.unwrap_or(if newer { OF_LAUNCHER } else { OF_EVERY_JVM })
    }
}

fn is_shell(word: impl AsRef<str>) -> bool {
    SHELLS.contains(&file_name(word.as_ref()))
}

fn file_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::tests::own;

    fn script(words: &[&str], text: &str) -> Option<Script> {
        Script::parse(&own(words), &|_| Some(text.to_owned()))
    }

    fn variable_of(words: &[&str], text: &str, major: Option<u32>) -> Option<&'static str> {
        Some(script(words, text)?.variable(major).name)
    }

    #[test]
    fn a_script_takes_the_variable_that_it_reads() {
        let reads = "#!/bin/sh\nexec \"$JAVA\" $CATALINA_OPTS Main";
        for (words, text, variable) in [
            (&["/opt/tomcat/bin/catalina.sh", "run"][..], reads, "CATALINA_OPTS"),
            (&["./own.sh"], reads, "CATALINA_OPTS"),
            (&["bash", "-e", "own.sh"], reads, "CATALINA_OPTS"),
            (&["sh", "-c", "exec java ${MAVEN_OPTS} Main"], "", "MAVEN_OPTS"),
            (&["bin/kafka-server-start.sh", "x"], "#!/bin/bash\nexec kafka-run-class.sh", "KAFKA_OPTS"),
            (&["spark-submit", "a.py"], "#!/usr/bin/env bash\nexec spark-class", "SPARK_SUBMIT_OPTS"),
            (&["sudo", "-u", "a", "env", "A=1", "cassandra", "-f"], "#!/bin/sh\n", "JVM_EXTRA_OPTS"),
            (&["./start.sh"], "#!/bin/sh\njava -jar a.jar", "JDK_JAVA_OPTIONS"),
            (&["sh", "-c", "java $X"], "", "JDK_JAVA_OPTIONS"),
        ] {
            assert_eq!(variable_of(words, text, Some(17)), Some(variable), "{words:?}");
        }
        assert_eq!(variable_of(&["./start.sh"], "#!/bin/sh\n", Some(8)), Some("JAVA_TOOL_OPTIONS"));
        assert_eq!(variable_of(&["./start.sh"], "#!/bin/sh\n", None), Some("JAVA_TOOL_OPTIONS"));
    }

    #[test]
    fn other_programs_are_no_shell_scripts() {
        assert_eq!(script(&["./server"], "\u{7f}ELF"), None);
        assert_eq!(script(&["./job.py"], "#!/usr/bin/env python3\n"), None);
        assert_eq!(script(&["sh"], ""), None);
        assert_eq!(Script::parse(&own(&["gone"]), &|_| None), None);
    }

    #[test]
    fn the_script_is_found_behind_wrappers() {
        let name = |words: &[&str]| script(words, "#!/bin/sh\n").map(|script| script.name().to_owned());
        assert_eq!(name(&["nice", "-n", "5", "bin/a.sh", "run"]).as_deref(), Some("a.sh"));
        assert_eq!(name(&["bash", "-e", "bin/a.sh"]).as_deref(), Some("a.sh"));
        assert_eq!(name(&["sh", "-c", "echo x"]).as_deref(), Some("sh"));
        let script = script(&["env", "A=1", "a.sh", "run"], "#!/bin/sh\n").expect("a script");
        assert_eq!((script.wrapper, script.words), (own(&["env", "A=1"]), own(&["a.sh", "run"])));
    }
}
