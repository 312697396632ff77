//! The observer: samples the program's memory from its start to its end, keeps the fullest sample, and reports the
//! coverage of each region when memory is steady, and at the end if it has grown since.

use std::{
    fs::{self, File},
    io::{self, Seek, Write},
    os::fd::AsFd,
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use hugewise_evidence::process::{MachineState, Options, Survey, survey};
use hugewise_linux::{
    hugepages::page_sizes::PageSizes,
    json,
    pages::occupancy::Occupancy,
    proc::{
        process,
        smaps::{self, Vma},
        tree,
    },
    reading::Reading,
    root::Root,
    sys::{
        handover,
        pidfd::{self, Adviser},
    },
    units::{Bytes, PageSize},
};
use hugewise_memory::collapse::{
    candidates,
    engine::{CollapseResult, Settings},
    live::{self, CollapseTarget},
    refusals::Refusal,
    suitable,
};

use super::{
    assignment::{ObserverTask, fallbacks},
    exit_sample,
    readiness::{Readiness, grows_fast, is_outgrown, is_sample_due},
    report::{self, RunOutcome, RunRegion, RunReport},
};
use crate::commands::collapse;

/// First reading interval; the next ones are longer.
const FIRST_READING_INTERVAL: Duration = Duration::from_millis(10);
/// Longest reading interval while readings are cheap.
const MAX_READING_INTERVAL: Duration = Duration::from_secs(1);
/// Longest reading interval while memory grows, so that a job of a second is sampled near its peak.
const MAX_INTERVAL_GROWING: Duration = Duration::from_millis(100);
/// Readings and samples take at most 1/`MIN_TIME_FACTOR` of the time, plus [`ALLOWANCE`].
const MIN_TIME_FACTOR: u32 = 100;
/// Time for readings and samples from the start, without which a short job would have none.
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
    let mut command = Command::new("/proc/self/exe");
    command.arg("observe").arg(serde_json::to_string(assignment)?);
    command.stdout(file.map_or_else(Stdio::null, Stdio::from));
    handover::spawn_orphan(&mut command).context("starting the observer")
}

/// Observes the process whose pidfd is on standard input.
pub fn run(assignment: &ObserverTask) -> anyhow::Result<ExitCode> {
    handover::close_inherited(3);
    let root = Root::live();
    let stdin = io::stdin();
    check_stdin(&root)?;
    let process = Process { pid: assignment.pid, root: &root, assignment };
    let exact = assignment.exact.then(|| exit_sample::start(process.pid, assignment.clone()));
    let mut observation = Observation { process, begin: Instant::now(), fullest: None, reported: None };
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

/// A sample of a program, and its time.
pub struct Kept {
    /// The process with most resident bytes.
    pub pid: u32,
    /// Since the start.
    pub at: Duration,
    pub resident: Bytes,
    pub regions: Vec<RunRegion>,
}

/// The samples of a program.
struct Observation<'a> {
    process: Process<'a>,
    begin: Instant,
    /// The sample with most resident bytes since the last exec.
    fullest: Option<Kept>,
    /// Resident bytes of the last report.
    reported: Option<Bytes>,
}

