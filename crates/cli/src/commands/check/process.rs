//! What a capture takes along of a process: its memory, limits, command line, control group, and the ends of its logs.

use std::{
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use hugewise_evidence::process::{self as evidence, MachineState, Options, SharedMemory};
use hugewise_linux::{
    capture::Capture,
    root::Root,
    sys::{
        aside::{self, Deadline},
        file,
    },
};
use hugewise_texts::secrets;

/// Files of a process that explain its memory, as far as they can be read.
const FILES: [&str; 11] = [
    "status",
    "stat",
    "comm",
    "limits",
    "cgroup",
    "smaps_rollup",
    "numa_maps",
    "oom_score_adj",
    "cmdline",
    "environ",
    "mountinfo",
];
/// Files of a control group and of each one above it.
const GROUP_FILES: [&str; 8] = [
    "cgroup.controllers",
    "memory.max",
    "memory.high",
    "memory.current",
    "memory.stat",
    "memory.events",
    "cpuset.mems.effective",
    "cpu.stat",
];
/// Largest list of mappings that is taken, in bytes.
const MAX_SMAPS_BYTES: u64 = 256 << 20;
/// Bytes at the end of a log that are taken, and the largest number of logs.
const LOG_END_BYTES: u64 = 64 << 10;
const MAX_LOGS: usize = 8;
/// Longest wait for the end of a log, which may be on a file system that does not answer.
const LOG_LIMIT: Duration = Duration::from_secs(2);
/// Ends of the names of open files that are logs.
const LOG_NAMES: [&str; 4] = [".log", ".out", ".err", ".txt"];
/// File with the names of what was removed.
const LIST: &str = "removed.txt";

/// Reads the process through `root`, which records, and returns the record: without secrets, with the ends of its logs.
pub fn captured(root: &Root, pid: u32) -> anyhow::Result<Capture> {
    let machine = MachineState::read(root)?;
    evidence::inspect(root, &machine, pid, Options::default(), &mut SharedMemory::default())?;
    for name in FILES {
        // What is not there, or not permitted, is missing in the capture, too.
        let _ = root.read_bytes(format!("proc/{pid}/{name}"));
    }
    let smaps = format!("proc/{pid}/smaps");
    root.read_within(&smaps, MAX_SMAPS_BYTES).context("the mappings of the process")?;
    groups(root, pid);
    let mut capture = root.recorded();
    for link in ["exe", "cwd", "root"] {
        if let Ok(target) = root.link(format!("proc/{pid}/{link}")) {
            capture.link(Path::new(&format!("proc/{pid}/{link}")), &target);
        }
    }
    let mut removed = Vec::new();
    command_line(&mut capture, pid, &mut removed);
    environment(&mut capture, pid, &mut removed);
    mounts(&mut capture, pid);
    logs(root, &mut capture, pid);
    capture.file(Path::new(LIST), (removed.join("\n") + "\n").as_bytes());
    Ok(capture)
}

/// Reads the limits of its control groups, up to the topmost ones.
fn groups(root: &Root, pid: u32) {
    let Ok(text) = root.read(format!("proc/{pid}/cgroup")) else { return };
    let mounts = hugewise_linux::cgroup::mount_points(&root.read("proc/self/mountinfo").unwrap_or_default());
    for path in text.lines().filter_map(|line| line.splitn(3, ':').nth(2)) {
        for mount in &mounts {
            let group = mount.join(path.trim_start_matches('/'));
            for dir in group.ancestors().take_while(|dir| dir.starts_with(mount)) {
                for name in GROUP_FILES {
                    let _ = root.read_bytes(dir.join(name));
                }
            }
        }
    }
}

fn command_line(capture: &mut Capture, pid: u32, removed: &mut Vec<String>) {
    let path = PathBuf::from(format!("proc/{pid}/cmdline"));
    let Some(content) = capture.content(&path) else { return };
    let text = String::from_utf8_lossy(content).into_owned();
    let words: Vec<String> = text.split_terminator('\0').map(str::to_owned).collect();
    let plain = secrets::without_in_words(&words);
    let changed = words.iter().zip(&plain).enumerate().filter(|(_, (word, plain))| word != plain);
    removed.extend(changed.map(|(n, _)| format!("command line: the value in word {}", n + 1)));
    capture.file(&path, plain.iter().map(|word| format!("{word}\0")).collect::<String>().as_bytes());
}

fn environment(capture: &mut Capture, pid: u32, removed: &mut Vec<String>) {
    let path = PathBuf::from(format!("proc/{pid}/environ"));
    let Some(content) = capture.content(&path) else { return };
    let text = String::from_utf8_lossy(content).into_owned();
    let mut plain = String::new();
    for variable in text.split_terminator('\0') {
        let name = variable.split('=').next().unwrap_or_default();
        if secrets::keeps_variable(name) {
            plain += &format!("{}\0", secrets::without(variable));
        } else {
            removed.push(format!("environment: {}", crate::output::terminal::plain(name)));
        }
    }
    capture.file(&path, plain.as_bytes());
}

/// Options of a mount can name a user and a password.
fn mounts(capture: &mut Capture, pid: u32) {
    for path in ["proc/self/mountinfo".to_owned(), format!("proc/{pid}/mountinfo")] {
        let path = Path::new(&path);
        let Some(content) = capture.content(path) else { continue };
        let plain = secrets::without(&String::from_utf8_lossy(content)).into_owned();
        capture.file(path, plain.as_bytes());
    }
}

/// Takes the ends of the logs that the process has open. They are read through its descriptors: a name in its command line
/// could be that of a file that it may not read.
fn logs(root: &Root, capture: &mut Capture, pid: u32) {
    let folder = format!("proc/{pid}/fd");
    let mut seen: Vec<PathBuf> = Vec::new();
    for number in root.list(&folder).unwrap_or_default() {
        let Ok(target) = root.link(format!("{folder}/{number}")) else { continue };
        let name = target.to_string_lossy().into_owned();
        let is_log = LOG_NAMES.iter().any(|end| name.ends_with(end))
            || name.contains(".log.")
            || ["1", "2"].contains(&&*number);
        let of_kernel = target.starts_with("/proc") || target.starts_with("/sys");
        if !is_log || of_kernel || !target.is_absolute() || seen.contains(&target) || seen.len() >= MAX_LOGS {
            continue;
        }
        let open = root.path(format!("{folder}/{number}"));
        let end =
            aside::ask(&[], &Deadline::after(LOG_LIMIT, None), LOG_END_BYTES as usize, || end_of(&open));
        let Ok(end) = end else { continue };
        let text = String::from_utf8_lossy(&end).into_owned();
        let plain: String = text.lines().map(|line| format!("{}\n", secrets::without(line))).collect();
        capture.file(target.strip_prefix("/").unwrap_or(&target), plain.as_bytes());
        seen.push(target);
    }
}

/// The last whole lines of a regular file.
fn end_of(path: &Path) -> std::io::Result<Vec<u8>> {
    let log: fs::File = file::open(path)?;
    let length = log.metadata()?.len();
    let from = length.saturating_sub(LOG_END_BYTES);
    let mut end = vec![0; (length - from) as usize];
    log.read_exact_at(&mut end, from)?;
    if from > 0 {
        let first = end.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        end.drain(..first);
    }
    Ok(end)
}
