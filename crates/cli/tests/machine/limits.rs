//! A process that does not answer delays no command: signals and time limits end each command beside a process in each
//! state. `HUGEWISE_LIMITS=FILE` adds a line for each measured end to a file: command, state, cause, seconds.

use std::{
    env,
    error::Error,
    fs::{self, OpenOptions},
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::{
    TestResult, Trial,
    compiling::compile,
    needs::Need::{Compiler, Namespaces, Root, Thp},
    represents,
    settings::{JOURNAL, RECORDING},
    skip,
    start::{Running, hugewise, run},
    trial,
};

const TARGET: &str = include_str!("limits_target.c");
/// Environment variable with the file of the measured times.
const TABLE: &str = "HUGEWISE_LIMITS";
/// Longest time until a command has ended: ten times of what is promised.
const DEADLINE: Duration = Duration::from_secs(10);
/// Longest `inspect --attach` of a JVM that answers slowly, which has no other limit.
const ATTACH_DEADLINE: Duration = Duration::from_secs(40);
/// Time from the start of a command, or from its first change, to the signal.
const BEFORE_SIGNAL: Duration = Duration::from_millis(500);
/// Longest wait for the first change of a setting.
const START_LIMIT: Duration = Duration::from_secs(5);

/// The commands that observe or change a process, each with its time limit in seconds; 0 for those that end when they
/// have read it.
const COMMANDS: [(&str, u64); 9] = [
    ("inspect", 0),
    ("inspect --attach", 0),
    ("inspect --all", 0),
    ("plan --pid", 0),
    ("record", 1),
    ("collapse", 0),
    ("split", 0),
    ("compare --live", 2),
    ("restore", 0),
];
/// The states of the process: [`Target`].
const STATES: [&str; 16] = [
    "stopped",
    "frozen (v1)",
    "frozen (v2)",
    "traced",
    "zombie",
    "vfork",
    "full",
    "silent",
    "drip",
    "datagrams",
    "hung files",
    "hung library",
    "held",
    "held by exec",
    "executes",
    "storm",
];
/// What ends a command.
const CAUSES: [Option<&str>; 3] = [Some("INT"), Some("TERM"), None];

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (s, state) in STATES.into_iter().enumerate() {
        for (c, command) in COMMANDS.into_iter().enumerate() {
            let name = format!("limits: {} of a process: {state}", command.0);
            let test = trial(&name, &[Root, Thp, Compiler, Namespaces], move || ends_in_time(command, state));
            trials.push(test.representing(represents(c, COMMANDS.len(), s)));
        }
    }
    trials
}

fn ends_in_time((command, limit): (&str, u64), state: &str) -> TestResult {
    let target = Target::start(state)?;
    for cause in CAUSES {
        if command == "restore" {
            leave_a_recording(&target.pid)?;
        }
        let ended = end(command, limit, &target.pid, cause);
        let restored = run(&["restore"]).map(drop);
        let seconds = ended?;
        restored?;
        note(&format!("{command}\t{state}\t{}\t{seconds:.2}", cause.unwrap_or("limit")))?;
    }
    Ok(())
}

/// Starts the command, and ends it by `cause`: a signal, or its time limit. Returns how long that took in seconds.
fn end(command: &str, limit: u64, pid: &str, cause: Option<&str>) -> Result<f64, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let recording = folder.path().join("recording").display().to_string();
    let mut arguments: Vec<&str> = command.split(' ').collect();
    let seconds = limit.to_string();
    match (command, cause) {
        ("record", None) => arguments.extend(["--seconds", &seconds, "-o", &recording]),
        ("record", Some(_)) => arguments.extend(["-o", &recording]),
        ("compare --live", None) => arguments.extend([pid, "--max-time", &seconds, "--turn", "1"]),
        ("compare --live", Some(_)) => arguments.push(pid),
        _ => {}
    }
    if !matches!(command, "inspect --all" | "restore" | "compare --live") {
        arguments.push(pid);
    }
    let begin = Instant::now();
    let mut running = Running::start(&mut hugewise(&arguments))?;
    if limit > 0 && cause.is_some() {
        until_changed(&mut running.child)?;
    }
    let begin = match cause {
        None => begin + Duration::from_secs(limit),
        Some(signal) => {
            thread::sleep(BEFORE_SIGNAL);
            let now = Instant::now();
            if running.child.try_wait()?.is_none() {
                running.signal(signal)?;
            }
            now
        }
    };
    let attaches = command == "inspect --attach" && cause.is_none();
    let deadline = if attaches { ATTACH_DEADLINE } else { DEADLINE };
    while running.child.try_wait()?.is_none() {
        if begin.elapsed() > deadline {
            let pid = running.child.id();
            let waits = fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
            running.child.kill()?;
            return Err(
                format!("it waits in {waits}, {deadline:?} after {}", cause.unwrap_or("its limit")).into()
            );
        }
        thread::sleep(Duration::from_millis(2));
    }
    let seconds = begin.elapsed().as_secs_f64();
    let ran = running.wait()?;
    if ran.stderr.contains("panicked") {
        return Err(format!("{ran:#?}").into());
    }
    Ok(seconds)
}

