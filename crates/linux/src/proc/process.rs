//! Identity of other processes, and whether their memory can be read.

use std::{fmt, io};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    proc::{fields::Fields, task_stat::TaskStat},
    reading::Reading,
    root::{ReadError, Root},
    sys::process::how_to_get_capability,
};

/// A process, as read from /proc without stopping it.
#[derive(Clone, Debug, PartialEq)]
pub struct Process {
    /// Its process id in our PID namespace.
    pub pid: u32,
    /// Its process id in its own PID namespace; `None` if that is ours.
    pub pid_inside: Option<u32>,
    /// `Name`: the command name, at most 15 bytes.
    pub name: String,
    /// Its command line; empty if the process erased it.
    pub command: Vec<String>,
    /// The effective user id.
    pub uid: Reading<u32>,
    /// `THP_enabled`: false if the process or an ancestor disabled THP by `prctl(2)`.
    pub thp_enabled: Reading<bool>,
    /// Start in clock ticks since boot; identifies the process if its pid is reused. `None` if unknown.
    pub started: Option<u64>,
}

/// Why the memory of a process cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Obstacle {
    /// There is no process with this pid.
    NoProcess,
    /// The process exited during the reading.
    Ended,
    /// A zombie: the process has exited, and its parent has not waited for it.
    Zombie,
    /// A kernel thread, which has no memory of its own.
    KernelThread,
    /// The process belongs to another user.
    NotAllowed,
    /// The kernel does not report the memory, or reports it in an unknown format.
    Unknown,
}

/// Why the memory of a process cannot be read, with a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{words}")]
pub struct ProcessError {
    /// The kind of obstacle.
    pub obstacle: Obstacle,
    /// The attempt, the system's error, and the remedy.
    pub words: String,
}

fn cannot<T>(obstacle: Obstacle, words: impl fmt::Display) -> Result<T, ProcessError> {
    Err(ProcessError { obstacle, words: words.to_string() })
}

impl Process {
    /// Reads the identity of process `pid`; fails if it has no memory of its own.
    pub fn read(root: &Root, pid: u32) -> Result<Process, ProcessError> {
        let status = format!("proc/{pid}/status");
        if let Err(error) = root.read(&status) {
            let ended = error.is_absent() || is_no_process(&error);
            return if ended { no_process(root, pid) } else { cannot(Obstacle::Unknown, error) };
        }
        let fields = Fields::read(root, &status);
        let text = |key| fields.get(key, "a word", |value| Some(value.to_owned())).known().cloned();
        let name = text("Name").unwrap_or_default();
        if text("State").is_some_and(|state| state.starts_with(['Z', 'X'])) {
            return cannot(
                Obstacle::Zombie,
                format!("{pid} ({name}) is a zombie: it has exited, and its parent has not waited for it"),
            );
        }
        if text("VmSize").is_none() {
            // `Kthread` exists since Linux 6.10.
            return if text("Kthread").is_none_or(|is_kernel_thread| is_kernel_thread == "1") {
                let words = format!("{pid} ({name}) is a kernel thread, which has no memory of its own");
                cannot(Obstacle::KernelThread, words)
            } else {
                cannot(Obstacle::Ended, format!("{pid} ({name}) is exiting and has released its memory"))
            };
        }
        let inside = text("NSpid").and_then(|numbers| numbers.split_whitespace().last()?.parse().ok());
        let command = root.read(format!("proc/{pid}/cmdline")).unwrap_or_default();
        Ok(Process {
            pid,
            pid_inside: inside.filter(|inside| *inside != pid),
            name,
            command: command.split_terminator('\0').map(str::to_owned).collect(),
            uid: fields.get("Uid", "four numbers", |value| value.split_whitespace().nth(1)?.parse().ok()),
            thp_enabled: fields.get("THP_enabled", "0 or 1", |value| match value {
                "0" => Some(false),
                "1" => Some(true),
                _ => None,
            }),
            started: started(root, pid),
        })
    }

    /// Fails if the process has exited since [`Process::read`]: later readings may be
    /// incomplete.
    pub fn check_running(&self, root: &Root) -> Result<(), ProcessError> {
        let now = Process::read(root, self.pid);
        let is_same =
            |now: Process| now.started == self.started && now.command.is_empty() == self.command.is_empty();
        if now.is_ok_and(is_same) {
            return Ok(());
        }
        Err(self.ended())
    }

    fn ended(&self) -> ProcessError {
        let words = format!("{} ({}) ended while it was read", self.pid, self.name);
        ProcessError { obstacle: Obstacle::Ended, words }
    }

    /// The reason why a file of this process could not be read.
    pub fn explain(&self, root: &Root, error: &ReadError) -> ProcessError {
        let (pid, name) = (self.pid, &self.name);
        if is_no_process(error) || self.check_running(root).is_err() {
            return self.ended();
        }
        let (obstacle, words) = match error {
            ReadError::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                let user = self.uid.known().map_or_else(String::new, |uid| format!(" (uid {uid})"));
                let words = format!(
                    "{pid} ({name}) belongs to another user{user}, or is not dumpable: reading its memory \
                     needs that user or CAP_SYS_PTRACE: {}; {error}",
                    how_to_get_capability()
                );
                (Obstacle::NotAllowed, words)
            }
            error if error.is_absent() => {
                let words = format!(
                    "this kernel does not report memory by mapping (CONFIG_PROC_PAGE_MONITOR): {error}"
                );
                (Obstacle::Unknown, words)
            }
            error => (Obstacle::Unknown, error.to_string()),
        };
        ProcessError { obstacle, words }
    }
}

