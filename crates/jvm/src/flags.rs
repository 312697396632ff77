//! What the flags of a JVM finally are: asked of that very `java`, with those very options.

use std::{
    collections::BTreeMap,
    io,
    process::{Command, Stdio},
};

use hugewise_kernel::units::Bytes;

use crate::launch::{LaunchLine, OPTION_VARIABLES, memory_options_of};

/// The final flags of a JVM, and which JVM it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinalFlags {
    /// `17.0.15`, as `java -version` says it.
    pub version: String,
    /// Values by name.
    values: BTreeMap<String, String>,
}

/// The JVM did not tell.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// It could not be started.
    #[error("{java} could not be started: {source}")]
    Start {
        /// The program.
        java: String,
        /// What the system answered.
        source: io::Error,
    },
    /// It ended with an error of its own.
    #[error("{java} refuses these options: {said}")]
    Refused {
        /// The program.
        java: String,
        /// The first lines it printed.
        said: String,
    },
}

/// Asks the `java` of a launch line, with the options and the environment that decide about its
/// memory; nothing of the program is started.
pub fn ask(line: &LaunchLine) -> Result<FinalFlags, AskError> {
    let mut command = Command::new(&line.java);
    command.args(line.memory_options());
    for variable in OPTION_VARIABLES {
        if let Ok(value) = std::env::var(variable) {
            command.env(variable, memory_options_of(&value).collect::<Vec<_>>().join(" "));
        }
    }
    command.args(["-XX:+PrintFlagsFinal", "-version"]).stdin(Stdio::null());
    let output = command.output().map_err(|source| AskError::Start { java: line.java.clone(), source })?;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let flags = parse(&stdout, &stderr);
    if output.status.success() && !flags.values.is_empty() {
        return Ok(flags);
    }
    let said: Vec<&str> = stderr.lines().chain(stdout.lines()).filter(|l| !l.is_empty()).take(3).collect();
    Err(AskError::Refused { java: line.java.clone(), said: said.join(" / ") })
}

/// Reads what `-XX:+PrintFlagsFinal -version` prints: flags on standard output, the version on
/// standard error.
fn parse(stdout: &str, stderr: &str) -> FinalFlags {
    let values = stdout.lines().filter_map(|line| {
        // `     bool UseLargePages    = false    {pd product} {default}`
        let (left, right) = line.split_once('=')?;
        let name = left.trim_end_matches(':').split_whitespace().nth(1)?;
        let value = right.split('{').next().unwrap_or_default().trim();
        Some((name.to_owned(), value.to_owned()))
    });
    // `openjdk version "17.0.15" 2025-04-15`
    let version = stderr.lines().find_map(|line| line.split_once(" version \"")?.1.split('"').next());
    FinalFlags { version: version.unwrap_or("of an unknown version").to_owned(), values: values.collect() }
}

impl FinalFlags {
    /// Is a boolean flag of this name there, and on? Nothing if this JVM has no such flag.
    #[must_use]
    pub fn is_on(&self, name: &str) -> Option<bool> {
        self.values.get(name).map(|value| value == "true")
    }

    /// Does this JVM know the flag at all?
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// A flag that is an amount of memory.
    #[must_use]
    pub fn bytes(&self, name: &str) -> Option<Bytes> {
        self.values.get(name)?.parse().ok().map(Bytes)
    }

    /// The feature release: 8, 11, 17 …
    #[must_use]
    pub fn major(&self) -> Option<u32> {
        let version = self.version.strip_prefix("1.").unwrap_or(&self.version);
        version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    }

    /// The most pool that a launch with explicit pages can ask for: the heap, the code cache, and
    /// the collector's tables.
    ///
    /// An upper bound. HotSpot maps each explicit region whole. The tables of the most demanding
    /// collector (Shenandoah: two bitmaps of heap/32) bound those of the others (G1: bitmaps of
    /// heap/64 and three tables of heap/512; Parallel: heap/32 and heap/512).
    #[must_use]
    pub fn explicit_demand(&self) -> Option<ExplicitDemand> {
        let heap = self.bytes("MaxHeapSize")?;
        let code = self.bytes("ReservedCodeCacheSize").unwrap_or_default();
        const ROUNDING: Bytes = Bytes(24 << 20); // A page more for each of the dozen regions.
        let tables = Bytes(heap.0 / 16 + 3 * (heap.0 / 512)) + ROUNDING;
        Some(ExplicitDemand { heap, others: code + tables })
    }
}

/// What a launch with explicit pages takes from the pools, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExplicitDemand {
    /// The heap, at its maximum.
    pub heap: Bytes,
    /// Code cache and tables: always on the default size, whatever the heap's page size.
    pub others: Bytes,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FLAGS: &str = "[Global flags]
    uintx MaxHeapSize                              = 1073741824                                {product} {command line}
     bool UseLargePages                            = false                                  {pd product} {default}
ccstrlist OnError                                  =                                           {product} {default}
    uintx ReservedCodeCacheSize                   := 251658240                              {pd product} {ergonomic}
";

    #[test]
    fn flags_of_old_and_new_jvms_are_read() {
        let flags = parse(FLAGS, "openjdk version \"17.0.15\" 2025-04-15\n");
        assert_eq!((flags.version.as_str(), flags.major()), ("17.0.15", Some(17)));
        assert_eq!(flags.bytes("MaxHeapSize"), Some(Bytes(1 << 30)));
        assert_eq!(flags.bytes("ReservedCodeCacheSize"), Some(Bytes(240 << 20)));
        assert_eq!((flags.is_on("UseLargePages"), flags.is_on("UseSHM")), (Some(false), None));
        assert_eq!(parse("", "java version \"1.8.0_402\"").major(), Some(8));
    }

    #[test]
    fn the_bound_holds_for_measured_consumption() {
        // Pages of 2 MiB that JVMs were seen to consume with a heap of 1 GiB.
        for (jdk, measured) in
            [("17 G1", 651), ("17 Parallel", 648), ("17 Shenandoah", 665), ("25 Shenandoah", 666)]
        {
            let demand = parse(FLAGS, "").explicit_demand().expect("a heap size");
            let bound = (demand.heap + demand.others).0 >> 21;
            assert!((measured..measured + 60).contains(&bound), "{jdk}: {bound} for {measured}");
        }
    }

    proptest! {
        #[test]
        fn any_output_is_read_without_panic(out in "(.|\n)*", err in "(.|\n)*") {
            let _ = parse(&out, &err).explicit_demand();
        }
    }
}
