//! A recording from start to end.

use std::{
    fs::File,
    io,
    process::{Child, ExitStatus},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use hugewise_changes::journal::{Journal, JournalError};
use hugewise_changes::scratch::Scratch;
use hugewise_linux::{
    interrupt::Interrupt,
    proc::process::Process,
    reading::Reading,
    root::Root,
    settings::Setting,
    sys::{
        pidfd,
        process::{monotonic_ns, process_cpu, set_batch_scheduling, terminate_process},
    },
};

use super::{
    jvm::Jvms,
    model::{End, EndReason, Evidence, FirstTouch, Header, Line, SCHEMA},
    samples,
    sampling_interval::SamplingInterval,
    sources::Sources,
    start::{Assignment, RecordError, Target, begin},
    summary::Summary,
    threads::Threads,
    touch_cost,
    writer::Writer,
};

/// Interval between flushes: a kill loses at most this time.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);
/// Interval between ticks without trace buffers.
const TICK: Duration = Duration::from_millis(250);
/// Most exited threads of a tick; the rest follows with the next.
const MAX_EXITS_PER_TICK: usize = 20_000;
/// Time for a started program to exit by itself after a signal to the recorder: a terminal sends Ctrl-C to
/// both.
const OWN_EXIT_GRACE: Duration = Duration::from_secs(2);
/// Time for it to exit after SIGTERM.
const SIGTERM_GRACE: Duration = Duration::from_secs(10);

/// Result of a recording.
#[derive(Debug)]
pub struct RecordingResult {
    pub summary: Summary,
    /// Exit status of the started program; `None` if none was started, or it still runs.
    pub status: Option<ExitStatus>,
    pub reason: EndReason,
}

/// Records until the process exits, the time limit is reached, or the recorder receives a signal. Settings
/// are changed through `journal`, which the caller closes.
pub fn record(
    root: &Root,
    journal: &mut Result<Journal, JournalError>,
    assignment: &Assignment<'_>,
    interrupt: &Interrupt,
    say: &mut dyn FnMut(&Header),
) -> Result<RecordingResult, RecordError> {
    let file = |source| RecordError::File { file: assignment.output.display().to_string(), source };
    let attached = match assignment.target {
        Target::Process(pid) => Some(Process::read(root, pid)?),
        Target::Command(_) => None,
    };
    let writer = Writer::create(assignment.output).map_err(file)?;
    let mut means = Sources::provide(root, journal.as_mut().map_err(|error| &*error));
    let first_touch = touch_cost::measure(root);
    let began_ns = monotonic_ns();
    let scratch = Scratch::of(journal.as_ref().ok()).ok();
    let begun = begin(root, &mut means, assignment, scratch.as_ref(), interrupt).inspect_err(|_| {
        // The recording would stay empty.
        let _ = writer.remove();
    })?;
    let (pid, child) = (begun.pid, begun.child);
    let mut session = Session {
        root,
        writer,
        means,
        threads: Threads::of(root, pid),
        summary: Summary::default(),
        child,
        status: None,
        main: pid,
        pidfd: match &attached {
            Some(process) => by_descriptor(root, process),
            None => pidfd::open(pid).ok(),
        },
        attached,
        jvms: Jvms::new(assignment.jvm_log),
        journal: journal.as_mut().ok(),
    };
    let header = session.header(began_ns, &assignment.target, first_touch);
    say(&header);
    session.emit(Line::Header(Box::new(header))).map_err(file)?;
    if let Some(log) = begun.log {
        let line = session.jvms.started_with_log(pid, log);
        session.emit(line).map_err(file)?;
    }
    set_batch_scheduling();
    match session.run(assignment, interrupt) {
        Ok(reason) => session.finish(reason),
        Err(error) => {
            session.jvms.end(session.journal.as_deref_mut());
            Err(error)
        }
    }
    .map_err(file)
}

/// A pidfd of the process; `None` before Linux 5.3, or if its PID was reused.
fn by_descriptor(root: &Root, process: &Process) -> Option<File> {
    pidfd::open(process.pid).ok().filter(|_| process.check_running(root).is_ok())
}

struct Session<'a> {
    root: &'a Root,
    writer: Writer,
    means: Sources,
    threads: Threads,
    summary: Summary,
    child: Option<Child>,
    status: Option<ExitStatus>,
    main: u32,
    /// The process if the recorder did not start it.
    attached: Option<Process>,
    /// Its pidfd, or that of the started process.
    pidfd: Option<File>,
    jvms: Jvms,
    journal: Option<&'a mut Journal>,
}