/// Waits until a command has a journal, or has ended.
fn until_changed(child: &mut Child) -> TestResult {
    let begin = Instant::now();
    while child.try_wait()?.is_none() && begin.elapsed() < START_LIMIT {
        if [JOURNAL, RECORDING].into_iter().any(|file| Path::new(file).exists()) {
            break;
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Kills a recording, so that there is something to restore.
fn leave_a_recording(pid: &str) -> TestResult {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("recording").display().to_string();
    let mut running = Running::start(&mut hugewise(&["record", "-o", &file, pid]))?;
    until_changed(&mut running.child)?;
    thread::sleep(BEFORE_SIGNAL);
    running.child.kill()?;
    running.wait().map(drop)
}

fn note(line: &str) -> TestResult {
    eprintln!("{line}");
    if let Some(file) = env::var_os(TABLE) {
        writeln!(OpenOptions::new().create(true).append(true).open(file)?, "{line}")?;
    }
    Ok(())
}

/// A process in a state in which it does not answer, or not well.
struct Target {
    group: Child,
    pid: String,
    frozen: Option<Frozen>,
    _folder: TempDir,
}

impl Target {
    fn start(state: &str) -> Result<Target, Box<dyn Error>> {
        if matches!(state, "hung files" | "hung library" | "held" | "held by exec")
            && !Path::new("/dev/fuse").exists()
        {
            return skip("no /dev/fuse");
        }
        let folder = tempfile::tempdir()?;
        let program = compile(folder.path(), "target", TARGET)?;
        let is_by_us = matches!(state, "stopped" | "frozen (v1)" | "frozen (v2)");
        let mut command = Command::new(program);
        command.arg(if is_by_us { "runs" } else { state }).arg(folder.path());
        let mut group = command.process_group(0).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(group.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        let pid = line.trim().strip_prefix("ready ").ok_or("the process did not start")?.to_owned();
        let mut target = Target { group, pid, frozen: None, _folder: folder };
        match state {
            "stopped" => target.signal("STOP", &target.pid)?,
            "frozen (v1)" => {
                target.frozen =
                    Some(Frozen::group("/sys/fs/cgroup/freezer", "freezer.state", "FROZEN", "THAWED")?);
            }
            "frozen (v2)" => target.frozen = Some(Frozen::group(unified(), "cgroup.freeze", "1", "0")?),
            _ => {}
        }
        if let Some(frozen) = &target.frozen {
            frozen.freeze(&target.pid)?;
        }
        Ok(target)
    }

    fn signal(&self, name: &str, to: &str) -> TestResult {
        Command::new("sh").args(["-c", "kill -s \"$0\" -- \"$1\"", name, to]).status()?;
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(frozen) = &self.frozen {
            frozen.thaw();
        }
        let _ = self.signal("KILL", &format!("-{}", self.group.id()));
        let _ = self.group.wait();
        let _ = fs::remove_file(format!("/tmp/.java_pid{}", self.pid));
    }
}

/// The mount point of the hierarchy of version 2.
fn unified() -> &'static str {
    let hybrid = "/sys/fs/cgroup/unified";
    if Path::new(hybrid).exists() { hybrid } else { "/sys/fs/cgroup" }
}

/// A control group that holds its processes.
struct Frozen {
    folder: PathBuf,
    file: &'static str,
    on: &'static str,
    off: &'static str,
}

impl Frozen {
    fn group(
        hierarchy: &str,
        file: &'static str,
        on: &'static str,
        off: &'static str,
    ) -> Result<Frozen, Box<dyn Error>> {
        let folder = Path::new(hierarchy).join(format!("hugewise-test-{}", std::process::id()));
        if fs::create_dir(&folder).is_err() || !folder.join(file).exists() {
            let _ = fs::remove_dir(&folder);
            return skip(format!("no control groups with {file}"));
        }
        Ok(Frozen { folder, file, on, off })
    }

    fn freeze(&self, pid: &str) -> TestResult {
        fs::write(self.folder.join("cgroup.procs"), pid)?;
        Ok(fs::write(self.folder.join(self.file), self.on)?)
    }

    fn thaw(&self) {
        let _ = fs::write(self.folder.join(self.file), self.off);
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // Its processes were killed, and may still be exiting.
        for _ in 0..1000 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}