impl Observation<'_> {
    /// Samples until the program ends, and reports whenever its memory is steady and has outgrown the report before.
    fn watch(&mut self, stdin: &io::Stdin, fallbacks: Option<u64>) -> anyhow::Result<RunOutcome> {
        let own = fs::read_link("/proc/self/exe").ok();
        let (mut readiness, mut gap, mut spent) =
            (Readiness::default(), FIRST_READING_INTERVAL, Duration::ZERO);
        let (mut program, mut last) = (None, Bytes::ZERO);
        loop {
            if pidfd::has_ended(stdin, gap)? {
                return Ok(RunOutcome::Ended);
            }
            let reading = Instant::now();
            let exe = fs::read_link(format!("/proc/{}/exe", self.process.pid)).ok();
            if exe.is_none() || exe == own {
                continue;
            }
            if program != exe {
                // Samples before an exec are of another program.
                (program, self.fullest, readiness, gap) =
                    (exe, None, Readiness::default(), FIRST_READING_INTERVAL);
            }
            let Some((pid, resident)) = self.process.heaviest() else { continue };
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
            }
            spent += reading.elapsed();
            let longest = if grows { MAX_INTERVAL_GROWING } else { MAX_READING_INTERVAL };
            let debt =
                (spent.saturating_sub(ALLOWANCE) * MIN_TIME_FACTOR).saturating_sub(self.begin.elapsed());
            gap = (gap * 3 / 2).min(longest).max(debt);
        }
    }

    /// Keeps a sample of the process, unless it ends meanwhile.
    fn keep(&mut self, pid: u32, resident: Bytes) {
        let at = self.begin.elapsed();
        if let Ok(regions) = self.process.regions(pid) {
            if pidfd::has_ended(&io::stdin(), Duration::ZERO).is_ok_and(|ended| !ended) {
                self.fullest = Some(Kept { pid, at, resident, regions });
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
        self.fullest = Some(Kept { pid, at, resident, regions: report.regions.clone() });
        self.reported = Some(resident);
        report.explain(self.process.assignment, self.process.root, fallbacks);
        self.print(&report)
    }

    /// Reports the fullest sample once the program has ended, unless it was reported before.
    fn report_end(
        &self,
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
            if let Some(kept) = &self.fullest {
                report.regions = kept.regions.clone();
                report.explain(assignment, self.process.root, fallbacks);
            }
            report.notes.extend(note);
            self.print(&report)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn print(&self, report: &RunReport) -> anyhow::Result<()> {
        if self.process.assignment.json {
            // A later report replaces an earlier one.
            let mut file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
            if file.metadata()?.is_file() {
                file.set_len(0)?;
                file.rewind()?;
            }
            file.write_all(json::text(report)?.as_bytes())?;
        } else {
            // One write, because the program writes to the same file.
            io::stderr().write_all(report::text(report).as_bytes())?;
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

pub(super) struct Process<'a> {
    pub(super) pid: u32,
    pub(super) root: &'a Root,
    pub(super) assignment: &'a ObserverTask,
}

impl Process<'_> {
    /// The process with most resident bytes, and their number.
    pub(super) fn heaviest(&self) -> Option<(u32, Bytes)> {
        let tree = match self.assignment.behind_wrapper {
            true => tree::processes(self.root, self.pid),
            false => vec![self.pid],
        };
        let resident = |pid: u32| {
            let text = self.root.read(format!("proc/{pid}/smaps_rollup")).ok()?;
            let all = smaps::parse(&text).ok()?;
            Some((pid, all.iter().map(|vma| vma.rss + vma.hugetlb).sum()))
        };
        tree.into_iter().filter_map(resident).max_by_key(|(_, resident): &(u32, Bytes)| *resident)
    }

    /// Samples the regions, after collapsing memory if the assignment requires it.
    fn sample(&self, pid: u32, pidfd: &impl AsFd, report: &mut RunReport) -> anyhow::Result<()> {
        let machine = MachineState::read(self.root)?;
        let mut sampled = self.read(&machine, pid)?;
        // With a wrapper the pidfd may refer to another process.
        if let (true, Some(size), true) = (self.assignment.collapse, machine.pmd(), pid == self.pid) {
            let before = huge(&sampled.vmas);
            match self.collapse_outside_heap(&sampled, &machine.sizes, size, pidfd) {
                Ok(done) => {
                    report.collapse_seconds = done.lasted.as_secs_f64();
                    report.notes.extend(not_collapsed(&done, size));
                }
                Err(error) => report.notes.push(format!("cannot collapse off-heap memory: {error:#}")),
            }
            sampled = self.read(&machine, pid)?;
            report.collapsed_bytes = huge(&sampled.vmas).saturating_sub(before);
        }
        report.regions = report::regions(&sampled.survey, &machine, self.assignment);
        Ok(())
    }

    /// The regions of a process now.
    pub(super) fn regions(&self, pid: u32) -> anyhow::Result<Vec<RunRegion>> {
        let machine = MachineState::read(self.root)?;
        Ok(report::regions(&self.read(&machine, pid)?.survey, &machine, self.assignment))
    }

    fn read(&self, machine: &MachineState, pid: u32) -> anyhow::Result<MemorySample> {
        let process = process::Process::read(self.root, pid)?;
        let vmas = smaps::read(self.root, &pid.to_string())?;
        let folios = Reading::unknown("not needed here");
        let options = Options { max_heap: self.assignment.max_heap, ..Options::default() };
        let survey = survey(self.root, machine, &process, &vmas, &folios, options);
        Ok(MemorySample { process, vmas, survey })
    }

    /// Collapses dense memory outside of the heap, without reclaim or compaction.
    fn collapse_outside_heap(
        &self,
        sampled: &MemorySample,
        sizes: &PageSizes,
        size: PageSize,
        pidfd: &impl AsFd,
    ) -> anyhow::Result<CollapseResult> {
        let circumstances = collapse::candidates::circumstances(self.root, &sampled.process, size);
        let occupancy = Occupancy::open(self.root, self.pid, sizes.base, size)?;
        let mut all = Vec::new();
        let outside =
            sampled.survey.parts.iter().map(|(part, _)| part).filter(|part| report::is_outside_heap(part));
        for part in outside {
            for vma in sampled.vmas.iter().filter(|vma| part.addresses.contains(&vma.addresses.start)) {
                if suitable::unsuitable(vma, &circumstances).is_none() {
                    let slots = occupancy.slots(&vma.addresses)?;
                    all.extend(candidates::choose(&slots, size, candidates::MIN_RESIDENT_PERCENT).candidates);
                }
            }
        }
        let adviser = Adviser::of(pidfd.as_fd().try_clone_to_owned()?.into());
        let target =
            CollapseTarget { root: self.root, pid: self.pid, adviser: &adviser, sizes, interrupt: None };
        let settings = Settings { size, rate: None, allow_reclaim: false };
        Ok(live::collapse_all(&target, &all, settings, &mut |_, _| {}))
    }
}

/// One sample of a process.
struct MemorySample {
    process: process::Process,
    vmas: Vec<Vma>,
    survey: Survey,
}

fn huge(vmas: &[Vma]) -> Bytes {
    vmas.iter().map(|vma| vma.thp).sum()
}

/// Amount that was not collapsed, with the reason; `None` if all memory was collapsed.
fn not_collapsed(done: &CollapseResult, size: PageSize) -> Option<String> {
    let left: Bytes = done.refusals.iter().map(Refusal::bytes).sum();
    let first = done.refusals.first()?;
    let reason = collapse::result::cause(done.outcome).unwrap_or_else(|| first.reason.words());
    let tried = done.collapsed * size + left;
    Some(format!("{left} of {tried} outside of the heap were not collapsed: {reason}"))
}
