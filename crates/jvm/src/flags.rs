//! What the flags of a JVM finally are: asked of that very `java`, with those very options.

use std::{
    collections::BTreeMap, env, ffi::OsString, fs, io, path::PathBuf, process::Command, time::Duration,
};

use hugewise_linux::units::Bytes;
use tempfile::TempDir;

use crate::{
    bounded_run,
    launch::{LaunchError, LaunchLine},
};

/// The final flags of a JVM, and which JVM it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinalFlags {
    /// `17.0.15`, as `java -version` says it.
    pub version: String,
    /// `java.home`: the folder of the JDK that ran, whatever links and wrappers led there.
    pub java_home: Option<PathBuf>,
    /// `java.vendor`: `Debian`, `Eclipse Adoptium`.
    pub vendor: Option<String>,
    /// `java.vm.name`: `OpenJDK 64-Bit Server VM`.
    pub vm: Option<String>,
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
    /// It answered, and is no HotSpot.
    #[error(
        "{java} is not a HotSpot JVM: {said}; its flags are its own, and hugewise knows those of HotSpot \
         (OpenJDK, Oracle and their kin)"
    )]
    NotHotSpot {
        /// The program.
        java: String,
        /// What it calls itself, or the first lines it printed.
        said: String,
    },
    /// It did not end.
    #[error("{java} was asked for its flags and did not answer within {}s: is it a JVM?", limit.as_secs())]
    TimedOut {
        /// The program.
        java: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// The empty folder in which it is asked could not be made.
    #[error("making the empty folder in which the JVM is asked: {0}")]
    Folder(io::Error),
    /// Options outside the command line could not be read.
    #[error(transparent)]
    Options(#[from] LaunchError),
}

/// How long a JVM may take to print its flags; one on a loaded machine takes a second or two.
const PATIENCE: Duration = Duration::from_secs(20);

/// Asks the `java` of a launch line, behind those words of its wrapper that its flags depend on, with
/// the options and the environment that decide about its memory; nothing of the program is started.
pub fn ask(line: &LaunchLine) -> Result<FinalFlags, AskError> {
    ask_patiently(line, PATIENCE)
}

fn ask_patiently(line: &LaunchLine, patience: Duration) -> Result<FinalFlags, AskError> {
    let question = question(line, &[])?;
    let program = question.command.get_program().to_string_lossy().into_owned();
    let java = line.java.clone();
    let printed = match bounded_run::printed_by(question.command, patience) {
        Ok(Some(printed)) => printed,
        Ok(None) => return Err(AskError::TimedOut { java, limit: patience }),
        // The first word of a wrapper may be what is not there.
        Err(source) => return Err(AskError::Start { java: program, source }),
    };
    understand(java, printed.succeeded, &printed.stdout, &printed.stderr)
}

/// What a JVM that was asked printed: its flags, or why there are none.
pub(crate) fn understand(
    java: String,
    succeeded: bool,
    stdout: &str,
    stderr: &str,
) -> Result<FinalFlags, AskError> {
    let flags = parse(stdout, stderr);
    let said = || {
        let lines = stderr.lines().chain(stdout.lines()).map(str::trim);
        let lines = lines
            .filter(|l| !(l.is_empty() || l.starts_with("Picked up ") || l.starts_with("NOTE: Picked up")));
        lines.take(3).collect::<Vec<_>>().join(" / ")
    };
    if !succeeded {
        return Err(AskError::Refused { java, said: said() });
    }
    if flags.bytes("MaxHeapSize").is_none() {
        let said = flags.vm.unwrap_or_else(said);
        return Err(AskError::NotHotSpot { java, said });
    }
    Ok(flags)
}

/// A JVM that is to be asked, and the empty folder in which it runs.
pub(crate) struct Question {
    /// To be started while the folder is there.
    pub command: Command,
    _folder: TempDir,
}

/// The `java` of a launch line, to be started with those of its options that decide about its memory, and
/// with `options` behind them, to print its flags and which JVM it is. It writes no file, the heap is not
/// pretouched, and nothing of the program is started.
pub(crate) fn question(line: &LaunchLine, options: &[String]) -> Result<Question, AskError> {
    let folder = tempfile::Builder::new().prefix("hugewise-asks-").tempdir().map_err(AskError::Folder)?;
    let asked = line.layout_options(&|name| env::var(name).ok(), &|file| fs::read_to_string(file))?;
    let printing = [
        // One that crashes leaves no report, and one that runs no performance data in a shared folder.
        "-XX:ErrorFile=/dev/null",
        "-XX:-UsePerfData",
        "-XX:-AlwaysPreTouch",
        "-XX:+PrintFlagsFinal",
        "-XshowSettings:properties",
        "-version",
    ];
    let options = asked.options.iter().chain(options).cloned().chain(printing.map(str::to_owned)).collect();
    let mut line = line.asking(options, folder.path());
    if !line.wrapper.is_empty() {
        line = line.with_environment(&asked.variables);
    }
    let words = line.command();
    let (program, arguments) = words.split_first().unwrap_or((&line.java, &[]));
    let mut command = Command::new(program);
    command.args(arguments).envs(asked.variables).current_dir(folder.path());
    if let Some(path) = absolute_search_path() {
        command.env("PATH", path);
    }
    Ok(Question { command, _folder: folder })
}

/// PATH for a program that runs in another folder; `None` if it can stay as it is.
fn absolute_search_path() -> Option<OsString> {
    let path = env::var_os("PATH")?;
    if env::split_paths(&path).all(|folder| folder.is_absolute()) {
        return None;
    }
    let here = env::current_dir().ok()?;
    env::join_paths(env::split_paths(&path).map(|folder| here.join(folder))).ok()
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
    // `    java.home = /usr/lib/jvm/…`
    let property = |name: &str| {
        stderr.lines().chain(stdout.lines()).find_map(|line| {
            let value = line.trim_start().strip_prefix(name)?.trim_start().strip_prefix('=')?.trim();
            (!value.is_empty()).then(|| value.to_owned())
        })
    };
    FinalFlags {
        version: version.unwrap_or("of an unknown version").to_owned(),
        java_home: property("java.home").map(PathBuf::from),
        vendor: property("java.vendor"),
        vm: property("java.vm.name"),
        values: values.collect(),
    }
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

    /// The collector that is on: `G1`, `Parallel`, `Serial`, `ZGC`, `Shenandoah`, `Epsilon` or `CMS`.
    #[must_use]
    pub fn collector(&self) -> Option<&'static str> {
        const COLLECTORS: [(&str, &str); 7] = [
            ("UseG1GC", "G1"),
            ("UseParallelGC", "Parallel"),
            ("UseSerialGC", "Serial"),
            ("UseZGC", "ZGC"),
            ("UseShenandoahGC", "Shenandoah"),
            ("UseEpsilonGC", "Epsilon"),
            ("UseConcMarkSweepGC", "CMS"),
        ];
        COLLECTORS.iter().find(|(flag, _)| self.is_on(flag) == Some(true)).map(|(_, name)| *name)
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
    use std::{os::unix::fs::PermissionsExt, path::Path};

    use hugewise_linux::root::Root;
    use proptest::prelude::*;

    use super::*;
    use crate::jdks;

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

    fn program(dir: &Path, text: &str) -> io::Result<LaunchLine> {
        let java = dir.join("java");
        fs::write(&java, text)?;
        fs::set_permissions(&java, fs::Permissions::from_mode(0o755))?;
        Ok(LaunchLine { java: java.display().to_string(), ..LaunchLine::default() })
    }

    #[test]
    fn a_java_that_is_none_or_hangs_or_is_lost_is_told() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let other = "#!/bin/sh\necho 'openjdk version \"21.0.8\"' >&2\necho '  java.vm.name = Eclipse OpenJ9 VM' >&2\n";
        let error = ask(&program(dir.path(), other)?).map_err(|error| error.to_string());
        assert!(
            error.as_ref().is_err_and(|e| e.contains("not a HotSpot JVM: Eclipse OpenJ9 VM")),
            "{error:?}"
        );
        // It leaves its process group, and keeps its output open.
        let hangs = program(dir.path(), "#!/bin/sh\nsetsid sleep 5 &\nexec sleep 1000\n")?;
        let error = ask_patiently(&hangs, Duration::from_millis(300)).map_err(|error| error.to_string());
        assert!(error.as_ref().is_err_and(|e| e.contains("did not answer")), "{error:?}");
        let chatty = program(dir.path(), "#!/bin/sh\nexec yes\n")?;
        assert!(ask_patiently(&chatty, Duration::from_millis(300)).is_err());
        let lost = LaunchLine { java: "/nowhere/java".to_owned(), ..LaunchLine::default() };
        assert!(ask(&lost).is_err_and(|error| error.to_string().contains("could not be started")));
        Ok(())
    }

    /// Of every JDK of this machine; passes where there is none.
    #[test]
    fn real_jvms_answer_behind_their_wrappers() {
        for jdk in jdks::find(&Root::live(), &jdks::Environment::of_this_process()) {
            let java = jdk.java.display().to_string();
            let words = |text: &str| -> Vec<String> {
                text.split(' ')
                    .map(|word| if word == "java" { java.clone() } else { word.to_owned() })
                    .collect()
            };
            let asked = |text: &str| {
                let files = |name: &str| match name {
                    "opts" => Ok("-Xmx96m -XX:+UseSerialGC".to_owned()),
                    _ => Err(io::ErrorKind::NotFound.into()),
                };
                LaunchLine::of_java(&words(text), &files).map_err(AskError::from).and_then(|line| ask(&line))
            };
            let plain = asked("env -u JAVA_TOOL_OPTIONS java @opts -javaagent:none.jar Main").expect(&java);
            assert_eq!((&plain.version, plain.major()), (&jdk.version, Some(jdk.major)));
            assert_eq!(plain.java_home.as_ref(), Some(&jdk.home));
            assert!(plain.vendor.is_some() && plain.vm.as_ref().is_some_and(|vm| vm.contains("Server VM")));
            assert_eq!(plain.bytes("MaxHeapSize"), Some(Bytes(96 << 20)));

            let text = "env JAVA_TOOL_OPTIONS=-Xmx64m nohup taskset -c 0 java -Xmx96m Main";
            let alone = asked(text).expect(text);
            assert_eq!(alone.bytes("MaxHeapSize"), Some(Bytes(96 << 20)));
            // One processor alone: the JVM takes the serial collector.
            assert_eq!(alone.is_on("UseSerialGC"), Some(true));
            let last =
                asked("env _JAVA_OPTIONS=-Xmx64m JDK_JAVA_OPTIONS=-Xmx32m java -Xmx96m Main").expect(text);
            assert_eq!(last.bytes("MaxHeapSize"), Some(Bytes(64 << 20)));

            let refused = asked("java -XX:+UseSerialGC -XX:+UseParallelGC Main").map_err(|e| e.to_string());
            let said = ["Multiple garbage collectors selected", "Conflicting collector combinations"];
            assert!(refused.as_ref().is_err_and(|e| said.iter().any(|said| e.contains(said))), "{refused:?}");
        }
    }

    proptest! {
        #[test]
        fn any_output_is_read_without_panic(out in "(.|\n)*", err in "(.|\n)*") {
            let _ = parse(&out, &err).explicit_demand();
        }
    }
}
