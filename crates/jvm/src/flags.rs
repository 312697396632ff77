//! Final values of a JVM's flags, printed by the `java` that will run, with its own options.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap, env, ffi::OsString, io, path::PathBuf, process::ExitStatus, time::Duration,
};

use hugewise_linux::{bounded_run, empty_folder, sys::process::Program, units::Bytes};
use tempfile::TempDir;

use crate::{
    collector::Collector,
    launch::{LaunchError, LaunchLine, read_option_file},
};

/// Final flags and identity of a JVM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinalFlags {
    /// As `java -version` prints it: `17.0.15`.
    pub version: String,
    /// `java.home`: directory of the JDK that ran, after all links and wrappers.
    pub java_home: Option<PathBuf>,
    /// `java.vendor`: `Debian`, `Eclipse Adoptium`.
    pub vendor: Option<String>,
    /// `java.vm.name`: `OpenJDK 64-Bit Server VM`.
    pub vm: Option<String>,
    values: BTreeMap<String, String>,
}

/// Why the flags of a JVM are unknown.
#[derive(Debug, thiserror::Error)]
pub enum FlagsError {
    #[error("{java} could not be started: {source}")]
    Start { java: String, source: io::Error },
    /// No JVM ran: a wrapper before `java` fails, or `java` is a program that starts none.
    #[error("{program} fails before a JVM starts ({status}): {detail}")]
    BeforeJvm {
        /// The wrapper that reports the failure, or all programs that may have failed.
        program: String,
        status: ExitStatus,
        /// Up to three lines of the output.
        detail: String,
    },
    #[error("{java} refuses these options: {detail}")]
    Refused {
        java: String,
        /// Up to three lines of its output.
        detail: String,
    },
    /// The output has no `MaxHeapSize`, which every HotSpot JVM prints.
    #[error(
        "{java} is not a HotSpot JVM: {detail}; hugewise supports HotSpot only (OpenJDK, Oracle JDK and builds \
         of them)"
    )]
    NotHotSpot {
        java: String,
        /// `java.vm.name`, or up to three lines of its output.
        detail: String,
    },
    #[error(
        "{java} -XX:+PrintFlagsFinal -version did not end within {} s; check that it is a JVM",
        limit.as_secs()
    )]
    TimedOut { java: String, limit: Duration },
    #[error("creating an empty directory to run the JVM in: {0}")]
    Folder(io::Error),
    /// The options in files and variables could not be read.
    #[error(transparent)]
    Options(#[from] LaunchError),
}

/// Time limit for printing the flags; 1–2 s are usual on a loaded machine.
const QUERY_TIME_LIMIT: Duration = Duration::from_secs(20);

/// Reads the final flags of a launch line's JVM. `java` runs with `-version`, the options and variables that
/// decide its memory layout, and the words of its wrapper that the flags depend on. No part of the program
/// runs.
pub fn final_flags(line: &LaunchLine) -> Result<FinalFlags, FlagsError> {
    final_flags_within(line, QUERY_TIME_LIMIT)
}

fn final_flags_within(line: &LaunchLine, timeout: Duration) -> Result<FinalFlags, FlagsError> {
    with_unlisted_flags(line, &|options| {
        let flags_command = flags_command(line, options)?;
        let program = flags_command.command.name();
        match bounded_run::run_with_timeout(flags_command.command, timeout) {
            Ok(Some(printed)) => parse_output(line, printed.status, &printed.stdout, &printed.stderr),
            Ok(None) => Err(FlagsError::TimedOut { java: line.java.clone(), limit: timeout }),
            // With a wrapper, its first word may be the program that is missing.
            Err(source) => Err(FlagsError::Start { java: program, source }),
        }
    })
}

/// The flags of a line's JVM, which `final_flags` reads with more options after those of the line. Flags of
/// the line that this JVM does not list are passed on, too: the JVM decides whether it starts with them.
pub(crate) fn with_unlisted_flags<E: From<FlagsError>>(
    line: &LaunchLine,
    final_flags: &dyn Fn(&[String]) -> Result<FinalFlags, E>,
) -> Result<FinalFlags, E> {
    const UNLOCK: [&str; 2] = ["-XX:+UnlockDiagnosticVMOptions", "-XX:+UnlockExperimentalVMOptions"];
    let flags = final_flags(&[])?;
    let effective = line.effective_here(flags.major()).map_err(FlagsError::from)?;
    if effective.unlisted(&|name| flags.has(name)).is_empty() {
        return Ok(flags);
    }
    let all = final_flags(&UNLOCK.map(str::to_owned))?;
    match effective.unlisted(&|name| all.has(name)) {
        unlisted if unlisted.is_empty() => Ok(flags),
        unlisted => final_flags(&unlisted),
    }
}

/// Parses the output of a JVM that was started to print its flags.
pub(crate) fn parse_output(
    line: &LaunchLine,
    status: ExitStatus,
    stdout: &str,
    stderr: &str,
) -> Result<FinalFlags, FlagsError> {
    let flags = parse(stdout, stderr);
    let java = line.java.clone();
    let detail = || {
        let lines = stderr.lines().chain(stdout.lines()).map(str::trim);
        let lines = lines
            .filter(|l| !(l.is_empty() || l.starts_with("Picked up ") || l.starts_with("NOTE: Picked up")));
        lines.take(3).collect::<Vec<_>>().join(" / ")
    };
    if !status.success() && !is_of_jvm(stdout) && !is_of_jvm(stderr) {
        return Err(FlagsError::BeforeJvm {
            program: failed_program(line, stderr),
            status,
            detail: detail(),
        });
    }
    if !status.success() {
        // The number of each message of OpenJ9 begins so.
        let is_openj9 = [stdout, stderr].iter().any(|output| output.contains("JVMJ9"));
        let detail = detail();
        return Err(if is_openj9 {
            FlagsError::NotHotSpot { java, detail }
        } else {
            FlagsError::Refused { java, detail }
        });
    }
    if flags.bytes("MaxHeapSize").is_none() {
        let detail = flags.vm.unwrap_or_else(detail);
        return Err(FlagsError::NotHotSpot { java, detail });
    }
    Ok(flags)
}

