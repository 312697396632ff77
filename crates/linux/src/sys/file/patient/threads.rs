//! Threads that read, and are abandoned at the end of their time.

use std::{
    cell::{Cell, RefCell},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use super::{count_as_stuck, locked};
use crate::sys::{aside::Deadline, process::thread_cpu};

/// Interval of the checks for a signal.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// How long a reading is waited for.
#[derive(Clone)]
pub(super) struct Limits {
    /// As long as the process has not answered.
    until_answer: Deadline<'static>,
    /// For all of the reading.
    whole: Deadline<'static>,
    answered: Arc<AtomicBool>,
}

impl Limits {
    pub(super) fn new(until_answer: Duration, whole: Duration, answered: Arc<AtomicBool>) -> Limits {
        let deadline = Deadline::of_reading;
        Limits { until_answer: deadline(until_answer), whole: deadline(whole), answered }
    }

    /// The time left, at most [`CHECK_INTERVAL`]; `None` if the reading is to be left.
    fn left(&self) -> Option<Duration> {
        let answered = self.answered.load(Ordering::Acquire);
        let deadline = if answered { &self.whole } else { &self.until_answer };
        deadline.left().ok().map(|left| left.min(CHECK_INTERVAL))
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// The thread that reads.
struct Reader {
    /// The process of the thread: a child of this one has none.
    owner: u32,
    jobs: Sender<Job>,
}

static READER: Mutex<Option<Reader>> = Mutex::new(None);

thread_local! {
    /// CPU time of the readings that other threads did for this one.
    static CPU_OF_READINGS: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    /// What the readings of this thread are supervised by; `None` if another thread has to do them.
    static SUPERVISION: RefCell<Option<Arc<Supervision>>> = const { RefCell::new(None) };
}

/// CPU time of the readings that other threads did for this one.
pub(crate) fn cpu_of_readings() -> Duration {
    CPU_OF_READINGS.get()
}

/// The result of the reading `work` of process `pid`, which another thread does; `None` if it is not done in time.
pub(super) fn within<T: Send + 'static>(
    pid: &str,
    limits: &Limits,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if let Some(supervision) = SUPERVISION.with_borrow(Clone::clone) {
        supervision.begin(pid, limits);
        let done = work();
        supervision.end();
        return Some(done);
    }
    let (answer, answers) = mpsc::sync_channel(1);
    let job: Job = Box::new(move || {
        let begin = thread_cpu();
        let done = work();
        drop(answer.send((done, thread_cpu().saturating_sub(begin))));
    });
    let owner = std::process::id();
    let free = locked(&READER).take().filter(|reader| reader.owner == owner);
    let jobs = match free {
        Some(Reader { jobs, .. }) => jobs,
        None => started()?,
    };
    jobs.send(job).ok()?;
    loop {
        let left = limits.left();
        // A wait without time still takes an answer that is there.
        match answers.recv_timeout(left.unwrap_or(Duration::ZERO)) {
            Ok((answer, cpu)) => {
                CPU_OF_READINGS.set(CPU_OF_READINGS.get() + cpu);
                *locked(&READER) = Some(Reader { owner, jobs });
                return Some(answer);
            }
            Err(RecvTimeoutError::Timeout) if left.is_some() => {}
            // The thread is left to its wait.
            Err(_) => return None,
        }
    }
}

/// Starts the thread; `None` if the system refuses one.
fn started() -> Option<Sender<Job>> {
    let (jobs, todo) = mpsc::channel::<Job>();
    spawn(move || todo.iter().for_each(|job| job())).map(|_| jobs)
}

/// Starts a thread; `None` if the system refuses one.
fn spawn(work: impl FnOnce() + Send + 'static) -> Option<JoinHandle<()>> {
    thread::Builder::new().name("reader".to_owned()).spawn(work).ok()
}

/// The state of a thread that reads one process after the other.
#[derive(Default)]
struct Supervision {
    /// The process that is read now, and for how long.
    current: Mutex<Option<(String, Limits)>>,
}

impl Supervision {
    fn begin(&self, pid: &str, limits: &Limits) {
        *locked(&self.current) = Some((pid.to_owned(), limits.clone()));
    }

    fn end(&self) {
        *locked(&self.current) = None;
    }

    /// The process whose reading is to be left.
    fn late(&self) -> Option<String> {
        locked(&self.current)
            .as_ref()
            .filter(|(_, limits)| limits.left().is_none())
            .map(|(pid, _)| pid.clone())
    }
}

/// Readings of [`each`].
struct Readings<I, T> {
    items: Vec<I>,
    read: Box<dyn Fn(&I) -> T + Send + Sync>,
    results: Mutex<Results<T>>,
    is_complete: Condvar,
}

/// The results so far.
struct Results<T> {
    done: Vec<T>,
    /// The supervision of the thread that reads now: others were left.
    reader: Arc<Supervision>,
}

impl<I: Send + Sync + 'static, T: Send + 'static> Readings<I, T> {
    /// Starts a thread that goes on after the last result; `None` if the system refuses one.
    fn go_on(self: &Arc<Self>) -> Option<JoinHandle<()>> {
        let (readings, own) = (Arc::clone(self), Arc::<Supervision>::default());
        locked(&self.results).reader = Arc::clone(&own);
        spawn(move || {
            SUPERVISION.set(Some(Arc::clone(&own)));
            readings.read_rest(|results| Arc::ptr_eq(&results.reader, &own));
        })
    }

    /// Reads until all is read, or `goes_on` is false.
    fn read_rest(&self, goes_on: impl Fn(&Results<T>) -> bool) {
        loop {
            let next = locked(&self.results).done.len();
            let Some(item) = self.items.get(next) else { return self.is_complete.notify_all() };
            let result = (self.read)(item);
            let mut results = locked(&self.results);
            if !goes_on(&results) {
                return;
            }
            results.done.push(result);
        }
    }
}

/// The result of `read` for each of `items`, in their order. One thread reads all of them, which takes fewer changes of
/// threads than a reading in another thread for each file. If a process does not answer, that thread is left, and
/// another one goes on; `read` gets an error then.
pub fn each<I: Send + Sync + 'static, T: Send + 'static>(
    items: Vec<I>,
    read: impl Fn(&I) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let results = Results { done: Vec::with_capacity(items.len()), reader: Arc::default() };
    let readings =
        Readings { items, read: Box::new(read), results: Mutex::new(results), is_complete: Condvar::new() };
    let readings = Arc::new(readings);
    let mut thread = readings.go_on();
    let mut results = locked(&readings.results);
    while results.done.len() < readings.items.len() {
        if thread.as_ref().is_none_or(JoinHandle::is_finished) {
            // Without a thread, or after a panic: by this one.
            drop(results);
            readings.read_rest(|_| true);
            results = locked(&readings.results);
            continue;
        }
        let waited = readings.is_complete.wait_timeout(results, CHECK_INTERVAL);
        results = waited.unwrap_or_else(PoisonError::into_inner).0;
        if let Some(pid) = results.reader.late() {
            drop(results);
            count_as_stuck(pid);
            thread = readings.go_on();
            results = locked(&readings.results);
        }
    }
    std::mem::take(&mut results.done)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    fn limits(answered: bool, until_answer: Duration, whole: Duration) -> Limits {
        Limits::new(until_answer, whole, Arc::new(AtomicBool::new(answered)))
    }

    fn hang() {
        thread::sleep(Duration::from_secs(1000));
    }

    #[test]
    fn a_reading_that_hangs_is_left() {
        let begin = Instant::now();
        let soon = Duration::from_millis(30);
        assert_eq!(within("7", &limits(false, soon, LONG * 10), hang), None);
        assert_eq!(within("7", &limits(true, LONG * 10, soon), hang), None);
        let both = limits(false, LONG, LONG);
        assert_eq!((within("7", &both, || 7), within("7", &both, || 8)), (Some(7), Some(8)));
        assert!(begin.elapsed() < LONG);
    }

    #[test]
    fn the_cost_of_a_reading_is_that_of_its_caller() {
        let before = thread_cpu();
        let work = || {
            let begin = thread_cpu();
            while thread_cpu() - begin < Duration::from_millis(20) {}
        };
        assert_eq!(within("7", &limits(true, LONG, LONG), work), Some(()));
        assert!(thread_cpu() - before >= Duration::from_millis(20));
    }

    #[test]
    fn each_item_is_read_although_some_do_not_answer() {
        let begin = Instant::now();
        let left: Arc<Mutex<Vec<u32>>> = Arc::default();
        let tried = Arc::clone(&left);
        let read = move |item: &u32| {
            if item % 3 == 1 && !locked(&tried).contains(item) {
                locked(&tried).push(*item);
                let soon = limits(true, LONG, Duration::from_millis(30));
                return within(&format!("test {item}"), &soon, hang).map(|()| 0);
            }
            within("test", &limits(true, LONG, LONG), || ()).map(|()| *item)
        };
        // A process that was left is read again, and then known as one that does not answer.
        assert_eq!(each((0..8).collect(), read), (0..8).map(Some).collect::<Vec<_>>());
        assert_eq!(*locked(&left), [1, 4, 7]);
        assert!(begin.elapsed() < LONG);
        assert!(each(Vec::new(), |item: &u32| *item).is_empty());
    }
}
