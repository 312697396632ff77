//! The variable by which the JVMs of a program take options.
//!
//! Sources: the scripts of Tomcat 10, Kafka 3, Elasticsearch 8, OpenSearch 2, Spark 3, Cassandra 4, Maven 3, Gradle 8 and
//! Solr 9; for the variables of every JVM, the documentation of the `java` command and of JVM TI. `_JAVA_OPTIONS` is
//! documented nowhere; HotSpot reads it after the command line.

use hugewise_linux::hugepages::backing::Backing;

use crate::script_text::ScriptText;

/// A variable with options of JVMs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    pub variable: String,
    /// The JVMs that get its options.
    pub jvms: &'static str,
}

/// A variable of a program, and beginnings of the file names of its scripts, separated by blanks.
struct OfProgram {
    variable: &'static str,
    jvms: &'static str,
    scripts: &'static str,
}

const OF_PROGRAMS: [OfProgram; 9] = [
    of_program("CATALINA_OPTS", "the JVM of Tomcat", "catalina.sh startup.sh"),
    of_program("KAFKA_OPTS", "the JVM of Kafka", "kafka- connect- zookeeper-"),
    of_program("ES_JAVA_OPTS", "the JVM of Elasticsearch, not its launcher's", "elasticsearch"),
    of_program("OPENSEARCH_JAVA_OPTS", "the JVM of OpenSearch", "opensearch"),
    of_program(
        "SPARK_SUBMIT_OPTS",
        "the JVM of the driver (executors: spark.executor.extraJavaOptions)",
        "spark- pyspark",
    ),
    of_program("JVM_EXTRA_OPTS", "the JVM of Cassandra", "cassandra"),
    of_program("MAVEN_OPTS", "the JVM of Maven, not those of tests (argLine of Surefire)", "mvn"),
    of_program("GRADLE_OPTS", "the JVM of the Gradle client (its daemon: org.gradle.jvmargs)", "gradle"),
    of_program("SOLR_OPTS", "the JVM of Solr", "solr"),
];

/// Read by the `java` launcher of JDK 9 and later, before the command line.
const OF_LAUNCHER: &str = "JDK_JAVA_OPTIONS";
/// Read by every JVM, before the command line.
pub const OF_EVERY_JVM: &str = "JAVA_TOOL_OPTIONS";
/// Read by every HotSpot JVM, after the command line.
const AFTER_ALL: &str = "_JAVA_OPTIONS";

const fn of_program(variable: &'static str, jvms: &'static str, scripts: &'static str) -> OfProgram {
    OfProgram { variable, jvms, scripts }
}

impl Channel {
    /// The variable of every JVM.
    pub fn of_every_jvm() -> Channel {
        Channel { variable: OF_EVERY_JVM.to_owned(), jvms: "every JVM that it starts" }
    }

    /// The variable of every HotSpot JVM whose options override those of its command line.
    pub fn after_all() -> Channel {
        Channel {
            variable: AFTER_ALL.to_owned(),
            jvms: "every HotSpot JVM that it starts, after its own options",
        }
    }

    /// The channel of a program with this file name, and this text if it is a script; `None` if it has none that leaves
    /// its own options as they are. `major`: the feature release of its `java`; `None` if unknown.
    ///
    /// Options of a program's own variable may come before flags of the script; those of [`AFTER_ALL`] never do.
    pub(crate) fn choose(name: &str, text: &ScriptText, major: Option<u32>) -> Option<Channel> {
        let general = |variable: &str, jvms| {
            (!text.drops(variable)).then(|| Channel { variable: variable.to_owned(), jvms })
        };
        let after_all = || (!text.drops(AFTER_ALL)).then(Channel::after_all);
        if let Some(channel) = (!text.page_flags().is_empty()).then(after_all).flatten() {
            return Some(channel);
        }
        let fits = |variable: &str| !text.drops(variable) && !text.has_default(variable);
        let reads = |of: &&OfProgram| text.reads(of.variable) && fits(of.variable);
        let is_known =
            |of: &&OfProgram| of.scripts.split(' ').any(|known| name.starts_with(known)) && fits(of.variable);
        let of_program = || {
            let found = OF_PROGRAMS.iter().find(reads).or_else(|| OF_PROGRAMS.iter().find(is_known))?;
            Some(Channel { variable: found.variable.to_owned(), jvms: found.jvms })
        };
        let of_launcher = || {
            let newer = major.is_some_and(|major| major >= 9);
            general(OF_LAUNCHER, "every java of JDK 9 or later that it starts").filter(|_| newer)
        };
        let of_its_own = || {
            let variable = text.option_variables().into_iter().find(|variable| fits(variable))?;
            Some(Channel { variable, jvms: "the JVM that it starts with it" })
        };
        of_program()
            .or_else(of_launcher)
            .or_else(|| general(OF_EVERY_JVM, "every JVM that it starts"))
            .or_else(of_its_own)
            .or_else(after_all)
    }

    /// What its variable has to contain besides the flags of a backing, to override flags before it.
    pub(crate) fn overriding(&self, backing: Backing) -> Option<&'static str> {
        (self.variable == AFTER_ALL && backing == Backing::Base).then_some("-XX:-UseTransparentHugePages")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(name: &str, text: &str, major: Option<u32>) -> Option<String> {
        Channel::choose(name, &ScriptText::new(text), major).map(|channel| channel.variable)
    }

    #[test]
    fn a_script_takes_the_variable_that_it_reads_and_leaves() {
        let reads = "exec \"$JAVA\" $CATALINA_OPTS Main";
        let drops_all = "unset JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS _JAVA_OPTIONS\n";
        for (name, text, variable) in [
            ("catalina.sh", reads, Some("CATALINA_OPTS")),
            ("own.sh", reads, Some("CATALINA_OPTS")),
            ("sh", "exec java ${MAVEN_OPTS} Main", Some("MAVEN_OPTS")),
            ("kafka-server-start.sh", "exec x", Some("KAFKA_OPTS")),
            ("start.sh", "java -jar a.jar", Some("JDK_JAVA_OPTIONS")),
            ("start.sh", "java $JAVA_OPTS -jar a.jar", Some("JDK_JAVA_OPTIONS")),
            ("start.sh", "unset JDK_JAVA_OPTIONS; java x", Some("JAVA_TOOL_OPTIONS")),
            ("elasticsearch", "unset JAVA_TOOL_OPTIONS\nexec java $ES_JAVA_OPTS", Some("ES_JAVA_OPTS")),
            ("a", &format!("{drops_all}java $A_JAVA_OPTS"), Some("A_JAVA_OPTS")),
            ("a", &format!("{drops_all}java ${{A_JAVA_OPTS:--Xmx1g}}"), None),
            ("a", "exec env -i java $CATALINA_OPTS", None),
            ("solr", "java -XX:+UseLargePages $SOLR_OPTS", Some("_JAVA_OPTIONS")),
            ("solr", "unset _JAVA_OPTIONS\njava -XX:+UseLargePages $SOLR_OPTS", Some("SOLR_OPTS")),
        ] {
            assert_eq!(channel(name, text, Some(17)).as_deref(), variable, "{name}: {text}");
        }
        for major in [Some(8), None] {
            assert_eq!(channel("start.sh", "java x", major).as_deref(), Some("JAVA_TOOL_OPTIONS"));
        }
    }
}
