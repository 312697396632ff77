//! In places like containers: limits of control groups above a namespace, and a root that is none of the machine's. What
//! is predicted is what happens.

use std::{
    error::Error,
    fs,
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use hugewise_jvm::jdks::Jdk;
use hugewise_linux::units::Bytes;
use serde_json::Value;

use crate::{
    TestResult, Trial,
    compiling::compiled,
    memory_group::Group,
    needs::{
        Need::{Java, MemoryGroup, Namespaces, Pool, Root},
        jdks,
    },
    skip,
    start::{hugewise, run, run_command, says},
    trial,
};

/// Pages of 2 MiB of the pool, and those that a JVM with a heap of 32 MiB takes.
const POOL: u64 = 60;
const NEEDED: u64 = 24;
const OPTIONS: [&str; 6] = [
    "-XX:+UseLargePages",
    "-XX:+UseSerialGC",
    "-Xms32m",
    "-Xmx32m",
    "-XX:ReservedCodeCacheSize=16m",
    "-XX:InitialCodeCacheSize=16m",
];
/// Fills its heap.
const FILL: &str = "public class Fill { public static void main(String[] a) {
    java.util.List<byte[]> all = new java.util.ArrayList<>();
    for (int n = 0; n < 20; n++) all.add(new byte[1 << 20]);
    System.out.println(all.size());
} }";
const PRINT_FLAGS: &str = "-XX:+PrintFlagsFinal";
const SIGABRT: i32 = 6;
const SIGBUS: i32 = 7;

pub fn trials() -> Vec<Trial> {
    let needs = [Root, Pool, Java, Namespaces];
    let mut trials = Vec::new();
    for (pages, hidden) in [(8, true), (NEEDED, true), (8, false), (NEEDED, false)] {
        let place = if hidden { "above a namespace" } else { "that is visible" };
        let name = format!("container: a limit of {pages} pages {place} is predicted");
        trials.push(trial(&name, &needs, move || limited(pages, hidden)).representing(pages == 8 && hidden));
    }
    let name = "container: a visible limit below a hidden one is named by its file";
    trials.push(trial(name, &needs, visible_below_hidden));
    let needs = [Root, Java, MemoryGroup];
    trials.push(trial(
        "container: the heap of a plan for one is the planned one in it",
        &needs,
        heap_as_planned,
    ));
    for (n, jdk) in jdks().into_iter().enumerate() {
        for mib in [512, 1024, 1791, 1792, 3000] {
            let name = format!("container: JDK {} chooses as planned for a target of {mib} MiB", jdk.version);
            let jdk = jdk.clone();
            trials.push(
                trial(&name, &needs, move || target_as_planned(&jdk, mib))
                    .representing(n == 0 && mib == 1024),
            );
        }
    }
    trials.push(trial("container: root of a user namespace is named", &[Root, Namespaces], user_namespace));
    trials
}

/// A control group with a limit on pages, and one below it.
struct Groups(PathBuf);

impl Groups {
    fn make(pages: u64) -> Result<Groups, Box<dyn Error>> {
        let of_machine = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
        let has_pages = |folder: &Path| {
            fs::read_to_string(folder.join("cgroup.controllers")).is_ok_and(|all| all.contains("hugetlb"))
        };
        let Some(of_machine) = of_machine.into_iter().find(|folder| has_pages(folder)) else {
            return skip("no hugetlb controller in control groups of version 2");
        };
        fs::write(of_machine.join("cgroup.subtree_control"), "+hugetlb")?;
        let groups = Groups(of_machine.join(format!("hugewise-limited-{}", std::process::id())));
        fs::create_dir(&groups.0)?;
        fs::write(groups.0.join("cgroup.subtree_control"), "+hugetlb")?;
        fs::write(groups.0.join("hugetlb.2MB.max"), (pages << 21).to_string())?;
        fs::create_dir(groups.0.join("pod"))?;
        Ok(groups)
    }

