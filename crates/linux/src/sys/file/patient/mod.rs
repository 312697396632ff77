//! Files of other processes that are read under the lock of their address space.
//!
//! A process can hold that lock for ever, for example while a mapping waits for a file system that never answers. Then a
//! read of its command line or of its mappings waits, too, until SIGKILL. It is done in a thread that is abandoned at the
//! end of its time, and ends with this process. For readings of many processes, see [`each`].

mod threads;

use std::{
    collections::BTreeSet,
    fs::File,
    io,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

pub(crate) use threads::cpu_of_readings;
pub use threads::each;

use super::read as read_at_once;
use threads::{Limits, within};

/// Files that are read under the lock, each with the longest time of a reading: those of large processes take seconds.
const FILES: [(&str, Duration); 8] = [
    ("cmdline", SHORT_LIMIT),
    ("environ", SHORT_LIMIT),
    ("auxv", SHORT_LIMIT),
    ("maps", LONG_LIMIT),
    ("smaps", LONG_LIMIT),
    ("smaps_rollup", LONG_LIMIT),
    ("numa_maps", LONG_LIMIT),
    ("pagemap", LONG_LIMIT),
];
const SHORT_LIMIT: Duration = Duration::from_millis(500);
const LONG_LIMIT: Duration = Duration::from_secs(60);
/// Longest reading once several processes have not answered.
const NEXT_LIMIT: Duration = Duration::from_millis(50);
/// Number of these processes; readings of no more than [`MAX_STUCK`] of them are tried.
const STUCK_FOR_NEXT_LIMIT: usize = 4;
const MAX_STUCK: usize = 64;
/// Time in which a process that has answered is not asked again whether it answers.
const ANSWERS_FOR: Duration = Duration::from_millis(100);

/// What is known of the processes that were read.
struct Processes {
    /// Those that did not answer.
    stuck: BTreeSet<String>,
    /// The last one that answered, and when.
    answered: Option<(String, Instant)>,
}

static PROCESSES: Mutex<Processes> = Mutex::new(Processes { stuck: BTreeSet::new(), answered: None });

/// The longest reading of the file `path` of the machine, and its process; `None` if reading it does not wait.
fn limit_of(path: &Path) -> Option<(Duration, String)> {
    let mut names = path.to_str()?.strip_prefix("/proc/")?.split('/');
    let pid = names.next().filter(|pid| pid.bytes().all(|digit| digit.is_ascii_digit()))?;
    let file = names.next_back()?;
    FILES.iter().find(|(name, _)| *name == file).map(|(_, limit)| (*limit, pid.to_owned()))
}

/// The whole regular file; fails if it is longer than `limit` bytes, or not read in time.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let Some((time, pid)) = limit_of(path) else { return read_at_once(path, limit) };
    let path = path.to_owned();
    under_lock(pid, time, move || read_at_once(&path, limit))
}

/// An open file whose reads may wait for the lock of the address space of a process.
#[derive(Clone, Debug)]
pub struct PatientFile {
    file: Arc<File>,
    /// `None` if no read waits.
    limit: Option<(Duration, String)>,
}

impl PatientFile {
    /// Opens the regular file `path` of the machine.
    pub fn open(path: &Path) -> io::Result<PatientFile> {
        Ok(PatientFile { file: Arc::new(super::open(path)?), limit: limit_of(path) })
    }

    /// The result of `work` with the file; `TimedOut` if it is not done in time. For a file of no other process, `work`
    /// is done by this thread.
    pub fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&File) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let Some((time, pid)) = self.limit.clone() else { return work(&self.file) };
        let file = Arc::clone(&self.file);
        under_lock(pid, time, move || work(&file))
    }
}

impl From<File> for PatientFile {
    /// A file whose reads do not wait.
    fn from(file: File) -> PatientFile {
        PatientFile { file: Arc::new(file), limit: None }
    }
}

/// The result of `work`, which takes the lock of the address space of process `pid`; `TimedOut` if it is not done after
/// `time`, or if the process does not answer a short reading at once: then one that takes seconds would never begin.
fn under_lock<T: Send + 'static>(
    pid: String,
    time: Duration,
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
    let answer_limit = if stuck >= STUCK_FOR_NEXT_LIMIT { NEXT_LIMIT } else { SHORT_LIMIT };
    let needs_answer = time > answer_limit && !answers;
    let answered = Arc::new(AtomicBool::new(!needs_answer));
    let asked = needs_answer.then(|| (Path::new("/proc").join(&pid).join("cmdline"), Arc::clone(&answered)));
    let limits = Limits::new(time.min(answer_limit), time, answered);
    let done = within(&pid, &limits, move || {
        if let Some((line, answered)) = asked {
            // A longer line, and an error, are an answer, too.
            let _ = read_at_once(&line, 0);
            answered.store(true, Ordering::Release);
        }
        work()
    });
    match done {
        Some(result) => {
            locked(&PROCESSES).answered = Some((pid, Instant::now()));
            result
        }
        None => {
            is_stuck(pid);
            Err(not_answered())
        }
    }
}

/// Counts a process that did not answer.
fn is_stuck(pid: String) {
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
        let limit = |path: &str| limit_of(Path::new(path)).map(|(limit, _)| limit);
        assert_eq!(limit("/proc/7/cmdline"), Some(SHORT_LIMIT));
        assert_eq!(limit("/proc/7/task/8/smaps"), Some(LONG_LIMIT));
        for other in ["/proc/7/stat", "/proc/self/maps", "/proc/cmdline", "/tmp/7/cmdline", "/proc/7"] {
            assert_eq!(limit(other), None, "{other}");
        }
        let own = format!("/proc/{}/cmdline", std::process::id());
        assert!(read(Path::new(&own), 1 << 20).is_ok_and(|line| !line.is_empty()));
        assert!(read(Path::new(&own), 1).is_err());
    }
}