/// True if the process exited between opening and reading a file.
fn is_no_process(error: &ReadError) -> bool {
    matches!(error, ReadError::Io { source, .. } if source.raw_os_error() == Some(libc::ESRCH))
}

/// Start in clock ticks since boot.
fn started(root: &Root, pid: u32) -> Option<u64> {
    Some(TaskStat::parse(&root.read(format!("proc/{pid}/stat")).ok()?)?.started_ticks)
}

/// The error for a pid without a process. Lists the processes that have this pid inside a container.
fn no_process<T>(root: &Root, pid: u32) -> Result<T, ProcessError> {
    let inside = |outside: &u32| {
        let status = root.read(format!("proc/{outside}/status")).ok()?;
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        (numbers.split_whitespace().skip(1).last()?.parse::<u32>().ok()? == pid).then_some(*outside)
    };
    let outside: Vec<String> =
        all(root).unwrap_or_default().iter().filter_map(inside).map(|outside| outside.to_string()).collect();
    cannot(
        Obstacle::NoProcess,
        match outside.len() {
            0 => format!("there is no process {pid}"),
            _ => format!(
                "there is no process {pid}; inside a container this is the pid of process {}",
                outside.join(" or ")
            ),
        },
    )
}

/// The pids of all processes.
pub fn all(root: &Root) -> Result<Vec<u32>, ReadError> {
    let mut pids: Vec<u32> = root.list("proc")?.iter().filter_map(|name| name.parse().ok()).collect();
    pids.sort_unstable();
    Ok(pids)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::tree;

    fn obstacle(files: &[(&str, &str)], pid: u32) -> Option<ProcessError> {
        let (_dir, root) = tree(files);
        Process::read(&root, pid).err()
    }

    #[test]
    fn processes_without_memory_are_distinguished() {
        let zombie = ("proc/7/status", "Name:\tgone\nState:\tZ (zombie)\n");
        let thread = ("proc/8/status", "Name:\tkswapd0\nState:\tS (sleeping)\n");
        let inside =
            ("proc/9/status", "Name:\tjava\nState:\tS\nNSpid:\t9\t1\nVmSize:\t4 kB\nTHP_enabled:\t0\n");
        let files = [zombie, thread, inside];
        let reported = |pid| obstacle(&files, pid).map(|reported| reported.obstacle);
        assert_eq!(
            (reported(7), reported(8), reported(9)),
            (Some(Obstacle::Zombie), Some(Obstacle::KernelThread), None)
        );
        assert_eq!(reported(10), Some(Obstacle::NoProcess));
        let ending = ("proc/7/status", "Name:\tgone\nState:\tR\nKthread:\t0\n");
        assert_eq!(obstacle(&[ending], 7).map(|reported| reported.obstacle), Some(Obstacle::Ended));
        // A pid inside a container refers to the pid of the machine.
        assert!(obstacle(&files, 1).is_some_and(|reported| reported.words.contains("the pid of process 9")));
    }

    #[test]
    fn what_a_process_says_of_itself_is_read() {
        let (_dir, root) = tree(&[
            (
                "proc/9/status",
                "Name:\tjava\nUid:\t0\t7\t0\t0\nNSpid:\t9\t1\nVmSize:\t4 kB\nTHP_enabled:\t0\n",
            ),
            ("proc/9/cmdline", "java\0-Xmx1g\0\0A\0"),
        ]);
        let Ok(process) = Process::read(&root, 9) else { unreachable!() };
        assert_eq!((process.pid_inside, process.thp_enabled.known()), (Some(1), Some(&false)));
        assert_eq!(process.uid.known(), Some(&7));
        assert_eq!(process.command, ["java", "-Xmx1g", "", "A"]);
        assert!(process.check_running(&root).is_ok());
    }

    #[test]
    fn another_process_of_the_same_number_is_not_the_same() {
        let stat = |start| format!("9 (a) b) S {} {start} 0", ["0"; 18].join(" "));
        let status = ("proc/9/status", "Name:\ta\nVmSize:\t4 kB\n");
        let (_dir, root) = tree(&[status, ("proc/9/stat", &stat(100))]);
        let (_other, later) = tree(&[status, ("proc/9/stat", &stat(200))]);
        let Ok(process) = Process::read(&root, 9) else { unreachable!() };
        assert!(process.check_running(&root).is_ok());
        let ended = process.check_running(&later).err().map(|ended| ended.obstacle);
        assert_eq!(ended, Some(Obstacle::Ended));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn nothing_makes_it_panic(text in any::<String>()) {
            let (_dir, root) = tree(&[("proc/9/status", &text), ("proc/9/stat", &text)]);
            let _ = Process::read(&root, 9);
            let _ = Process::read(&root, 1);
        }
    }
}
