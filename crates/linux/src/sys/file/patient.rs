//! Files of other processes that are read under the lock of their address space.
//!
//! A process can hold that lock for ever, for example while a mapping waits for a file system that never answers. Then a
//! read of its command line or of its mappings waits, too, until SIGKILL. It is done in a thread that is abandoned at the
//! end of its time, and ends with this process.

use std::{
    collections::BTreeSet,
    fs::File,
    io,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use super::read as read_at_once;
use crate::sys::aside::Deadline;

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
/// Interval of the checks for a signal.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Time in which a process that has answered is not asked again whether it answers.
const ANSWERS_FOR: Duration = Duration::from_millis(100);

type Job = Box<dyn FnOnce() + Send>;

/// The thread that reads.
struct Reader {
    /// The process of the thread: a child of this one has none.
    owner: u32,
    jobs: Sender<Job>,
}

/// What is known of the processes that were read.
struct Processes {
    /// Those that did not answer.
    stuck: BTreeSet<String>,
    /// The last one that answered, and when.
    answered: Option<(String, Instant)>,
}

static READER: Mutex<Option<Reader>> = Mutex::new(None);
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
    let limits = Limits { until_answer: time.min(answer_limit), whole: time, answered };
    let done = within(&limits, move || {
        if let Some((line, answered)) = asked {
            // A longer line, and an error, are an answer, too.
            let _ = read_at_once(&line, 0);
            answered.store(true, Ordering::Release);
        }
        work()
    });
    let mut processes = locked(&PROCESSES);
    match done {
        Some(result) => {
            processes.answered = Some((pid, Instant::now()));
            result
        }
        None => {
            processes.stuck.insert(pid);
            Err(not_answered())
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn not_answered() -> io::Error {
    let reason =
        "not read in time: the process may hold its address space, for example for a file system that hangs";
    io::Error::new(io::ErrorKind::TimedOut, reason)
}

/// How long a thread is waited for.
struct Limits {
    /// As long as the process has not answered.
    until_answer: Duration,
    /// For all of the work.
    whole: Duration,
    answered: Arc<AtomicBool>,
}

/// The result of `work`, which another thread does; `None` if it is not done in time.
fn within<T: Send + 'static>(limits: &Limits, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (answer, answers) = mpsc::sync_channel(1);
    let job: Job = Box::new(move || drop(answer.send(work())));
    let owner = std::process::id();
    let free = locked(&READER).take().filter(|reader| reader.owner == owner);
    let jobs = match free {
        Some(Reader { jobs, .. }) => jobs,
        None => started()?,
    };
    jobs.send(job).ok()?;
    let (first, whole) = (Deadline::of_reading(limits.until_answer), Deadline::of_reading(limits.whole));
    loop {
        let deadline = if limits.answered.load(Ordering::Acquire) { &whole } else { &first };
        let left = deadline.left();
        // A wait without time still takes an answer that is there.
        match answers.recv_timeout(left.as_ref().map_or(Duration::ZERO, |left| (*left).min(CHECK_INTERVAL))) {
            Ok(answer) => {
                *locked(&READER) = Some(Reader { owner, jobs });
                return Some(answer);
            }
            Err(RecvTimeoutError::Timeout) if left.is_ok() => {}
            // The thread is left to its wait.
            Err(_) => return None,
        }
    }
}

/// Starts the thread; `None` if the system refuses one.
fn started() -> Option<Sender<Job>> {
    let (jobs, todo) = mpsc::channel::<Job>();
    thread::Builder::new().name("reader".to_owned()).spawn(move || todo.iter().for_each(|job| job())).ok()?;
    Some(jobs)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

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

    #[test]
    fn a_reading_that_hangs_is_left() {
        let begin = Instant::now();
        let limits = |answered, until_answer, whole| Limits {
            until_answer: Duration::from_millis(until_answer),
            whole: Duration::from_millis(whole),
            answered: Arc::new(AtomicBool::new(answered)),
        };
        let hang = || thread::sleep(Duration::from_secs(1000));
        assert_eq!(within(&limits(false, 30, 1_000_000), hang), None);
        assert_eq!(within(&limits(true, 1_000_000, 30), hang), None);
        let long = limits(false, 30_000, 30_000);
        assert_eq!((within(&long, || 7), within(&long, || 8)), (Some(7), Some(8)));
        assert!(begin.elapsed() < Duration::from_secs(30));
    }
}