/// Whether this is output of a JVM, or of the launcher that could not create it.
fn is_of_jvm(output: &str) -> bool {
    const SIGNS: [&str; 6] = [
        "Java Virtual Machine",
        "Java Runtime Environment",
        "VM warning",
        "JVM",
        " version \"",
        "[Global flags]",
    ];
    SIGNS.iter().any(|sign| output.contains(sign))
}

/// The wrapper of a line that reports an error, as `NAME: …`; if none does, all of its programs.
fn failed_program(line: &LaunchLine, stderr: &str) -> String {
    let wrappers = line.wrapper_programs();
    let reports = |name: &&String| stderr.lines().any(|text| text.starts_with(&format!("{name}: ")));
    match wrappers.iter().find(reports) {
        Some(name) => name.clone(),
        None => wrappers.into_iter().chain([line.java.clone()]).collect::<Vec<_>>().join(" or "),
    }
}

/// Command that makes a JVM print its flags, and the empty directory in which it runs.
pub(crate) struct FlagsCommand {
    /// Must be started before the directory is removed.
    pub command: Program,
    _folder: TempDir,
}

/// Command that makes the `java` of a launch line print its flags and version, with those of its options that
/// decide its memory layout, followed by `options`. It writes no file, does not pre-touch the heap, and runs
/// no part of the program.
pub(crate) fn flags_command(line: &LaunchLine, options: &[String]) -> Result<FlagsCommand, FlagsError> {
    empty_folder::remove_unused();
    let folder =
        tempfile::Builder::new().prefix(empty_folder::PREFIX).tempdir().map_err(FlagsError::Folder)?;
    let asked = line.layout_options(&|name| env::var(name).ok(), &read_option_file)?;
    let printing = [
        // No error report after a crash, and no performance data in the shared /tmp.
        "-XX:ErrorFile=/dev/null",
        "-XX:-UsePerfData",
        "-XX:-AlwaysPreTouch",
        "-XX:+PrintFlagsFinal",
        "-XshowSettings:properties",
        "-version",
    ];
    let options = asked.options.iter().chain(options).cloned().chain(printing.map(str::to_owned)).collect();
    let mut line = line.flags_line(options);
    if !line.wrapper.is_empty() {
        line = line.with_environment(&asked.variables);
    }
    let words = line.command();
    let (program, arguments) = words.split_first().unwrap_or((&line.java, &[]));
    let mut command = Program::new(program);
    command.args(arguments).envs(asked.variables).current_dir(folder.path());
    if let Some(path) = absolute_search_path() {
        command.env("PATH", path);
    }
    Ok(FlagsCommand { command, _folder: folder })
}

/// `PATH` for a program that runs in another directory; `None` if it needs no change.
fn absolute_search_path() -> Option<OsString> {
    let path = env::var_os("PATH")?;
    if env::split_paths(&path).all(|folder| folder.is_absolute()) {
        return None;
    }
    let here = env::current_dir().ok()?;
    env::join_paths(env::split_paths(&path).map(|folder| here.join(folder))).ok()
}

/// Parses the output of `-XX:+PrintFlagsFinal -version`: flags on standard output, the version on standard
/// error.
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
    /// Value of a boolean flag; `None` if this JVM does not have it.
    pub fn is_on(&self, name: &str) -> Option<bool> {
        self.values.get(name).map(|value| value == "true")
    }

    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// Value of a flag in bytes; `None` if this JVM does not have it.
    pub fn bytes(&self, name: &str) -> Option<Bytes> {
        self.values.get(name)?.parse().ok().map(Bytes)
    }

    /// The enabled collector.
    pub fn collector(&self) -> Option<Collector> {
        Collector::selected(|flag| self.is_on(flag) == Some(true))
    }

    /// Feature release, such as 8, 11 or 17; `None` if the version is unknown.
    pub fn major(&self) -> Option<u32> {
        let version = self.version.strip_prefix("1.").unwrap_or(&self.version);
        version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    }

    /// Upper bound of the pool memory that a launch with explicit huge pages takes: heap, code cache and the
    /// collector's tables. `None` without `MaxHeapSize`.
    ///
    /// HotSpot maps each explicit region whole. The tables of Shenandoah (two bitmaps of heap/32) bound those
    /// of the other collectors (G1: bitmaps of heap/64 and three tables of heap/512; Parallel: heap/32 and
    /// heap/512).
    pub fn explicit_demand(&self) -> Option<ExplicitDemand> {
        let heap = self.bytes("MaxHeapSize")?;
        let code = self.bytes("ReservedCodeCacheSize").unwrap_or_default();
        const ROUNDING: Bytes = Bytes(24 << 20); // About 12 regions, each rounded up to 2 MiB.
        let tables = Bytes(heap.0 / 16 + 3 * (heap.0 / 512)) + ROUNDING;
        Some(ExplicitDemand { heap, others: code + tables })
    }
}

/// Upper bound of the pool memory that a launch with explicit huge pages takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExplicitDemand {
    /// Maximum heap size.
    pub heap: Bytes,
    /// Code cache and collector tables; on the default huge page size, whatever the heap's page size is.
    pub others: Bytes,
}
