//! Files and links of other processes that are read under a lock: that of their address space, or that of execve(2).
//!
//! A process can hold both for ever, for example while a mapping, or the closing of a file at the start of a program,
//! waits for a file system that never answers. Then a read of its state, command line or mappings waits, too, until
//! SIGKILL. It is done in a thread that is abandoned at the end of its time, and ends with this process. For readings of
//! many processes, see [`each`].

mod threads;

use std::{
    collections::BTreeSet,
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

pub(crate) use threads::cpu_of_readings;
pub use threads::each;

use super::{link as link_at_once, read as read_at_once};
use threads::{Limits, within};

/// Files that are read under a lock, each with the longest time of a reading: those of large processes take seconds.
const FILES: [(&str, Kind); 11] = [
    ("cmdline", Kind { lock: Lock::Space, limit: SHORT_LIMIT }),
    ("stat", STATE),
    ("io", STATE),
    ("environ", Kind { lock: Lock::Both, limit: SHORT_LIMIT }),
    ("auxv", Kind { lock: Lock::Both, limit: SHORT_LIMIT }),
    ("maps", CONTENT),
    ("smaps", CONTENT),
    ("smaps_rollup", CONTENT),
    ("numa_maps", CONTENT),
    ("pagemap", CONTENT),
    ("mem", CONTENT),
];
/// Links of a process, and folders of links.
const LINKS: [&str; 6] = ["exe", "cwd", "root", "ns", "fd", "map_files"];
const STATE: Kind = Kind { lock: Lock::Exec, limit: SHORT_LIMIT };
const CONTENT: Kind = Kind { lock: Lock::Both, limit: LONG_LIMIT };
const SHORT_LIMIT: Duration = Duration::from_millis(500);
const LONG_LIMIT: Duration = Duration::from_secs(60);
/// Longest reading once several processes have not answered.
const NEXT_LIMIT: Duration = Duration::from_millis(50);
/// Number of these processes; readings of no more than [`MAX_STUCK`] of them are tried.
const STUCK_FOR_NEXT_LIMIT: usize = 4;
const MAX_STUCK: usize = 64;
/// Time in which a process that has answered is not asked again whether it answers.
const ANSWERS_FOR: Duration = Duration::from_millis(100);

/// A reading that may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    lock: Lock,
    limit: Duration,
}

/// What a reading takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lock {
    /// The lock of the address space (`mmap_lock`).
    Space,
    /// The lock of execve(2) (`exec_update_lock`), which it holds until the files of the program before are closed.
    Exec,
    Both,
}

/// What is known of the processes that were read.
struct Processes {
    /// Those that did not answer.
    stuck: BTreeSet<String>,
    /// The last one that answered a reading under the lock of execve, and when.
    answered: Option<(String, Instant)>,
}

static PROCESSES: Mutex<Processes> = Mutex::new(Processes { stuck: BTreeSet::new(), answered: None });

/// The process of a file of /proc, and the other names in its path; `None` for other files, and those of this process.
fn process_of(path: &Path) -> Option<(&str, impl DoubleEndedIterator<Item = &str>)> {
    let mut names = path.to_str()?.strip_prefix("/proc/")?.split('/');
    let pid = names.next().filter(|pid| pid.bytes().all(|digit| digit.is_ascii_digit()))?;
    Some((pid, names))
}

/// The kind of a reading of the file `path` of the machine, and its process; `None` if it does not wait.
fn kind_of(path: &Path) -> Option<(Kind, String)> {
    let (pid, mut names) = process_of(path)?;
    let file = names.next_back()?;
    FILES.iter().find(|(name, _)| *name == file).map(|(_, kind)| (*kind, pid.to_owned()))
}

/// The whole regular file; fails if it is longer than `limit` bytes, or not read in time.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let Some((kind, pid)) = kind_of(path) else { return read_at_once(path, limit) };
    let path = path.to_owned();
    under_lock(pid, kind, move || read_at_once(&path, limit))
}

/// The target of a link; fails if it is not read in time.
pub fn link(path: &Path) -> io::Result<PathBuf> {
    let process = process_of(path).and_then(|(pid, mut names)| {
        let is_link = names.next().is_some_and(|name| LINKS.contains(&name));
        is_link.then(|| pid.to_owned())
    });
    let Some(pid) = process else { return link_at_once(path) };
    let path = path.to_owned();
    under_lock(pid, STATE, move || link_at_once(&path))
}

