//! The observer: samples the program's memory from its start to its end, keeps the fullest sample, and reports the
//! coverage of each region when memory is steady, and at the end if it has grown since.

use std::{
    fs::File,
    io::{self, Seek, Write},
    os::fd::AsFd,
    path::Path,
    process::{Child, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use hugewise_linux::{
    json,
    root::Root,
    sys::{
        file, pidfd,
        process::{Program, handover, thread_cpu},
    },
    units::Bytes,
};

use super::{
    assignment::{ObserverTask, ReportPlace, fallbacks},
    exit_sample,
    readiness::{Readiness, grows_fast, is_outgrown, is_sample_due},
    report::{self, RunOutcome, RunReport, Verdict},
    sampled_process::{Kept, Process},
};
use crate::output::standard_error;

/// First reading interval; the next ones are longer.
const FIRST_READING_INTERVAL: Duration = Duration::from_millis(10);
/// Longest reading interval while readings are cheap.
const MAX_READING_INTERVAL: Duration = Duration::from_secs(1);
/// Longest reading interval while memory grows, so that a job of a second is sampled near its peak.
const MAX_INTERVAL_GROWING: Duration = Duration::from_millis(100);
/// Readings and samples take at most 1/`MIN_TIME_FACTOR` of a CPU, plus [`ALLOWANCE`].
const MIN_TIME_FACTOR: u32 = 100;
/// The same before the first report, without which a slow machine would report one early sample.
const MIN_TIME_FACTOR_BEFORE: u32 = 10;
/// CPU time for readings and samples from the start, without which a short job would have none.
const ALLOWANCE: Duration = Duration::from_millis(500);

/// Why no observer can be started; `None` if it can.
pub fn start_obstacle() -> Option<&'static str> {
    handover::adopts_orphans()
        .then_some("the program would be process 1 or a subreaper, and the observer would become its child")
}

/// Starts an observer of this process that is not its child. It writes its report to `file` if there is one.
pub fn start(assignment: &ObserverTask, file: Option<File>) -> anyhow::Result<()> {
    if let Some(reason) = start_obstacle() {
        bail!(reason);
    }
    command(assignment, file)?.start_orphan().context("starting the observer")
}

/// Observes another process until it is reported, and waits for that. Writes the report to `file` if there is one.
pub fn report(assignment: &ObserverTask, file: Option<File>) -> anyhow::Result<Verdict> {
    verdict_of(command_for(assignment, file)?.start_in_foreground().context("starting the observer")?)
}

/// Starts an observer of another process, which a signal from the terminal does not end.
pub fn start_beside(assignment: &ObserverTask, file: Option<File>) -> anyhow::Result<Child> {
    command_for(assignment, file)?.start_survivor().context("starting the observer")
}

/// The verdict of an observer's last report, once it has ended.
pub fn verdict_of(mut observer: Child) -> anyhow::Result<Verdict> {
    let ran = observer.wait().context("waiting for the observer")?;
    let verdict = ran.code().and_then(Verdict::of_status);
    verdict.with_context(|| format!("the observer failed: {ran}"))
}

/// The command of an observer of another process.
fn command_for(assignment: &ObserverTask, file: Option<File>) -> anyhow::Result<Program> {
    let observed = pidfd::open(assignment.pid).context("the program has ended")?;
    let mut command = command(assignment, file)?;
    command.stdin(observed);
    Ok(command)
}

/// The command of an observer.
fn command(assignment: &ObserverTask, file: Option<File>) -> anyhow::Result<Program> {
    let mut command = Program::itself();
    command.without_files().arg("observe").arg(serde_json::to_string(assignment)?);
    command.stdout(file.map_or_else(Stdio::null, Stdio::from));
    Ok(command)
}

/// Observes the process whose pidfd is on standard input.
pub fn run(assignment: &ObserverTask) -> anyhow::Result<ExitCode> {
    let root = Root::live();
    let stdin = io::stdin();
    check_stdin(&root)?;
    let process = Process::new(assignment.pid, &root, assignment);
    let exact = assignment.exact.then(|| exit_sample::start(process.pid, assignment.clone()));
    let mut observation = Observation {
        process,
        begin: Instant::now(),
        fullest: None,
        readings: 0,
        reported: None,
        last_report: None,
    };
    let fallbacks = fallbacks(&root);
    let outcome = observation.watch(&stdin, fallbacks)?;
    let lasted = observation.begin.elapsed();
    let at_exit = exact.map(exit_sample::ExitSample::join);
    let mut note = None;
    match at_exit {
        Some(Ok(sample)) => observation.fullest = Some(Kept { at: lasted, ..sample }),
        Some(Err(reason)) => note = Some(format!("the memory at the exit could not be read: {reason:#}")),
        None => {}
    }
    observation.report_end(outcome, lasted, note, fallbacks)
}

/// The samples of a program.
struct Observation<'a> {
    process: Process<'a>,
    begin: Instant,
    /// The sample with most resident bytes since the last exec.
    fullest: Option<Kept>,
    /// Number of readings of its resident bytes since the last exec.
    readings: u32,
    /// Resident bytes of the last report since the last exec.
    reported: Option<Bytes>,
    /// The verdict of the last report since the last exec.
    last_report: Option<Verdict>,
}

