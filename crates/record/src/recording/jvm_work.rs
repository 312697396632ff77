//! The work aside for one JVM: see [`super::jvm_reader`].

use std::{
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::{Duration, Instant},
};

use hugewise_changes::journal::JvmLog as JournalLog;
use hugewise_evidence::heap;
use hugewise_jvm::{
    attach::{self, AttachError, Jvm},
    log_control::{self, LogFile},
    regions::HeapHints,
};
use hugewise_linux::{
    proc::{halted, process::Process},
    reading::Reason,
    root::Root,
    sys::{
        aside::{self, Deadline},
        file::inside,
        wait_readable,
    },
};

use super::{
    jvm_messages::{END, JOURNALLED, Message},
    tail::Tail,
};

/// Interval of the readings of the log, and of the attempts to ask for one.
const READ_INTERVAL: Duration = Duration::from_millis(100);
const ASK_INTERVAL: Duration = Duration::from_millis(200);
/// Largest number of attempts to ask a JVM that cannot be attached to yet.
const MAX_TRIES: u32 = 50;
/// Largest number of attempts to locate a heap, each of which is more expensive.
const MAX_HEAP_TRIES: u32 = 8;
const HEAP_SEARCH_INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait for the recording to write its journal.
const JOURNAL_LIMIT: Duration = Duration::from_secs(10);
/// Longest conversation at the end of a recording, which must end soon.
const END_LIMIT: Duration = Duration::from_millis(400);
/// Longest conversation of a `restore`.
const RESTORE_LIMIT: Duration = Duration::from_secs(3);
/// Why there is no log.
struct LogFailure {
    reason: Reason,
    /// Another attempt would fail as well.
    for_good: bool,
    may_be_on: bool,
}

impl From<Reason> for LogFailure {
    fn from(reason: Reason) -> LogFailure {
        LogFailure { reason, for_good: false, may_be_on: false }
    }
}

impl From<AttachError> for LogFailure {
    fn from(error: AttachError) -> LogFailure {
        // A JVM that did not answer is not asked again.
        let for_good = !matches!(error, AttachError::Refused { .. } | AttachError::Io { .. });
        LogFailure { for_good, reason: error.into(), may_be_on: false }
    }
}

/// A log that can be read.
struct FoundLog {
    tail: Tail,
    source: String,
    monotonic: bool,
    /// Whether it was switched on for the recording.
    is_own: bool,
}

enum LogState {
    Wanted { tries: u32, last: Option<Reason> },
    Read(FoundLog),
    None { may_be_on: bool },
}

/// The work for a JVM.
pub struct Work<'a> {
    root: &'a Root,
    process: Process,
    owner: u32,
    log: Option<&'a JournalLog>,
    channel: &'a UnixStream,
    state: LogState,
    heap_tries: u32,
    heap_due: Option<Instant>,
    must_end: bool,
}

