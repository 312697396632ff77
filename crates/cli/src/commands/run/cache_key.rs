//! The cache key: everything that a JVM's answers depend on, as one text.

use std::{env, fmt::Write, fs, os::unix::fs::MetadataExt, path::Path};

use hugewise_jvm::launch::LaunchLine;
use hugewise_linux::{
    cgroup,
    facts::OSRELEASE,
    hugepages::{page_sizes::PageSizes, thp::Thp},
    root::Root,
};
use hugewise_plan::backing_selection::BackingRequest;

/// Files that identify a JDK, relative to its home.
const JDK_FILES: [&str; 6] =
    ["bin/java", "lib/server/libjvm.so", "lib/libjli.so", "lib/jvm.cfg", "lib/modules", "release"];
/// Prefixes of the variables that the launcher, the loader or the JVM read.
const VARIABLE_PREFIXES: [&str; 8] =
    ["JAVA", "JDK", "_JAVA", "_JDK", "LD_", "GLIBC_TUNABLES", "MALLOC", "CLASSPATH"];
/// Options that select another JVM of the same JDK, which the key does not cover.
const JVM_SELECTING_OPTIONS: [&str; 5] =
    ["-client", "-minimal", "-zero", "-XXaltjvm", "-jre-restrict-search"];

/// The key; `None` if a dependency is unknown, so that nothing is cached.
pub fn key(
    root: &Root,
    command: &[String],
    line: &LaunchLine,
    java: &Path,
    wanted: &BackingRequest,
    sizes: &PageSizes,
    thp: &Thp,
) -> Option<String> {
    // The effect of other wrappers on processors, limits and variables is unknown.
    let assigns = |word: &String| word == "env" || word.contains('=');
    if !line.wrapper.iter().all(assigns) {
        return None;
    }
    let mut key =
        format!("hugewise {} {}\n", env!("CARGO_PKG_VERSION"), identity(Path::new("/proc/self/exe"))?);
    let mut say = |name: &str, value: &str| {
        let _ = writeln!(key, "{name}: {value}");
    };
    say("line", &format!("{:?} {:?} {:?}", wanted.backing, command, line));
    say("folder", &env::current_dir().ok()?.to_string_lossy());
    for (name, value) in env::vars_os() {
        let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
        if VARIABLE_PREFIXES.iter().any(|of| name.starts_with(of)) {
            if has_hidden_dependency(value.split_whitespace()) {
                return None;
            }
            say(&name, &value);
        }
    }
    let words = line
        .wrapper
        .iter()
        .flat_map(|word| word.split(['=', ' ']))
        .chain(line.options.iter().map(String::as_str));
    if has_hidden_dependency(words) {
        return None;
    }
    let home = java.parent()?.parent()?;
    for file in JDK_FILES {
        say(file, &identity(&home.join(file))?);
    }
    let read = |path: &str| root.read(path).ok();
    say("kernel", &read(OSRELEASE)?);
    say("limits", &read("proc/self/limits")?);
    for name in ["sys/devices/system/cpu/online", "sys/devices/system/node/online"] {
        say(name, &read(name).unwrap_or_default());
    }
    let status = read("proc/self/status")?;
    for line in status.lines() {
        if ["Uid:", "Cpus_allowed_list:", "Mems_allowed_list:"].iter().any(|name| line.starts_with(name)) {
            say("status", line);
        }
    }
    say("memory", read("proc/meminfo")?.lines().next()?);
    say("page sizes", &format!("{sizes:?}"));
    say("thp", &format!("{:?} {:?} {:?}", thp.enabled, thp.shmem_enabled, thp.sizes));
    let memory = cgroup::settings(root, "memory", &["memory.limit_in_bytes"], &["memory.max", "memory.high"]);
    let cpu_v1 = ["cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.shares"];
    let cpu = cgroup::settings(root, "cpu", &cpu_v1, &["cpu.max", "cpu.weight"]);
    say("control groups", &format!("{:?} {:?}", memory.ok()?, cpu.ok()?));
    Some(key)
}

/// Whether an option names another JVM, or a file whose content is not part of the line.
fn has_hidden_dependency<'a>(mut words: impl Iterator<Item = &'a str>) -> bool {
    words.any(|word| {
        let word = word.trim_start_matches(['"', '\'']);
        word.starts_with('@')
            || word.contains("-XX:Flags")
            || word.contains("VMOptionsFile")
            || JVM_SELECTING_OPTIONS.iter().any(|option| word.starts_with(option))
    })
}

/// Identity and state of a file. A change goes unnoticed only if the clock is set back.
fn identity(file: &Path) -> Option<String> {
    let found = fs::metadata(file).ok()?;
    Some(format!(
        "{}:{} {} {}.{} {}.{}",
        found.dev(),
        found.ino(),
        found.size(),
        found.mtime(),
        found.mtime_nsec(),
        found.ctime(),
        found.ctime_nsec()
    ))
}
