//! JVMs among the recorded processes: their logs, and the addresses of their heaps.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Seek, SeekFrom},
    path::Path,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use hugewise_changes::journal::{Journal, JvmLog as JournalLog};
use hugewise_evidence::heap;
use hugewise_jvm::{
    attach::{self, AttachError, Jvm},
    log_control::{self, LogFile},
    regions::{Heap, HeapHints},
};
use hugewise_linux::{
    proc::process::Process,
    reading::Reason,
    root::Root,
    sys::{aside::Deadline, file::inside, process::monotonic_ns},
};

use super::{
    model::{Evidence, JvmLog, JvmLogSource, Line},
    tail::Tail,
};

/// Interval of the search for JVMs; short, because a JVM's first pauses follow soon after its start.
const SEARCH_INTERVAL: Duration = Duration::from_millis(200);
/// Largest number of checks of a process that is not a JVM or cannot be queried yet.
const MAX_TRIES: u32 = 50;
/// Largest number of attempts to locate a heap, each of which is more expensive.
const MAX_HEAP_TRIES: u32 = 8;
const HEAP_SEARCH_INTERVAL: Duration = Duration::from_secs(1);

/// The recorded JVMs.
pub struct Jvms {
    all: BTreeMap<u32, JvmState>,
    attach: bool,
    due: Instant,
}

#[derive(Default)]
struct JvmState {
    is_jvm: bool,
    tries: u32,
    settled: bool,
    asking: Option<JoinHandle<Result<FoundLog, LogFailure>>>,
    failed: Option<LogFailure>,
    noted: Option<JournalLog>,
    tail: Option<Tail>,
    heap: Option<Heap>,
    heap_tries: u32,
    heap_due: Option<Instant>,
}

/// Why there is no log.
struct LogFailure {
    reason: Reason,
    /// The JVM refused the command: another attempt would fail as well.
    for_good: bool,
}

impl From<Reason> for LogFailure {
    fn from(reason: Reason) -> LogFailure {
        LogFailure { reason, for_good: false }
    }
}

impl From<AttachError> for LogFailure {
    fn from(error: AttachError) -> LogFailure {
        LogFailure { for_good: matches!(error, AttachError::Answer { .. }), reason: error.into() }
    }
}

/// A log that can be read.
struct FoundLog {
    tail: Tail,
    source: String,
    monotonic: bool,
}

impl Jvms {
    /// `attach`: whether JVMs may be queried and asked to write a log.
    pub fn new(attach: bool) -> Jvms {
        Jvms { all: BTreeMap::new(), attach, due: Instant::now() }
    }

    /// The log of a JVM that was started with [`log_control::option`].
    pub fn started_with_log(&mut self, pid: u32, file: File) -> Line {
        let seen =
            JvmState { is_jvm: true, settled: true, tail: Some(Tail::own(file)), ..JvmState::default() };
        self.all.insert(pid, seen);
        source(pid, "an option that was added to its command line".to_owned(), true)
    }

    /// The heap of process `pid`; `None` until it is located.
    pub fn heap(&self, pid: u32) -> Option<&Heap> {
        self.all.get(&pid)?.heap.as_ref()
    }

    /// Searches `processes` for JVMs at most every 200 ms, and requests a log from new ones.
    pub fn sample(
        &mut self,
        root: &Root,
        processes: impl Iterator<Item = u32>,
        mut journal: Option<&mut Journal>,
    ) -> Vec<Line> {
        let mut lines = Vec::new();
        if Instant::now() < self.due {
            return lines;
        }
        self.due = Instant::now() + SEARCH_INTERVAL;
        for pid in processes {
            let attach = self.attach;
            let seen = self.all.entry(pid).or_default();
            if !seen.is_jvm {
                if seen.tries >= MAX_TRIES {
                    continue;
                }
                seen.is_jvm = is_jvm(root, pid);
                seen.tries = if seen.is_jvm { 0 } else { seen.tries + 1 };
                continue;
            }
            seen.find_heap(root, pid);
            if seen.settled {
                continue;
            }
            match seen.asking.take() {
                Some(asking) if !asking.is_finished() => seen.asking = Some(asking),
                Some(asking) => {
                    lines.extend(seen.answered(pid, asking));
                    if seen.is_hopeless() {
                        lines.push(seen.give_up(pid));
                        let _ = seen.switch_off(root, journal.as_deref_mut());
                    }
                }
                // Of a JVM that has ended, the reason of the last attempt is kept.
                None if !is_jvm(root, pid) => {}
                None => seen.ask(root, pid, attach, journal.as_deref_mut()),
            }
        }
        lines
    }

