//! Files of other processes that are read under the lock of their address space.
//!
//! A process can hold that lock for ever, for example while a mapping waits for a file system that never answers. Then a
//! read of its command line or of its mappings waits, too, until SIGKILL. It is done in a thread that is abandoned at the
//! end of its time, and ends with this process.

use std::{
    collections::BTreeSet,
    io,
    path::{Component, Path},
    sync::{
        Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread,
    time::Duration,
};

use super::read as read_at_once;
use crate::sys::aside::Deadline;

/// Files that are read under the lock, each with the longest time of a reading: those of large processes take seconds.
const FILES: [(&str, Duration); 7] = [
    ("cmdline", SHORT_LIMIT),
    ("environ", SHORT_LIMIT),
    ("auxv", SHORT_LIMIT),
    ("maps", LONG_LIMIT),
    ("smaps", LONG_LIMIT),
    ("smaps_rollup", LONG_LIMIT),
    ("numa_maps", LONG_LIMIT),
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

type Job = Box<dyn FnOnce() + Send>;

/// The thread that reads, and the processes that did not answer.
struct Reader {
    /// The process of the thread: a child of this one has none.
    owner: u32,
    jobs: Sender<Job>,
}

static READER: Mutex<Option<Reader>> = Mutex::new(None);
static STUCK: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

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
    let stuck = {
        let stuck = STUCK.lock().unwrap_or_else(PoisonError::into_inner);
        if stuck.contains(&pid) || stuck.len() >= MAX_STUCK {
            return Err(not_answered());
        }
        stuck.len()
    };
    if time == LONG_LIMIT {
        check(path)?;
    }
    let time = if stuck >= STUCK_FOR_NEXT_LIMIT { NEXT_LIMIT } else { time };
    let path = path.to_owned();
    match within(Deadline::of_reading(time), move || read_at_once(&path, limit)) {
        Some(content) => content,
        None => {
            STUCK.lock().unwrap_or_else(PoisonError::into_inner).insert(pid);
            Err(not_answered())
        }
    }
}

/// Fails if the process of the file `path` does not answer at once when a short file of it is read under the lock: then
/// a reading that takes seconds would never begin.
pub fn check(path: &Path) -> io::Result<()> {
    if limit_of(path).is_none_or(|(time, _)| time != LONG_LIMIT) {
        return Ok(());
    }
    let pid = path.components().nth(2).unwrap_or(Component::RootDir);
    match read(&Path::new("/proc").join(pid).join("cmdline"), 0) {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(error),
        // Also if it is longer.
        _ => Ok(()),
    }
}

fn not_answered() -> io::Error {
    let reason =
        "not read in time: the process may hold its address space, for example for a file system that hangs";
    io::Error::new(io::ErrorKind::TimedOut, reason)
}

/// The result of `work`, which another thread does; `None` if it is not done at the deadline.
fn within<T: Send + 'static>(deadline: Deadline<'_>, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (answer, answers) = mpsc::sync_channel(1);
    let job: Job = Box::new(move || drop(answer.send(work())));
    let mut reader = READER.lock().unwrap_or_else(PoisonError::into_inner);
    let owner = std::process::id();
    let jobs = match reader.take().filter(|reader| reader.owner == owner) {
        Some(Reader { jobs, .. }) => jobs,
        None => started()?,
    };
    jobs.send(job).ok()?;
    loop {
        // A wait without time still takes an answer that is there.
        let left = deadline.left();
        match answers.recv_timeout(left.as_ref().map_or(Duration::ZERO, |left| (*left).min(CHECK_INTERVAL))) {
            Ok(answer) => {
                *reader = Some(Reader { owner, jobs });
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
        let soon = Deadline::after(Duration::from_millis(30), None);
        assert_eq!(within(soon, || thread::sleep(Duration::from_secs(1000))), None);
        let long = || Deadline::after(Duration::from_secs(30), None);
        assert_eq!((within(long(), || 7), within(long(), || 8)), (Some(7), Some(8)));
        assert!(begin.elapsed() < Duration::from_secs(30));
    }
}