impl Session<'_> {
    fn header(&self, began_ns: u64, target: &Target, first_touch: Reading<FirstTouch>) -> Header {
        let ago = Duration::from_nanos(monotonic_ns().saturating_sub(began_ns));
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(ago);
        let command = match target {
            Target::Command(words) => words.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            Target::Process(_) => self.attached.iter().flat_map(|process| process.command.clone()).collect(),
        };
        Header {
            schema: SCHEMA.to_owned(),
            hugewise: env!("CARGO_PKG_VERSION").to_owned(),
            began_ns,
            began_unix_ns: u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX),
            pid: self.main,
            started: matches!(target, Target::Command(_)),
            command,
            machine: samples::facts(self.root),
            evidence: self.means.evidence.clone(),
            events: self.means.events.clone(),
            first_touch,
        }
    }

    fn emit(&mut self, line: Line) -> io::Result<()> {
        self.summary.add(&line);
        self.writer.write(&line)
    }

    fn emit_all(&mut self, lines: Vec<Line>) -> io::Result<()> {
        lines.into_iter().try_for_each(|line| self.emit(line))
    }

    fn run(&mut self, assignment: &Assignment<'_>, interrupt: &Interrupt) -> io::Result<EndReason> {
        let begin = Instant::now();
        let (mut thread_interval, mut memory) = (SamplingInterval::new(), SamplingInterval::new());
        let mut flush_due = begin;
        let mut end_requested: Option<(Instant, bool)> = None;
        loop {
            let tick = Instant::now();
            self.tick(false)?;
            thread_interval.run_if_due(|| self.sample()).transpose()?;
            memory.run_if_due(|| self.memory()).transpose()?;
            if tick >= flush_due {
                self.writer.flush()?;
                flush_due = tick + FLUSH_INTERVAL;
            }
            if self.has_ended() {
                return Ok(EndReason::ProcessEnded);
            }
            if assignment.limit.is_some_and(|limit| begin.elapsed() >= limit) {
                return Ok(EndReason::TimeOver);
            }
            if interrupt.signal().is_some() {
                let (since, asked) = end_requested.get_or_insert((tick, false));
                if self.child.is_none() || since.elapsed() > OWN_EXIT_GRACE + SIGTERM_GRACE {
                    return Ok(EndReason::Interrupted);
                }
                if !*asked && since.elapsed() > OWN_EXIT_GRACE {
                    // The process is not reaped yet, so its PID cannot have been reused.
                    let _ = terminate_process(self.main, || true);
                    *asked = true;
                }
            }
            self.wait(self.means.tracer.as_ref().map_or(TICK, |tracer| tracer.gap));
        }
    }

    /// Records new kernel events, exited threads and log lines.
    fn tick(&mut self, last: bool) -> io::Result<()> {
        let mut lines = Vec::new();
        if let Some(tracer) = &mut self.means.tracer {
            match tracer.read(last) {
                Ok(read) => lines = read,
                Err(error) => {
                    self.means.tracer = None;
                    lines.push(Line::lost(Evidence::Events, None, error));
                }
            }
        }
        // Threads may exit as fast as they are read.
        for _ in 0..MAX_EXITS_PER_TICK {
            let Some(ends) = &mut self.means.ends else { break };
            match ends.next_exit() {
                Ok(Some(stats)) => lines.extend(self.threads.ended(stats)),
                Ok(None) => break,
                Err(error) => {
                    lines.push(Line::lost(Evidence::Ends, None, format!("taskstats: {error}")));
                    break;
                }
            }
        }
        lines.extend(self.jvms.sample(self.root, self.threads.processes(), self.journal.as_deref()));
        lines.extend(self.jvms.read(last, self.journal.as_deref_mut()));
        self.emit_all(lines)
    }

    /// Switches delay accounting on again if another program switched it off.
    fn keep_accounting(&mut self) -> io::Result<()> {
        let (Some(_), Some(journal)) = (&self.means.delays, self.journal.as_deref_mut()) else {
            return Ok(());
        };
        if Setting::TaskDelayacct.read(self.root).is_ok_and(|now| now == "1") {
            return Ok(());
        }
        let again = match journal.set(Setting::TaskDelayacct, "1") {
            Ok(_) => "and it is on again".to_owned(),
            Err(error) => error.to_string(),
        };
        let reason = format!(
            "another program switched kernel.task_delayacct off, {again}: threads that started in between have no \
             delays"
        );
        self.emit(Line::lost(Evidence::Delays, None, reason))
    }

    fn sample(&mut self) -> io::Result<()> {
        self.keep_accounting()?;
        let lines = self.threads.sample(self.means.delays.as_mut());
        self.emit_all(lines)?;
        let unknown = self.summary.take_unnamed();
        let foreign_threads: Vec<Line> =
            unknown.into_iter().filter_map(|tid| self.threads.foreign_thread(tid)).collect();
        self.emit_all(foreign_threads)?;
        self.emit(Line::Machine(samples::machine(self.root)))
    }

    fn memory(&mut self) -> io::Result<()> {
        let seen = |pid| samples::memory(self.root, pid, self.jvms.heap(pid));
        let lines: Vec<Line> = self.threads.processes().filter_map(seen).map(Line::Memory).collect();
        self.emit_all(lines)
    }

    /// Waits for the next tick, or until the process exits.
    fn wait(&self, time: Duration) {
        match &self.pidfd {
            Some(pidfd) => drop(pidfd::has_ended(pidfd, time)),
            None => thread::sleep(time),
        }
    }

    fn has_ended(&mut self) -> bool {
        let Some(child) = &mut self.child else {
            return match &self.pidfd {
                Some(pidfd) => pidfd::has_ended(pidfd, Duration::ZERO).unwrap_or(true),
                None => {
                    self.attached.as_ref().is_none_or(|process| process.check_running(self.root).is_err())
                }
            };
        };
        match child.try_wait() {
            Ok(status) => {
                self.status = status;
                status.is_some()
            }
            Err(_) => true,
        }
    }

    fn finish(mut self, reason: EndReason) -> io::Result<RecordingResult> {
        self.sample()?;
        // A short recording may otherwise have no sample since the heap was located.
        self.memory()?;
        let lines = self.jvms.end(self.journal.as_deref_mut());
        self.emit_all(lines)?;
        self.tick(true)?;
        if reason == EndReason::Interrupted && self.child.is_some() {
            self.emit(Line::note(format!("the recording ended, and process {} still runs", self.main)))?;
        }
        let lost_events = self.means.tracer.as_ref().and_then(|tracer| tracer.lost());
        let recorder_cpu_ns = u64::try_from(process_cpu().as_nanos()).ok();
        self.emit(Line::End(End { ns: monotonic_ns(), reason, lost_events, recorder_cpu_ns }))?;
        self.writer.finish()?.sync_all()?;
        Ok(RecordingResult { summary: self.summary, status: self.status, reason })
    }
}