impl<'a> Work<'a> {
    /// The work for process `pid`, with a log if `wants_log`; `log` is the one to switch on.
    pub fn of(
        root: &'a Root,
        pid: u32,
        wants_log: bool,
        log: Option<&'a JournalLog>,
        channel: &'a UnixStream,
    ) -> io::Result<Work<'a>> {
        let process = Process::read(root, pid).map_err(io::Error::other)?;
        let owner = *process.uid.known().ok_or_else(|| io::Error::other("its user is unknown"))?;
        let state = match wants_log {
            true => LogState::Wanted { tries: 0, last: None },
            false => LogState::None { may_be_on: false },
        };
        let (heap_tries, heap_due, must_end) = (0, None, false);
        Ok(Work { root, process, owner, log, channel, state, heap_tries, heap_due, must_end })
    }

    /// Works until the recording or the process ends.
    pub fn run(mut self) -> io::Result<()> {
        let mut ask_due = Instant::now();
        while !self.must_end && self.process.check_running(self.root).is_ok() {
            self.find_heap()?;
            if Instant::now() >= ask_due {
                self.ask()?;
                ask_due = Instant::now() + ASK_INTERVAL;
            }
            self.read(false)?;
            self.must_end |= self.request(READ_INTERVAL)? == Some(END);
        }
        self.end()
    }

    fn send(&mut self, message: &Message) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.channel.write_all(&line)
    }

    /// A request of the recording within `time`; [`END`] if it is gone.
    fn request(&self, time: Duration) -> io::Result<Option<u8>> {
        if !wait_readable(self.channel, time)? {
            return Ok(None);
        }
        let mut request = [END];
        let mut channel = self.channel;
        let _ = channel.read(&mut request)?;
        Ok(Some(request[0]))
    }

    /// Locates the heap, which exists once the JVM has started.
    fn find_heap(&mut self) -> io::Result<()> {
        let is_early = self.heap_due.is_some_and(|due| Instant::now() < due);
        if self.heap_tries >= MAX_HEAP_TRIES || is_early {
            return Ok(());
        }
        self.heap_tries += 1;
        self.heap_due = Some(Instant::now() + HEAP_SEARCH_INTERVAL);
        let Some(heap) = heap::locate(self.root, self.process.pid, &HeapHints::default()) else {
            return Ok(());
        };
        self.heap_tries = MAX_HEAP_TRIES;
        self.send(&Message::Heap(heap))
    }

    /// Looks for a log, if there is none yet.
    fn ask(&mut self) -> io::Result<()> {
        let LogState::Wanted { tries, .. } = self.state else { return Ok(()) };
        let tries = tries + 1;
        match self.find_log() {
            Ok(found) => {
                self.send(&Message::Log { source: found.source.clone(), monotonic: found.monotonic })?;
                self.state = LogState::Read(found);
            }
            Err(failed) if !self.must_end && (failed.for_good || tries >= MAX_TRIES) => {
                let (reason, may_be_on) = (failed.reason.to_string(), failed.may_be_on);
                self.send(&Message::NoLog { reason, may_be_on })?;
                self.state = LogState::None { may_be_on };
            }
            Err(failed) => self.state = LogState::Wanted { tries, last: Some(failed.reason) },
        }
        Ok(())
    }

    fn read(&mut self, last: bool) -> io::Result<()> {
        let LogState::Read(found) = &mut self.state else { return Ok(()) };
        match found.tail.lines(last) {
            Ok(lines) if lines.is_empty() => Ok(()),
            Ok(lines) => self.send(&Message::Lines(lines)),
            Err(error) => {
                self.state = LogState::None { may_be_on: found.is_own };
                self.send(&Message::Lost(error.to_string()))
            }
        }
    }

    /// Switches the log off, and sends the rest of it.
    fn end(&mut self) -> io::Result<()> {
        let may_be_on = match &mut self.state {
            LogState::Read(found) => found.is_own,
            LogState::None { may_be_on } => *may_be_on,
            LogState::Wanted { last, .. } => {
                let reason = last.take().map(|reason| reason.to_string());
                let reason =
                    reason.unwrap_or_else(|| "it ended before it was asked, or the recording did".to_owned());
                self.send(&Message::NoLog { reason, may_be_on: false })?;
                false
            }
        };
        let off = match self.log.filter(|_| may_be_on) {
            Some(log) => end_log(self.root, log, Deadline::after(END_LIMIT, None)),
            None => Ok(()),
        };
        self.read(true)?;
        self.send(&off.map_or_else(|reason| Message::StaysOn(reason.to_string()), |()| Message::Off))
    }

    /// An existing log of the JVM with the right clock; else a new log; else an existing log with another clock.
    fn find_log(&mut self) -> Result<FoundLog, LogFailure> {
        let own_pid = self.process.pid_inside.unwrap_or(self.process.pid);
        let own = log_control::of_command(&self.process.command, own_pid);
        if let Some(own) = own.as_ref().filter(|own| own.monotonic && own.safepoints) {
            if let Ok(found) = self.follow(own) {
                return Ok(found);
            }
        }
        let asked = self.ask_for_log();
        asked.or_else(|failed| match &own {
            Some(own) if !failed.may_be_on => self.follow(own).map_err(|error| LogFailure {
                reason: Reason::new(format!("{}; its own log: {error}", failed.reason)),
                ..failed
            }),
            _ => Err(failed),
        })
    }

    fn ask_for_log(&mut self) -> Result<FoundLog, LogFailure> {
        let Some(log) = self.log else {
            let reason = Reason::new("attaching is disabled");
            return Err(LogFailure { reason, for_good: true, may_be_on: false });
        };
        let jvm = Jvm::connect(self.root, log.pid, Deadline::after(attach::TIME_LIMIT, None))?;
        let files = log_control::files(&jvm)?;
        let mut usable = files.iter().filter(|file| file.monotonic && file.safepoints);
        // A log that cannot be followed, for example through a link, is replaced by one of our own.
        let followed = usable.find_map(|file| self.follow(file).ok());
        followed.map_or_else(|| self.switch_on(&jvm, log), Ok)
    }

    /// An existing log file of the JVM, read from its end.
    fn follow(&self, log: &LogFile) -> Result<FoundLog, Reason> {
        let pid = self.process.pid;
        let path = match log.file.is_absolute() {
            true => log.file.clone(),
            false => self.root.link(format!("proc/{pid}/cwd"))?.join(&log.file),
        };
        let (folder, owner) = (self.root.path(format!("proc/{pid}/root")), self.owner);
        let open = move |path: &Path| inside::open_of(&folder, path, owner);
        let failed = |error: io::Error| Reason::new(format!("{}: {error}", path.display()));
        let mut file = open(&path).map_err(failed)?;
        file.seek(SeekFrom::End(0)).map_err(failed)?;
        let source = format!("{}, which it writes itself", path.display());
        let tail = Tail::of(file, Some(Box::new(move || open(&path))));
        Ok(FoundLog { tail, source, monotonic: log.monotonic, is_own: false })
    }

    /// Switches on a new log. Its file is unlinked at once, so it disappears when the JVM closes it.
    fn switch_on(&mut self, jvm: &Jvm<'_>, log: &JournalLog) -> Result<FoundLog, LogFailure> {
        self.send(&Message::ToJournal).map_err(Reason::from)?;
        match self.request(JOURNAL_LIMIT).map_err(Reason::from)? {
            Some(JOURNALLED) => {}
            Some(END) => {
                self.must_end = true;
                return Err(Reason::new("the recording ended").into());
            }
            _ => {
                let reason = Reason::new("without a journal no log is switched on");
                return Err(LogFailure { reason, for_good: true, may_be_on: false });
            }
        }
        let folder = self.root.path(format!("proc/{}/root", log.pid));
        let failed = |error: io::Error| Reason::new(format!("{}: {error}", log.file));
        let file = inside::create(&folder, Path::new(&log.file), self.owner).map_err(failed)?;
        let switched = log_control::switch_on(jvm, &log.file);
        log.remove_file(self.root);
        switched.map_err(|error| LogFailure {
            may_be_on: error.may_follow("VM.log output"),
            ..LogFailure::from(error)
        })?;
        let source = "VM.log, switched on for the recording".to_owned();
        Ok(FoundLog { tail: Tail::own(file), source, monotonic: true, is_own: true })
    }
}