    /// New lines of the logs.
    pub fn read(&mut self, last: bool) -> Vec<Line> {
        let mut all = Vec::new();
        for (pid, seen) in &mut self.all {
            let Some(tail) = &mut seen.tail else { continue };
            match tail.lines(last) {
                Ok(lines) if lines.is_empty() => {}
                Ok(lines) => all.push(Line::JvmLog(JvmLog { ns: monotonic_ns(), pid: *pid, lines })),
                Err(error) => {
                    seen.tail = None;
                    all.push(Line::lost(Evidence::JvmLog, None, error));
                }
            }
        }
        all
    }

    /// Switches off the logs that were switched on. Those that fail stay in the journal.
    pub fn end(&mut self, root: &Root, mut journal: Option<&mut Journal>) -> Vec<Line> {
        let mut lines = Vec::new();
        for (pid, seen) in &mut self.all {
            // A JVM that has ended may have written a log before its answer was read.
            if let Some(asking) = seen.asking.take() {
                lines.extend(seen.answered(*pid, asking));
            }
            if seen.is_jvm && !seen.settled {
                lines.push(seen.give_up(*pid));
            }
            lines.extend(seen.switch_off(root, journal.as_deref_mut()).err().map(Line::note));
        }
        lines
    }
}

impl JvmState {
    /// Locates the heap, which exists once the JVM has started.
    fn find_heap(&mut self, root: &Root, pid: u32) {
        let is_early = self.heap_due.is_some_and(|due| Instant::now() < due);
        if self.heap.is_some() || self.heap_tries >= MAX_HEAP_TRIES || is_early {
            return;
        }
        self.heap_tries += 1;
        self.heap_due = Some(Instant::now() + HEAP_SEARCH_INTERVAL);
        self.heap = heap::locate(root, pid, &HeapHints::default());
    }

    fn ask(&mut self, root: &Root, pid: u32, attach: bool, journal: Option<&mut Journal>) {
        self.tries += 1;
        self.noted = journal.filter(|_| attach).and_then(|journal| {
            self.noted.take().or_else(|| {
                let name: String = journal.run_id().chars().filter(char::is_ascii_alphanumeric).collect();
                let noted = JournalLog::of(root, pid, format!("/tmp/.hugewise-{name}-{pid}.log"));
                // Without a journal entry no log is switched on.
                noted.filter(|noted| journal.note_jvm_log(noted.clone()).is_ok())
            })
        });
        let (root, noted) = (root.clone(), self.noted.clone());
        // The answer may take seconds, in which the kernel's buffers would overflow.
        self.asking = Some(thread::spawn(move || find_log(&root, pid, noted.as_ref())));
    }

    fn answered(&mut self, pid: u32, asking: JoinHandle<Result<FoundLog, LogFailure>>) -> Option<Line> {
        match asking.join() {
            Ok(Ok(found)) => {
                (self.settled, self.tail) = (true, Some(found.tail));
                return Some(source(pid, found.source, found.monotonic));
            }
            Ok(Err(failed)) => self.failed = Some(failed),
            Err(_) => self.failed = Some(Reason::new("the query was aborted").into()),
        }
        None
    }

    /// Whether another attempt to get a log is of no use.
    fn is_hopeless(&self) -> bool {
        let is_last = |failed: &LogFailure| failed.for_good || self.tries >= MAX_TRIES;
        !self.settled && self.failed.as_ref().is_some_and(is_last)
    }

    fn give_up(&mut self, pid: u32) -> Line {
        self.settled = true;
        let reason = self.failed.take().map(|failed| failed.reason);
        let reason =
            reason.unwrap_or_else(|| Reason::new("it ended before it was asked, or the recording did"));
        Line::note(format!("no log of the JVM in process {pid}: {reason}"))
    }

    /// Switches off the log that was switched on, if any; if that fails, it stays in the journal.
    fn switch_off(&mut self, root: &Root, journal: Option<&mut Journal>) -> Result<(), Reason> {
        let (Some(noted), Some(journal)) = (&self.noted, journal) else { return Ok(()) };
        switch_off(root, noted)?;
        let _ = journal.forget_jvm_log(noted);
        self.noted = None;
        Ok(())
    }
}