impl Observation<'_> {
    /// Samples until the program ends, and reports whenever its memory is steady and has outgrown the report before.
    fn watch(&mut self, stdin: &io::Stdin, fallbacks: Option<u64>) -> anyhow::Result<RunOutcome> {
        let own = file::link(Path::new("/proc/self/exe")).ok();
        let (mut readiness, mut gap, mut spent) =
            (Readiness::default(), FIRST_READING_INTERVAL, Duration::ZERO);
        let (mut program, mut last) = (None, Bytes::ZERO);
        loop {
            if pidfd::has_ended(stdin, gap)? {
                return Ok(RunOutcome::Ended);
            }
            // A busy machine makes readings longer, but not more expensive.
            let cpu_before = thread_cpu();
            let exe = self.process.root.link(format!("proc/{}/exe", self.process.pid)).ok();
            if exe.is_none() || exe == own {
                continue;
            }
            // Its addresses are random: they also change if a program executes itself.
            let auxv =
                self.process.root.read_bytes(format!("proc/{}/auxv", self.process.pid)).unwrap_or_default();
            if auxv.is_empty() {
                continue;
            }
            if program.as_ref() != Some(&(exe.clone(), auxv.clone())) {
                // Samples and reports before an exec are of another program.
                (program, self.fullest, self.reported) = (Some((exe, auxv)), None, None);
                (self.last_report, self.readings) = (None, 0);
                self.process.forget();
                (readiness, gap) = (Readiness::default(), FIRST_READING_INTERVAL);
            }
            let Some((pid, resident)) = self.process.heaviest() else { continue };
            self.readings += 1;
            let grows = grows_fast(resident, last);
            let sampled = self.fullest.as_ref().map_or(Bytes::ZERO, |kept| kept.resident);
            if is_sample_due(resident, sampled, grows) {
                self.keep(pid, resident);
            }
            last = resident;
            let is_steady = readiness.add_sample(self.begin.elapsed(), resident);
            let is_late = self.begin.elapsed() >= self.process.assignment.patience;
            let is_new = self.reported.is_none_or(|reported| is_outgrown(resident, reported));
            if is_new && (is_steady || (is_late && self.reported.is_none())) {
                let outcome = if is_steady { RunOutcome::Ready } else { RunOutcome::StillGrowing };
                self.report_now(pid, resident, outcome, stdin, fallbacks)?;
                if self.process.assignment.is_service && self.reported.is_some() {
                    return Ok(outcome);
                }
            }
            spent += thread_cpu().saturating_sub(cpu_before);
            let longest = if grows { MAX_INTERVAL_GROWING } else { MAX_READING_INTERVAL };
            let factor = if self.reported.is_none() { MIN_TIME_FACTOR_BEFORE } else { MIN_TIME_FACTOR };
            let debt = (spent.saturating_sub(ALLOWANCE) * factor).saturating_sub(self.begin.elapsed());
            gap = (gap * 3 / 2).min(longest).max(debt);
            if self.reported.is_none() {
                // Expensive readings do not delay the report beyond its time.
                let left = self.process.assignment.patience.saturating_sub(self.begin.elapsed());
                gap = gap.min(left.max(MAX_READING_INTERVAL));
            }
        }
    }

    /// Keeps a sample of the process, unless it ends meanwhile.
    fn keep(&mut self, pid: u32, resident: Bytes) {
        let at = self.begin.elapsed();
        if let Ok(found) = self.process.regions(pid) {
            if pidfd::has_ended(&io::stdin(), Duration::ZERO).is_ok_and(|ended| !ended) {
                self.fullest = Some(Kept { pid, at, resident, found });
            }
        }
    }

    /// Reports the present memory, after collapsing some if the assignment requires it.
    fn report_now(
        &mut self,
        pid: u32,
        resident: Bytes,
        outcome: RunOutcome,
        stdin: &io::Stdin,
        fallbacks: Option<u64>,
    ) -> anyhow::Result<()> {
        let at = self.begin.elapsed();
        let mut report = RunReport::new(self.process.assignment, pid, at, outcome);
        if let Err(error) = self.process.sample(pid, stdin, &mut report) {
            // A sample during which the process ends is incomplete; the report follows at the end.
            if pidfd::has_ended(stdin, Duration::ZERO)? {
                return Ok(());
            }
            report.notes.push(format!("the memory of process {pid} could not be read: {error:#}"));
        }
        if self.fullest.as_ref().is_none_or(|fullest| resident >= fullest.resident) {
            self.fullest = Some(Kept { pid, at, resident, found: report.found.clone() });
        }
        self.reported = Some(resident);
        report.explain(self.process.assignment, self.process.root, fallbacks);
        self.last_report = Some(report.verdict());
        self.print(&report)
    }

    /// Reports the fullest sample once the program has ended, unless it was reported before.
    fn report_end(
        &mut self,
        outcome: RunOutcome,
        lasted: Duration,
        note: Option<String>,
        fallbacks: Option<u64>,
    ) -> anyhow::Result<ExitCode> {
        let assignment = self.process.assignment;
        let fuller = match (&self.fullest, self.reported) {
            (Some(kept), Some(reported)) => assignment.exact || is_outgrown(kept.resident, reported),
            (None, Some(_)) => false,
            (_, None) => true,
        };
        if fuller {
            let (pid, at) =
                self.fullest.as_ref().map_or((self.process.pid, lasted), |kept| (kept.pid, kept.at));
            let mut report = RunReport::new(assignment, pid, at, outcome);
            report.lasted_seconds = Some(lasted.as_secs_f64());
            report.readings = self.readings;
            if let Some(kept) = &self.fullest {
                report.take(&kept.found);
                report.explain(assignment, self.process.root, fallbacks);
            }
            report.notes.extend(note);
            self.last_report = Some(report.verdict());
            self.print(&report)?;
        }
        Ok(ExitCode::from(self.last_report.unwrap_or_default() as u8))
    }

    fn print(&self, report: &RunReport) -> anyhow::Result<()> {
        let place = self.process.assignment.report;
        if place != ReportPlace::Text {
            let mut file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
            if place == ReportPlace::File {
                file.set_len(0)?;
                file.rewind()?;
            }
            file.write_all(json::text(report)?.as_bytes())?;
        } else {
            standard_error::print(&report::text(report));
        }
        Ok(())
    }
}

/// Fails unless standard input is a pidfd.
fn check_stdin(root: &Root) -> anyhow::Result<()> {
    let info = root.read("proc/self/fdinfo/0")?;
    let is_pidfd = info.lines().any(|line| line.starts_with("Pid:"));
    ensure!(is_pidfd, "standard input is not a pidfd: only 'hugewise run' starts observers");
    Ok(())
}