/// Switches off a log of the journal. The log of a JVM that has ended is off.
pub fn switch_off(root: &Root, log: &JournalLog) -> Result<(), Reason> {
    let off = || match end_log(root, log, Deadline::after(RESTORE_LIMIT, None)) {
        Ok(()) => Ok(Vec::new()),
        Err(reason) => Err(io::Error::other(reason.to_string())),
    };
    aside::ask(&[], &Deadline::of_reading(RESTORE_LIMIT), 0, off).map(drop).map_err(Reason::from)
}

fn end_log(root: &Root, log: &JournalLog, deadline: Deadline<'_>) -> Result<(), Reason> {
    if !log.is_running(root) {
        log.remove_file(root);
        return Ok(());
    }
    if let Some(reason) = halted::reason(root, log.pid) {
        return Reason::err(format!("{reason}; when it goes on, run 'hugewise restore'"));
    }
    // A JVM that cannot be attached to does not write it either.
    if is_open(root, log) == Some(false) {
        log.remove_file(root);
        return Ok(());
    }
    let jvm = Jvm::connect(root, log.pid, deadline)?;
    let switched = log_control::switch_off(&jvm, &log.file);
    log.remove_file(root);
    Ok(switched?)
}

/// Whether the process has the file of the log open, removed or not; `None` if that cannot be read.
fn is_open(root: &Root, log: &JournalLog) -> Option<bool> {
    let name = Path::new(&log.file).file_name()?.to_str()?;
    let descriptors = root.list(format!("proc/{}/fd", log.pid)).ok()?;
    let leads_there = |descriptor: &String| {
        let target = root.link(format!("proc/{}/fd/{descriptor}", log.pid)).ok();
        target.is_some_and(|target| target.to_string_lossy().trim_end_matches(" (deleted)").ends_with(name))
    };
    Some(descriptors.iter().any(leads_there))
}
