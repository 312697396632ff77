//! `hugewise run`: the program runs as if started directly and gets its pages, and no process is left behind.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use hugewise_changes::journal::{Journal, JournalError, STATE_DIR};
use hugewise_linux::{
    hugepages::page_sizes::PageSizes, root::Root, settings::Setting, sys::process::is_root,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    TestResult, Trial,
    compiling::compile,
    needs::{
        Need::{Compiler, Java, Namespaces, OffHeapJars, Pool, Root as IsRoot, Thp},
        OFF_HEAP_JARS, jdks,
    },
    settings::MAX_WAIT_TIME,
    skip,
    start::{EndedProcess, Running, hugewise, says},
    trial,
};

pub fn trials() -> Vec<Trial> {
    let cache_needs: &[_] = if is_root() { &[Java, Namespaces] } else { &[Java] };
    let mut trials = vec![
        trial("run: process id, exit status and environment", &[], everything_is_its_own),
        trial("run: signals are as the caller left them", &[Compiler], signals_are_untouched),
        trial("run: the program has no child that it did not start", &[], no_child),
        trial("run: process 1 gets no observer", &[Namespaces], process_one),
        trial("run: base pages", &[Thp], base_pages),
        trial("run: other programs get huge pages through malloc", &[Thp, Compiler], malloc_is_asked),
        trial("run: memory is collapsed by the observer", &[IsRoot, Thp, Compiler], collapsed),
        trial("run: programs that cannot be started", &[], what_cannot_be_started),
        trial("run: auto without a pool, and with one", &[IsRoot, Pool, Thp, Java], auto),
        trial("run: strict starts nothing", &[Java, Pool], strict),
        trial("run: answers are kept, and never stale", cache_needs, never_stale),
    ];
    for (class, source) in [("OffHeapOhc", OHC), ("OffHeapJe", JE)] {
        for backing in ["thp", "hugetlb"] {
            let name = format!("run: {class} on {backing}");
            let needs = [IsRoot, Pool, Thp, Java, OffHeapJars];
            trials.push(trial(&name, &needs, move || off_heap(class, source, backing)));
        }
    }
    trials
}

/// A command that runs `hugewise run` with a separate cache, unless it is root's.
fn run_with(cache: &Path, options: &[&str], command: &[&str]) -> Command {
    let mut call = hugewise(&[&["run"], options, &["--"], command].concat());
    call.env("XDG_CACHE_HOME", cache);
    call
}

/// The same call in a mount namespace in which /var/cache, where root's cache is, is another folder.
fn with_caches_of_machine(caches: &Path, call: &Command) -> Command {
    let mut inside = Command::new("unshare");
    inside.args(["--mount", "sh", "-c", "mount --bind \"$0\" /var/cache && exec \"$@\""]);
    inside.arg(caches).arg(call.get_program()).args(call.get_args());
    for (name, value) in call.get_envs() {
        match value {
            Some(value) => inside.env(name, value),
            None => inside.env_remove(name),
        };
    }
    inside
}

fn ran(options: &[&str], command: &[&str]) -> Result<EndedProcess, Box<dyn std::error::Error>> {
    let cache = tempfile::tempdir()?;
    Running::start(&mut run_with(cache.path(), options, command))?.wait()
}

fn everything_is_its_own() -> TestResult {
    let cache = tempfile::tempdir()?;
    let script = "echo pid $$; env | sort; ls /proc/$$/fd; exit 7";
    let mut call = run_with(cache.path(), &["--backing", "base"], &["sh", "-c", script]);
    call.env("KEPT", "a  b");
    let running = Running::start(&mut call)?;
    let pid = running.child.id();
    let through = running.wait()?.ended_with(7)?;
    says(&through.stdout, &[&format!("pid {pid}\n"), "KEPT=a  b"])?;
    let mut direct = Command::new("sh");
    direct.args(["-c", script]).env("KEPT", "a  b").env("XDG_CACHE_HOME", cache.path());
    for variable in ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "GLIBC_TUNABLES", "JAVA_HOME"]
    {
        direct.env_remove(variable);
    }
    let direct = Running::start(&mut direct)?.wait()?;
    // The JVMs of a script take their flags from a variable.
    let is_of_jvm = |line: &&str| line.contains("OPTIONS=-XX:-UseLargePages");
    let without_pid = |text: &str| {
        text.lines().skip(1).filter(|line| !is_of_jvm(line)).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(without_pid(&through.stdout), without_pid(&direct.stdout), "environment and descriptors");
    Ok(())
}

