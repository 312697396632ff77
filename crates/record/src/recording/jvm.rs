//! JVMs among the recorded processes: their logs, and the addresses of their heaps.

use std::{
    collections::BTreeMap,
    fs::File,
    thread,
    time::{Duration, Instant},
};

use hugewise_changes::journal::{Journal, JvmLog as JournalLog};
use hugewise_jvm::regions::Heap;
use hugewise_linux::{root::Root, sys::process::monotonic_ns};

use super::{
    jvm_messages::Message,
    jvm_reader::JvmReader,
    model::{Evidence, JvmLog, JvmLogSource, Line},
    tail::Tail,
};

/// Interval of the search for JVMs; short, because a JVM's first pauses follow soon after its start.
const SEARCH_INTERVAL: Duration = Duration::from_millis(200);
/// Largest number of checks of a process that is not a JVM.
const MAX_TRIES: u32 = 50;
/// Most JVMs that are asked at the same time: each takes a process of the recorder.
const MAX_READERS: usize = 64;
/// Longest wait for the JVMs at the end of a recording.
const END_LIMIT: Duration = Duration::from_millis(600);
/// Interval of the checks for their last messages.
const END_INTERVAL: Duration = Duration::from_millis(5);

/// The recorded JVMs.
pub struct Jvms {
    all: BTreeMap<u32, JvmState>,
    attach: bool,
    due: Instant,
}

#[derive(Default)]
struct JvmState {
    tries: u32,
    /// Whether it is known if there is a log.
    settled: bool,
    reader: Option<JvmReader>,
    /// The log to switch on.
    log: Option<JournalLog>,
    /// Whether the log is in the journal.
    is_noted: bool,
    /// The log of a JVM that the recorder started.
    tail: Option<Tail>,
    heap: Option<Heap>,
}

impl Jvms {
    /// `attach`: whether JVMs may be queried and asked to write a log.
    pub fn new(attach: bool) -> Jvms {
        Jvms { all: BTreeMap::new(), attach, due: Instant::now() }
    }

    /// The log of a JVM that was started with [`hugewise_jvm::log_control::option`].
    pub fn started_with_log(&mut self, pid: u32, file: File) -> Line {
        let seen = JvmState { settled: true, tail: Some(Tail::own(file)), ..JvmState::default() };
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
        journal: Option<&Journal>,
    ) -> Vec<Line> {
        let mut lines = Vec::new();
        if Instant::now() < self.due {
            return lines;
        }
        self.due = Instant::now() + SEARCH_INTERVAL;
        let mut readers = self.all.values().filter(|seen| seen.reader.is_some()).count();
        for pid in processes {
            let attach = self.attach;
            let seen = self.all.entry(pid).or_default();
            if seen.tries >= MAX_TRIES || readers >= MAX_READERS {
                continue;
            }
            seen.tries += 1;
            if !is_jvm(root, pid) {
                continue;
            }
            seen.tries = MAX_TRIES;
            let wants_log = !seen.settled;
            seen.log = journal.filter(|_| attach && wants_log).and_then(|journal| log(root, pid, journal));
            match JvmReader::start(root, pid, wants_log, seen.log.as_ref()) {
                Ok(reader) => {
                    seen.reader = Some(reader);
                    readers += 1;
                }
                Err(error) if wants_log => {
                    seen.settled = true;
                    lines.push(without_log(pid, &error.to_string()));
                }
                Err(_) => {}
            }
        }
        lines
    }

    /// New lines of the logs.
    pub fn read(&mut self, last: bool, mut journal: Option<&mut Journal>) -> Vec<Line> {
        let mut all = Vec::new();
        for (pid, seen) in &mut self.all {
            all.extend(seen.follow(*pid, journal.as_deref_mut()));
            let Some(tail) = &mut seen.tail else { continue };
            match tail.lines(last) {
                Ok(lines) => all.extend(log_lines(*pid, lines)),
                Err(error) => {
                    seen.tail = None;
                    all.push(Line::lost(Evidence::JvmLog, None, error));
                }
            }
        }
        all
    }