    /// The command in the lower group; if `hidden`, in a namespace that has it as its root.
    fn inside(&self, hidden: bool, command: &Command) -> Command {
        let procs = self.0.join("pod/cgroup.procs").display().to_string();
        let enter = "echo $$ > \"$0\" && exec \"$@\"";
        let mut inner = Command::new("sh");
        inner.args(["-c", enter, &procs]);
        if hidden {
            let mount =
                "umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup && exec \"$0\" \"$@\"";
            inner.args(["unshare", "--cgroup", "--mount", "sh", "-c", mount]);
        }
        inner.arg(command.get_program()).args(command.get_args());
        inner
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        let _ = fs::remove_dir(self.0.join("pod"));
        let _ = fs::remove_dir(&self.0);
    }
}

fn limited(pages: u64, hidden: bool) -> TestResult {
    let groups = Groups::make(pages)?;
    run(&["apply", "--pool", &format!("2MiB={POOL}")])?.ended_with(0)?;
    let outcome = judged(&groups, pages, hidden);
    run(&["restore"])?.ended_with(0)?;
    outcome
}

fn judged(groups: &Groups, pages: u64, hidden: bool) -> TestResult {
    let classes = compiled("Fill", FILL)?;
    let java = jdks().first().ok_or("no JDK")?.java.display().to_string();
    let path = classes.path().display().to_string();
    let program = [&[java.as_str()][..], &OPTIONS, &["-cp", &path, "Fill"]].concat();
    let is_enough = pages >= NEEDED;
    let status = i32::from(!is_enough);

    let plan = || groups.inside(hidden, &hugewise(&[&["plan", "--json", "--"][..], &program].concat()));
    let planned: Value = serde_json::from_str(&run_command(&plan)?.ended_with(status)?.stdout)?;
    let verdict = if is_enough { "gets_huge_pages" } else { "dies_of_sigbus" };
    assert_eq!(planned["verdict"], verdict, "{planned:#}");
    if !is_enough {
        let first = planned["actions"][0]["change"].as_str().unwrap_or_default();
        let raise = if hidden { "On the host: raise the limit" } else { "Raise the limit" };
        assert!(first.starts_with(raise), "{planned:#}");
    }

    // A JVM that is killed writes a file about it.
    let mut started = groups.inside(hidden, Command::new(&java).args(&program[1..]));
    let ran: Output = started.current_dir(classes.path()).output()?;
    let died = ran.status.signal().is_some_and(|signal| signal == SIGBUS || signal == SIGABRT);
    assert_eq!((died, ran.status.success()), (!is_enough, is_enough), "{ran:?}");

    let options = ["run", "--strict", "--backing", "hugetlb", "--within", "5", "--"];
    let started = || groups.inside(hidden, &hugewise(&[&options[..], &program].concat()));
    let refused = run_command(&started)?.ended_with(if is_enough { 0 } else { 2 })?;
    if !is_enough {
        says(&refused.stderr, &[&format!("the control group allows {pages} more")])?;
        // The command that the plan prints for a visible limit cures it.
        if let Some(raise) = planned["actions"][0]["command"].as_str() {
            Command::new("sh").args(["-c", &raise.replace("sudo ", "")]).output()?;
            let cured: Value = serde_json::from_str(&run_command(&plan)?.ended_with(0)?.stdout)?;
            assert_eq!(cured["verdict"], "gets_huge_pages", "{cured:#}");
        }
    }
    Ok(())
}

fn visible_below_hidden() -> TestResult {
    let groups = Groups::make(NEEDED)?;
    fs::write(groups.0.join("pod/hugetlb.2MB.max"), (8 << 21).to_string())?;
    run(&["apply", "--pool", &format!("2MiB={POOL}")])?.ended_with(0)?;
    let java = jdks().first().ok_or("no JDK")?.java.display().to_string();
    let program = [&["plan", "--json", "--", &java][..], &OPTIONS, &["-version"]].concat();
    let planned = run_command(&|| groups.inside(true, &hugewise(&program)));
    run(&["restore"])?.ended_with(0)?;
    let planned: Value = serde_json::from_str(&planned?.ended_with(1)?.stdout)?;
    assert_eq!(planned["verdict"], "dies_of_sigbus", "{planned:#}");
    let raise = planned["actions"][0]["command"].as_str().unwrap_or_default();
    says(raise, &["sudo tee /sys/fs/cgroup/hugetlb.2MB.max"])
}