const SIGNALS: &str = "
#include <signal.h>
#include <stdio.h>
int main(void) {
    struct sigaction pipe;
    sigset_t mask;
    sigaction(SIGPIPE, 0, &pipe);
    sigprocmask(SIG_BLOCK, 0, &mask);
    printf(\"SIGPIPE ignored: %d, SIGUSR1 blocked: %d\\n\", pipe.sa_handler == SIG_IGN, sigismember(&mask, SIGUSR1));
    return 0;
}
";
/// A program that starts its arguments with SIGPIPE ignored and SIGUSR1 blocked.
const IGNORING: &str = "
#include <signal.h>
#include <unistd.h>
int main(int count, char **arguments) {
    sigset_t mask;
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    sigprocmask(SIG_BLOCK, &mask, 0);
    execvp(arguments[1], arguments + 1);
    return 99;
}
";

fn signals_are_untouched() -> TestResult {
    let folder = tempfile::tempdir()?;
    let signals = compile(folder.path(), "signals", SIGNALS)?;
    let ignoring = compile(folder.path(), "ignoring", IGNORING)?;
    // Through a shell, which starts with default signal handling; children of Rust programs do not.
    let shell = |line: String| {
        let mut call = Command::new("sh");
        call.args(["-c", &line, env!("CARGO_BIN_EXE_hugewise"), &signals, &ignoring]);
        Running::start(&mut call)?.wait()?.ended_with(0)
    };
    let ran = shell("exec \"$0\" run -q -- \"$1\"".to_owned())?;
    assert_eq!(ran.stdout, "SIGPIPE ignored: 0, SIGUSR1 blocked: 0\n");
    let ran = shell("exec \"$2\" \"$0\" run -q -- \"$1\"".to_owned())?;
    assert_eq!(ran.stdout, "SIGPIPE ignored: 1, SIGUSR1 blocked: 1\n");
    // If a signal ends the program, it ends `hugewise run` as well.
    let mut call = hugewise(&["run", "-q", "--", "sh", "-c", "kill -TERM $$"]);
    let ended = Running::start(&mut call)?.wait()?;
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended.status), Some(15));
    Ok(())
}

fn no_child() -> TestResult {
    let script = "sleep 0.3; cat /proc/$$/task/$$/children; wait; echo none";
    let seen = ran(&["--within", "1"], &["sh", "-c", script])?.ended_with(0)?;
    // While it reads, `cat` is the only child.
    assert_eq!(seen.stdout.split_whitespace().count(), 2, "{seen:#?}");
    Ok(())
}

fn process_one() -> TestResult {
    let mut call = Command::new("unshare");
    call.args([
        "-fp",
        "--mount-proc",
        env!("CARGO_BIN_EXE_hugewise"),
        "run",
        "--",
        "sh",
        "-c",
        "echo $$; ls -d /proc/[0-9]*; echo end",
    ]);
    let ran = Running::start(&mut call)?.wait()?.ended_with(0)?;
    says(&ran.stderr, &["no report will follow: the program would be process 1"])?;
    assert_eq!(
        ran.stdout.lines().filter(|line| line.starts_with("/proc/")).count(),
        1,
        "the shell alone: {ran:#?}"
    );
    Ok(())
}

fn base_pages() -> TestResult {
    let seen = ran(&["--backing", "base"], &["grep", "THP_enabled", "/proc/self/status"])?.ended_with(0)?;
    says(&seen.stdout, &["0"])?;
    says(&seen.stderr, &["hugewise: backing base"])
}