    /// Switches off the logs that were switched on. Those that fail stay in the journal.
    pub fn end(&mut self, mut journal: Option<&mut Journal>) -> Vec<Line> {
        let mut lines = Vec::new();
        let begin = Instant::now();
        self.all.values().filter_map(|seen| seen.reader.as_ref()).for_each(JvmReader::end);
        loop {
            for (pid, seen) in &mut self.all {
                lines.extend(seen.follow(*pid, journal.as_deref_mut()));
            }
            if begin.elapsed() >= END_LIMIT || self.all.values().all(|seen| seen.reader.is_none()) {
                break;
            }
            thread::sleep(END_INTERVAL);
        }
        for (pid, seen) in &mut self.all {
            let Some(_) = seen.reader.take() else { continue };
            if !seen.settled {
                lines.push(without_log(*pid, "it did not answer"));
            }
            if seen.is_noted {
                lines.push(stays_on(*pid, "it did not answer in time; run 'hugewise restore'"));
            }
        }
        lines
    }
}

impl JvmState {
    /// Lines of the messages of the reader.
    fn follow(&mut self, pid: u32, mut journal: Option<&mut Journal>) -> Vec<Line> {
        let Some(mut reader) = self.reader.take() else { return Vec::new() };
        let mut lines = Vec::new();
        for message in reader.messages() {
            match message {
                Message::Heap(heap) => self.heap = Some(heap),
                Message::ToJournal => {
                    let noted = (journal.as_deref_mut().zip(self.log.clone()))
                        .is_some_and(|(journal, log)| self.is_noted || journal.note_jvm_log(log).is_ok());
                    self.is_noted |= noted;
                    reader.journalled(noted);
                }
                Message::Log { source: of, monotonic } => {
                    self.settled = true;
                    lines.push(source(pid, of, monotonic));
                }
                Message::NoLog { reason, may_be_on } => {
                    self.settled = true;
                    lines.push(without_log(pid, &reason));
                    if !may_be_on {
                        self.forget(journal.as_deref_mut());
                    }
                }
                Message::Lines(of_log) => lines.extend(log_lines(pid, of_log)),
                Message::Lost(reason) => lines.push(Line::lost(Evidence::JvmLog, None, reason)),
                Message::Off => self.forget(journal.as_deref_mut()),
                Message::StaysOn(reason) => lines.push(stays_on(pid, &reason)),
            }
        }
        if !reader.has_ended() {
            self.reader = Some(reader);
        } else if !self.settled {
            self.settled = true;
            lines.push(without_log(pid, "it ended before it was asked"));
        }
        lines
    }

    /// Removes the log, which is off, from the journal.
    fn forget(&mut self, journal: Option<&mut Journal>) {
        let (Some(log), Some(journal), true) = (&self.log, journal, self.is_noted) else { return };
        self.is_noted = journal.forget_jvm_log(log).is_err();
    }
}

/// A log of our own of process `pid`.
fn log(root: &Root, pid: u32, journal: &Journal) -> Option<JournalLog> {
    let name: String = journal.run_id().chars().filter(char::is_ascii_alphanumeric).collect();
    JournalLog::of(root, pid, format!("/tmp/.hugewise-{name}-{pid}.log"))
}

fn source(pid: u32, source: String, monotonic: bool) -> Line {
    Line::JvmLogSource(JvmLogSource { ns: monotonic_ns(), pid, source, monotonic })
}

fn log_lines(pid: u32, lines: Vec<String>) -> Option<Line> {
    (!lines.is_empty()).then(|| Line::JvmLog(JvmLog { ns: monotonic_ns(), pid, lines }))
}

fn without_log(pid: u32, reason: &str) -> Line {
    Line::note(format!("no log of the JVM in process {pid}: {reason}"))
}

fn stays_on(pid: u32, reason: &str) -> Line {
    Line::note(format!("the log of the JVM in process {pid} stays on: {reason}"))
}

fn is_jvm(root: &Root, pid: u32) -> bool {
    root.read(format!("proc/{pid}/maps")).is_ok_and(|maps| maps.contains("/libjvm.so"))
}