/// What [`PRINT_FLAGS`] prints of a flag.
fn flag_of(ran: &Output, flag: &str) -> Option<String> {
    let flags = String::from_utf8_lossy(&ran.stdout).into_owned();
    let line = flags.lines().find(|line| line.split_whitespace().nth(1) == Some(flag))?;
    line.split('=').nth(1)?.split_whitespace().next().map(str::to_owned)
}

/// Runs a `java` that prints its flags in a group with a limit on memory, on the CPUs of `mask`.
fn flags_within(limit: Bytes, mask: &str, java: &str, options: &[&str]) -> Result<Output, Box<dyn Error>> {
    let group = Group::with_limit(limit)?;
    let procs = group.0.join("cgroup.procs").display().to_string();
    let mut started = Command::new("sh");
    started.args(["-c", "echo $$ > \"$0\" && exec taskset -c \"$@\"", &procs, mask, java, PRINT_FLAGS]);
    Ok(started.args(options).arg("-version").output()?)
}

/// A plan for a target of given sizes: heap and collector are those of a JVM there.
fn target_as_planned(jdk: &Jdk, mib: u64) -> TestResult {
    let java = jdk.java.display().to_string();
    for options in [&[][..], &["-XX:MaxRAMPercentage=60"], &["-XX:+UseParallelGC"]] {
        for (cpus, mask) in [(1, "0"), (2, "0,1")] {
            let target = format!("memory={mib}MiB,cpus={cpus}");
            let plan = [&["plan", "--json", "--target", &target, "--", &java][..], options].concat();
            // Exit status 1 if the pages need more than this memory.
            let planned: Value = serde_json::from_str(&run(&plan)?.stdout)?;
            let there = flags_within(Bytes(mib << 20), mask, &java, options)?;
            let heap = planned["heap"]["max_bytes"].as_u64().map(|bytes| bytes.to_string());
            let case = format!("{java} {options:?} {target}: {planned}");
            assert_eq!(flag_of(&there, "MaxHeapSize"), heap, "{case}");
            let collector = planned["java"]["collector"].as_str().unwrap_or_default();
            assert_eq!(flag_of(&there, &format!("Use{collector}GC")).as_deref(), Some("true"), "{case}");
        }
    }
    Ok(())
}

/// The JVM of a container with this limit on memory and one CPU.
fn heap_as_planned() -> TestResult {
    let java = jdks().first().ok_or("no JDK")?.java.display().to_string();
    let command = [&java, "-XX:+UseLargePages", "-XX:MaxRAMPercentage=20", "-version"];
    let plan = |format: &str| run(&[&["plan", "--format", format, "--"][..], &command].concat());
    // The pool is too small.
    let planned: Value = serde_json::from_str(&plan("json")?.stdout)?;
    let container = plan("docker")?.stdout;
    let line = container.lines().find(|line| line.starts_with("docker run")).ok_or("no command")?;
    let (_, options) = line.split_once("IMAGE ").ok_or("no options")?;
    let options: Vec<&str> = options.split(' ').filter(|option| *option != "-XX:+UseLargePages").collect();
    let ran = flags_within(Bytes(1 << 30), "0", &java, &options)?;
    let value = |flag: &str| flag_of(&ran, flag);
    let heap = planned["heap"]["max_bytes"].as_u64().map(|bytes| bytes.to_string());
    assert_eq!(value("MaxHeapSize"), heap, "{line}\n{ran:?}");
    let collector = planned["java"]["collector"].as_str().unwrap_or_default().to_owned();
    assert_eq!(value(&format!("Use{collector}GC")).as_deref(), Some("true"), "{line}");
    Ok(())
}

fn user_namespace() -> TestResult {
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let program = folder.path().join("hugewise");
    fs::copy(hugewise(&[]).get_program(), &program)?;
    let inside = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "unshare", "-Ur"]);
        command.arg(&program).args(arguments);
        command
    };
    for arguments in [&["apply", "--pool", "2MiB=10"][..], &["restore"]] {
        let refused = run_command(&|| inside(arguments))?.ended_with(2)?;
        let there = format!("on the host: sudo hugewise {}", arguments.join(" "));
        says(&refused.stderr, &["/proc/self/uid_map", &there, "no setting is changed"])?;
        assert!(!refused.stderr.contains("run as root"), "{}", refused.stderr);
    }
    Ok(())
}