/// Ends when the report exists.
const ALLOCATE: &str = "
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
int main(int count, char **arguments) {
    size_t bytes = 64 << 20;
    volatile char *memory = malloc(bytes);
    for (size_t at = 0; at < bytes; at += 4096) memory[at] = 1;
    puts(getenv(\"GLIBC_TUNABLES\") ? getenv(\"GLIBC_TUNABLES\") : \"\");
    struct stat report;
    for (int wait = 0; wait < 6000 && (stat(arguments[1], &report) || report.st_size == 0); wait++) usleep(100000);
    return 0;
}
";

fn malloc_is_asked() -> TestResult {
    let folder = tempfile::tempdir()?;
    let program = compile(folder.path(), "allocate", ALLOCATE)?;
    let report = folder.path().join("report.json");
    let file = report.display().to_string();
    let mut call = run_with(folder.path(), &["--backing", "thp", "--report", &file], &[&program, &file]);
    call.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=0:glibc.malloc.tcache_count=9");
    let ran = Running::start(&mut call)?.wait()?.ended_with(0)?;
    let tunables = "glibc.malloc.tcache_count=9:glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1:";
    assert!(ran.stdout.starts_with(tunables), "{}", ran.stdout);
    covered(&report, "anonymous", 0.8)
}

fn collapsed() -> TestResult {
    let folder = tempfile::tempdir()?;
    let program = compile(folder.path(), "allocate", ALLOCATE)?;
    let report = folder.path().join("report.json");
    let file = report.display().to_string();
    let options = ["--backing", "base", "--off-heap", "thp", "--malloc", "collapse", "--report", &file];
    let mut call = run_with(folder.path(), &options, &[&program, &file]);
    Running::start(&mut call)?.wait()?.ended_with(0)?;
    let seen: Value = serde_json::from_str(&fs::read_to_string(&report)?)?;
    let collapsed = seen["collapsed_bytes"].as_u64().unwrap_or(0);
    let reported = seen["notes"].to_string();
    // Without enough free memory the reason must say so.
    assert!(collapsed >= 60 << 20 || reported.contains("without reclaiming or compacting"), "{seen:#}");
    if collapsed >= 60 << 20 { covered(&report, "anonymous", 0.8) } else { Ok(()) }
}

fn what_cannot_be_started() -> TestResult {
    let missing = ran(&[], &["no-such-program-anywhere"])?.ended_with(2)?;
    says(&missing.stderr, &["no-such-program-anywhere", "PATH"])?;
    let named = ran(&["-q"], &["/no/such/program"])?.ended_with(2)?;
    says(&named.stderr, &["/no/such/program", "No such file"])?;
    let shared = ran(&["--backing", "shm"], &["true"])?.ended_with(2)?;
    says(&shared.stderr, &["only a JVM", "nothing was started"])?;
    // The java of a command line that is unknown until a shell runs it takes flags from a variable.
    let unclear = ["sh", "-c", "exec java $NO_SUCH_OPTIONS -version"];
    says(&ran(&["--backing", "base"], &unclear)?.stderr, &["OPTIONS of sh has -XX:-UseLargePages"])?;
    // An argument file that does not exist: the program reports it.
    let unclear = ["java", "@/no/such/file", "-version"];
    says(&ran(&[], &unclear)?.stderr, &["started unchanged"])?;
    says(&ran(&["--strict"], &unclear)?.ended_with(2)?.stderr, &["nothing was started"])?;
    // A wrapper may find a java that is not in PATH.
    if let Some(jdk) = jdks().first() {
        let path = format!("PATH={}", jdk.home.join("bin").display());
        let cache = tempfile::tempdir()?;
        let mut call =
            run_with(cache.path(), &["-q"], &["/usr/bin/env", &path, "java", "-Xmx64m", "-version"]);
        call.env("PATH", "/nowhere");
        says(&Running::start(&mut call)?.wait()?.ended_with(0)?.stderr, &[&jdk.version])?;
    }
    // A JVM that refuses its options prints the reason itself.
    if let Some(jdk) = jdks().first() {
        let java = jdk.java.display().to_string();
        let refused = ran(&[], &[&java, "-XX:+NoSuchFlag", "-version"])?.ended_with(1)?;
        says(&refused.stderr, &["started unchanged", "NoSuchFlag"])?;
        let strict = ran(&["--strict"], &[&java, "-XX:+NoSuchFlag", "-version"])?.ended_with(2)?;
        says(&strict.stderr, &["nothing was started", "NoSuchFlag"])?;
    }
    Ok(())
}

/// Runs `test` with a pool of `pages` of the default size, which is restored at the end.
fn with_pool(pages: u64, test: impl FnOnce() -> TestResult) -> TestResult {
    let root = Root::live();
    let page_size = PageSizes::read(&root)?.default_hugetlb.ok_or("no default size")?;
    let begin = Instant::now();
    let mut journal = loop {
        match Journal::open(&root, Path::new(STATE_DIR), "a test of run") {
            Err(JournalError::Busy(_)) if begin.elapsed() < MAX_WAIT_TIME => {
                thread::sleep(Duration::from_millis(200))
            }
            opened => break opened?,
        }
    };
    let got = journal.set(Setting::Pool { page_size, node: None }, &pages.to_string())?;
    let tested =
        if got == pages.to_string() { test() } else { skip(format!("a pool of {got} pages, not {pages}")) };
    let restored = journal.close();
    assert_eq!(restored.failed, []);
    tested
}

fn auto() -> TestResult {
    let jdk = jdks().first().cloned().ok_or("no JDK")?;
    let java = jdk.java.display().to_string();
    let command = [&java, "-Xms64m", "-Xmx64m", "-XX:-UseLargePages", "-XX:+PrintFlagsFinal", "-version"];
    let on = |text: &str, flag: &str| {
        text.lines().any(|line| line.split_whitespace().nth(1) == Some(flag) && line.contains("= true"))
    };
    with_pool(0, || {
        let cache = tempfile::tempdir()?;
        let mut call = run_with(cache.path(), &[], &command);
        call.env("_JAVA_OPTIONS", "-XX:-UseTransparentHugePages -Xss1m");
        let ran = Running::start(&mut call)?.wait()?.ended_with(0)?;
        says(&ran.stderr, &["hugewise: backing thp; hugetlb is not available: it needs", "0 are available"])?;
        says(&ran.stderr, &["removed -XX:-UseLargePages, -XX:-UseTransparentHugePages of _JAVA_OPTIONS"])?;
        says(&ran.stderr, &["Picked up _JAVA_OPTIONS: -Xss1m"])?;
        assert!(on(&ran.stdout, "UseTransparentHugePages"), "{}", ran.stdout);
        Ok(())
    })?;
    with_pool(300, || {
        let ran = ran(&["--strict"], &command)?.ended_with(0)?;
        says(&ran.stderr, &["hugewise: backing hugetlb: it needs", "and 300 are available"])?;
        assert!(
            on(&ran.stdout, "UseLargePages") && !on(&ran.stdout, "UseTransparentHugePages"),
            "{}",
            ran.stdout
        );
        // A size that the machine does not have is refused before the JVM is queried.
        let refused = ran_refused(&["--backing", "hugetlb:8k"], &command)?;
        says(&refused, &["no pool of 8KiB pages"])
    })
}

fn ran_refused(options: &[&str], command: &[&str]) -> Result<String, Box<dyn std::error::Error>> {
    Ok(ran(options, command)?.ended_with(2)?.stderr)
}

fn strict() -> TestResult {
    let jdk = jdks().first().cloned().ok_or("no JDK")?;
    let java = jdk.java.display().to_string();
    // A heap larger than the pool of any test machine.
    let command = [&java, "-Xmx900g", "-XX:+UseG1GC", "-version"];
    let refused = ran_refused(&["--strict", "--backing", "hugetlb"], &command)?;
    says(&refused, &["nothing was started", "hugetlb is not available", "--strict"])
}

fn never_stale() -> TestResult {
    let jdk = jdks().first().cloned().ok_or("no JDK")?;
    let folder = tempfile::tempdir()?;
    // A stand-in for java counts how often the JVM is queried.
    let arguments = folder.path().join("heap");
    let line = format!("@{}", arguments.display());
    let entries = || fs::read_dir(folder.path().join("hugewise")).map_or(0, Iterator::count);
    let start = |variables: &[(&str, &str)], java: &Path| -> TestResult {
        let java = java.display().to_string();
        let mut call = run_with(folder.path(), &["-q"], &[&java, &line, "-version"]);
        call.envs(variables.iter().copied());
        if is_root() {
            call = with_caches_of_machine(folder.path(), &call);
        }
        Running::start(&mut call)?.wait()?.ended_with(0)?;
        Ok(())
    };
    fs::write(&arguments, "-Xmx64m")?;
    start(&[], &jdk.java)?;
    assert_eq!(entries(), 1);
    start(&[], &jdk.java)?;
    assert_eq!(entries(), 1, "the same line is the same entry");
    fs::write(&arguments, "-Xmx65m")?;
    start(&[], &jdk.java)?;
    assert_eq!(entries(), 2, "the content of the argument file is part of the key");
    start(&[("JAVA_TOOL_OPTIONS", "-Xms8m")], &jdk.java)?;
    assert_eq!(entries(), 3, "variables count");
    // A damaged entry is replaced by a new query.
    for entry in fs::read_dir(folder.path().join("hugewise"))? {
        fs::write(entry?.path(), "{\"key\":")?;
    }
    start(&[], &jdk.java)?;
    let whole = fs::read_dir(folder.path().join("hugewise"))?
        .filter_map(|entry| fs::read(entry.ok()?.path()).ok())
        .filter(|bytes| serde_json::from_slice::<Value>(bytes).is_ok());
    assert_eq!((whole.count(), entries()), (1, 3));
    // A shell script in place of java could start any JVM: its answers are not cached.
    let script = folder.path().join("bin/java");
    fs::create_dir_all(folder.path().join("bin"))?;
    fs::write(&script, format!("#!/bin/sh\nexec {} \"$@\"\n", jdk.java.display()))?;
    Command::new("chmod").args(["+x"]).arg(&script).status()?;
    start(&[], &script)?;
    assert_eq!(entries(), 3);
    Ok(())
}

const OHC: &str = include_str!("OffHeapOhc.java");
const JE: &str = include_str!("OffHeapJe.java");

/// An unmodified off-heap cache from Maven Central: 600 MB, filled by two threads.
fn off_heap(class: &str, source: &str, backing: &str) -> TestResult {
    let jdk = jdks().into_iter().find(|jdk| (11..=21).contains(&jdk.major)).ok_or("no JDK of 11 to 21")?;
    let jars = env::var(OFF_HEAP_JARS)?;
    let folder: TempDir = tempfile::tempdir()?;
    let here: PathBuf = folder.path().to_owned();
    fs::write(here.join(format!("{class}.java")), source)?;
    let class_path = format!("{}:{jars}/*", here.display());
    let mut compiler = Command::new(jdk.home.join("bin/javac"));
    compiler.args(["-cp", &class_path, "-d"]).arg(&here).arg(here.join(format!("{class}.java")));
    let compiled = compiler.output()?;
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let report = here.join("report.json");
    let (java, file) = (jdk.java.display().to_string(), report.display().to_string());
    let options = ["--backing", "base", "--off-heap", backing, "--report", &file];
    let command = [&java, "-Xmx256m", "-cp", &class_path, class, "600", "2", "100", &file];
    let start = || -> TestResult {
        Running::start(run_with(&here, &options, &command).current_dir(&here))?.wait()?.ended_with(0)?;
        covered(&report, "outside heap", 0.9)
    };
    if backing == "hugetlb" { with_pool(450, start) } else { start() }
}

/// Fails unless the observer reports at least this coverage of a region, and at least 60 MB of it.
fn covered(report: &Path, region: &str, least: f64) -> TestResult {
    let text = fs::read_to_string(report)?;
    let seen: Value = serde_json::from_str(&text)?;
    let regions = seen["regions"].as_array().ok_or("no regions")?;
    let found = regions.iter().find(|found| found["name"] == region).ok_or_else(|| text.clone())?;
    let (coverage, resident) = (found["coverage"].as_f64(), found["resident_bytes"].as_u64());
    if coverage.is_none_or(|coverage| coverage < least) || resident.is_none_or(|bytes| bytes < 60_000_000) {
        return Err(format!("{least} was expected of {region}: {text}").into());
    }
    Ok(())
}
