//! The observer: samples the program's memory until it is ready, reports the coverage of each region once,
//! and exits.

use std::{
    io::{self, Write},
    os::fd::AsFd,
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
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
    readiness::Readiness,
    report::{self, RunOutcome, RunReport},
};
use crate::commands::collapse;

/// First sampling interval; the next ones are longer.
const FIRST_SAMPLING_INTERVAL: Duration = Duration::from_millis(100);
/// Longest sampling interval while samples are cheap.
const MAX_SAMPLING_INTERVAL: Duration = Duration::from_secs(1);
/// The sampling interval is at least `MIN_INTERVAL_FACTOR` times the duration of a sample.
const MIN_INTERVAL_FACTOR: u32 = 100;

/// Why no observer can be started; `None` if it can.
pub fn start_obstacle() -> Option<&'static str> {
    handover::adopts_orphans()
        .then_some("the program would be process 1 or a subreaper, and the observer would become its child")
}

/// Starts an observer of this process that is not its child. It writes its report to `file` if there is one.
pub fn start(assignment: &ObserverTask, file: Option<std::fs::File>) -> anyhow::Result<()> {
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
    let process = Process { pid: pid_of_stdin(&root)?, root: &root, assignment };
    let begin = Instant::now();
    let fallbacks = fallbacks(&root);
    let mut readiness = Readiness::default();
    let mut gap = FIRST_SAMPLING_INTERVAL;
    let mut pid = process.pid;
    let outcome = loop {
        if pidfd::has_ended(&stdin, gap)? {
            break RunOutcome::Ended;
        }
        let sample_start = Instant::now();
        if let Some((heaviest, resident)) = process.heaviest() {
            pid = heaviest;
            if readiness.add_sample(begin.elapsed(), resident) {
                break RunOutcome::Ready;
            }
        }
        if begin.elapsed() >= assignment.patience {
            break RunOutcome::StillGrowing;
        }
        gap = (gap * 3 / 2).min(MAX_SAMPLING_INTERVAL).max(sample_start.elapsed() * MIN_INTERVAL_FACTOR);
    };
    let mut report = RunReport::new(assignment, pid, begin.elapsed(), outcome);
    if report.outcome != RunOutcome::Ended {
        // A sample during which the process ends is incomplete.
        if let Err(error) = process.sample(pid, &stdin, &mut report) {
            report.notes.push(format!("the memory of process {pid} could not be read: {error:#}"));
        }
        report.explain(assignment, &root, fallbacks);
    }
    if assignment.json {
        io::stdout().write_all(json::text(&report)?.as_bytes())?;
    } else {
        // One write, because the program writes to the same file.
        io::stderr().write_all(report::text(&report).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The process behind the pidfd on standard input.
fn pid_of_stdin(root: &Root) -> anyhow::Result<u32> {
    let info = root.read("proc/self/fdinfo/0")?;
    let pid = info.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok());
    pid.context("standard input is not a pidfd: only 'hugewise run' starts observers")
}

struct Process<'a> {
    pid: u32,
    root: &'a Root,
    assignment: &'a ObserverTask,
}

impl Process<'_> {
    /// The process with most resident bytes, and their number.
    fn heaviest(&self) -> Option<(u32, Bytes)> {
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