fn source(pid: u32, source: String, monotonic: bool) -> Line {
    Line::JvmLogSource(JvmLogSource { ns: monotonic_ns(), pid, source, monotonic })
}

fn is_jvm(root: &Root, pid: u32) -> bool {
    root.read(format!("proc/{pid}/maps")).is_ok_and(|maps| maps.contains("/libjvm.so"))
}

/// An existing log of the JVM with the right clock; else a new log, already in the journal; else an existing
/// log with another clock.
fn find_log(root: &Root, pid: u32, noted: Option<&JournalLog>) -> Result<FoundLog, LogFailure> {
    let process = Process::read(root, pid).map_err(Reason::from)?;
    let owner = *process.uid.known().ok_or_else(|| Reason::new("its user is unknown"))?;
    let own = log_control::of_command(&process.command, process.pid_inside.unwrap_or(pid));
    let follow = |log: &LogFile| follow(root, pid, owner, log);
    if let Some(own) = own.as_ref().filter(|own| own.monotonic && own.safepoints) {
        if let Ok(found) = follow(own) {
            return Ok(found);
        }
    }
    let asked = match noted {
        None => Err(LogFailure { reason: Reason::new("attaching is disabled"), for_good: true }),
        Some(noted) => ask_for_log(root, owner, noted),
    };
    asked.or_else(|failed| match &own {
        Some(own) => follow(own).map_err(|error| LogFailure {
            reason: Reason::new(format!("{}; its own log: {error}", failed.reason)),
            for_good: failed.for_good,
        }),
        None => Err(failed),
    })
}

fn ask_for_log(root: &Root, owner: u32, noted: &JournalLog) -> Result<FoundLog, LogFailure> {
    let jvm = Jvm::connect(root, noted.pid, Deadline::of_reading(attach::TIME_LIMIT))?;
    let files = log_control::files(&jvm)?;
    let mut usable = files.iter().filter(|file| file.monotonic && file.safepoints);
    // A log that cannot be followed, for example through a link, is replaced by one of our own.
    let followed = usable.find_map(|file| follow(root, noted.pid, owner, file).ok());
    followed.map_or_else(|| switch_on(root, &jvm, owner, noted), Ok)
}

/// An existing log file of the JVM, read from its end.
fn follow(root: &Root, pid: u32, owner: u32, log: &LogFile) -> Result<FoundLog, Reason> {
    let path = match log.file.is_absolute() {
        true => log.file.clone(),
        false => fs::read_link(root.path(format!("proc/{pid}/cwd")))?.join(&log.file),
    };
    let folder = root.path(format!("proc/{pid}/root"));
    let open = move |path: &Path| inside::open_of(&folder, path, owner);
    let failed = |error: io::Error| Reason::new(format!("{}: {error}", path.display()));
    let mut file = open(&path).map_err(failed)?;
    file.seek(SeekFrom::End(0)).map_err(failed)?;
    let source = format!("{}, which it writes itself", path.display());
    let tail = Tail::of(file, Some(Box::new(move || open(&path))));
    Ok(FoundLog { tail, source, monotonic: log.monotonic })
}

/// Switches on a new log. Its file is unlinked at once, so it disappears when the JVM closes it.
fn switch_on(root: &Root, jvm: &Jvm, owner: u32, noted: &JournalLog) -> Result<FoundLog, LogFailure> {
    let folder = root.path(format!("proc/{}/root", noted.pid));
    let failed = |error: io::Error| Reason::new(format!("{}: {error}", noted.file));
    let file = inside::create(&folder, Path::new(&noted.file), owner).map_err(failed)?;
    let switched = log_control::switch_on(jvm, &noted.file);
    noted.remove_file(root);
    switched?;
    let source = "VM.log, switched on for the recording".to_owned();
    Ok(FoundLog { tail: Tail::own(file), source, monotonic: true })
}

/// Switches off a log of the journal. The log of a JVM that has ended is off.
pub fn switch_off(root: &Root, noted: &JournalLog) -> Result<(), Reason> {
    if !noted.is_running(root) {
        noted.remove_file(root);
        return Ok(());
    }
    let jvm = Jvm::connect(root, noted.pid, Deadline::of_reading(attach::TIME_LIMIT))?;
    let switched = log_control::switch_off(&jvm, &noted.file);
    noted.remove_file(root);
    Ok(switched?)
}