/// An open file whose reads may wait for a lock of a process.
#[derive(Clone, Debug)]
pub struct PatientFile {
    file: Arc<File>,
    /// `None` if no read waits.
    kind: Option<(Kind, String)>,
}

impl PatientFile {
    /// Opens the regular file `path` of the machine.
    pub fn open(path: &Path) -> io::Result<PatientFile> {
        let kind = kind_of(path);
        let file = match &kind {
            Some((_, pid)) => {
                let path = path.to_owned();
                under_lock(pid.clone(), STATE, move || super::open(&path))?
            }
            None => super::open(path)?,
        };
        Ok(PatientFile { file: Arc::new(file), kind })
    }

    /// The result of `work` with the file; `TimedOut` if it is not done in time. For a file of no other process, `work`
    /// is done by this thread.
    pub fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&File) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let Some((kind, pid)) = self.kind.clone() else { return work(&self.file) };
        let file = Arc::clone(&self.file);
        under_lock(pid, kind, move || work(&file))
    }
}

impl From<File> for PatientFile {
    /// A file whose reads do not wait.
    fn from(file: File) -> PatientFile {
        PatientFile { file: Arc::new(file), kind: None }
    }
}

/// The result of `work`, which takes a lock of process `pid`; `TimedOut` if it is not done in time, or if the process
/// does not answer a short reading at once: then one that takes seconds would never begin.
///
/// What only takes the lock of execve is done by this thread if the process has just answered.
fn under_lock<T: Send + 'static>(
    pid: String,
    Kind { lock, limit }: Kind,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (stuck, answers) = {
        let processes = locked(&PROCESSES);
        if processes.stuck.contains(&pid) || processes.stuck.len() >= MAX_STUCK {
            return Err(not_answered());
        }
        let recent = |(last, at): &(String, Instant)| *last == pid && at.elapsed() < ANSWERS_FOR;
        (processes.stuck.len(), processes.answered.as_ref().is_some_and(recent))
    };
    if answers && lock == Lock::Exec {
        return work();
    }
    let answer_limit = if stuck >= STUCK_FOR_NEXT_LIMIT { NEXT_LIMIT } else { SHORT_LIMIT };
    let needs_answer = limit > answer_limit && !answers;
    let answered = Arc::new(AtomicBool::new(!needs_answer));
    let asked = needs_answer.then(|| (Path::new("/proc").join(&pid).join("pagemap"), Arc::clone(&answered)));
    let limits = Limits::new(limit.min(answer_limit), limit, answered);
    let done = within(&pid, &limits, move || {
        if let Some((pagemap, answered)) = asked {
            // Takes both locks, whatever is mapped. An error is an answer, too.
            let _ = super::open(&pagemap).and_then(|pagemap| pagemap.read_at(&mut [0; 8], 0));
            answered.store(true, Ordering::Release);
        }
        work()
    });
    match done {
        Some(result) => {
            if lock != Lock::Space {
                locked(&PROCESSES).answered = Some((pid, Instant::now()));
            }
            result
        }
        None => {
            count_as_stuck(pid);
            Err(not_answered())
        }
    }
}

/// Counts a process that did not answer.
fn count_as_stuck(pid: String) {
    locked(&PROCESSES).stuck.insert(pid);
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn not_answered() -> io::Error {
    let reason =
        "not read in time: the process may hold its address space, for example for a file system that hangs";
    io::Error::new(io::ErrorKind::TimedOut, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_other_address_spaces_are_read_patiently() {
        let limit = |path: &str| kind_of(Path::new(path)).map(|(kind, _)| kind.limit);
        assert_eq!(limit("/proc/7/cmdline"), Some(SHORT_LIMIT));
        assert_eq!(limit("/proc/7/task/8/stat"), Some(SHORT_LIMIT));
        assert_eq!(limit("/proc/7/task/8/smaps"), Some(LONG_LIMIT));
        for other in ["/proc/7/status", "/proc/self/maps", "/proc/cmdline", "/tmp/7/cmdline", "/proc/7"] {
            assert_eq!(limit(other), None, "{other}");
        }
        let own = format!("/proc/{}/cmdline", std::process::id());
        assert!(read(Path::new(&own), 1 << 20).is_ok_and(|line| !line.is_empty()));
        assert!(read(Path::new(&own), 1).is_err());
    }
}
