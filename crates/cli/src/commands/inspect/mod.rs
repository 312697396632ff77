//! `hugewise inspect`: the page sizes of a process' memory.

pub mod text;

use std::{
    path::PathBuf,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::bail;
use clap::Args;
use hugewise_evidence::process::{
    self as evidence, Document, Failed, Inspected, MachineState, Options, SharedMemory,
};
use hugewise_linux::{
    cgroup::processes::GroupName,
    hugepages::pool_use,
    interrupt::Interrupt,
    json,
    proc::process::{self, Obstacle, ProcessError},
    reading::Reason,
    root::Root,
    sys::file::patient,
};

use crate::{
    NEGATIVE, machine,
    output::{
        standard_output::{print_again, print_json, print_styled},
        terminal::Terminal,
    },
    process_argument::ProcessArgument,
};

/// List the regions of processes with their page sizes, and the reasons for base pages
///
/// Reads from the kernel and changes nothing in the processes; with --attach, a JVM pauses to answer. While the page
/// tables are read, calls of the process that change its mappings (mmap, munmap, mprotect) wait.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Inspect {
    /// Process IDs; or units (NAME.service), containers (their IDs) or control groups (their paths) of processes
    #[arg(value_name = "PID")]
    processes: Vec<ProcessArgument>,

    /// List every process, one line each
    #[arg(long, conflicts_with_all = ["processes", "cgroup"])]
    all: bool,

    /// List the processes of a control group and its descendants: a directory, or a name as in
    /// /proc/PID/cgroup
    #[arg(long, value_name = "PATH", conflicts_with = "processes")]
    cgroup: Option<PathBuf>,

    /// Show all regions with addresses; with --json, also count partly mapped folios
    #[arg(long)]
    full: bool,

    /// Attach to a JVM to query exact region names; the JVM pauses briefly to answer
    #[arg(long)]
    attach: bool,

    /// Repeat at this interval (default: 2 s) until Ctrl-C or until the processes end
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2", value_parser = seconds)]
    watch: Option<Duration>,

    /// Show the process in DIR, captured by 'hugewise check --capture DIR --pid PID'
    #[arg(long, value_name = "DIR", conflicts_with_all = ["attach", "watch"])]
    root: Option<PathBuf>,

    /// Print JSON (schema hugewise.inspect/2): one object per process
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Examples:
  sudo hugewise inspect 4711             one process: its regions, the largest first
  sudo hugewise inspect 4711 --full      all regions, with addresses
  sudo hugewise inspect --all            every process, one line each
  sudo hugewise inspect db.service       the processes of a unit
  sudo hugewise inspect --cgroup /app    those of a control group
  hugewise inspect 4711 --watch 5        every 5 seconds
  hugewise inspect 4711 --json | jq '.regions[] | select(.reason == \"never_advised\")'

Your own processes need no root. Without CAP_SYS_ADMIN, mTHP and base pages are one column.

Exit status: 0 all named processes could be read; 1 some could not; 2 none could, or usage error.";

fn seconds(text: &str) -> Result<Duration, Reason> {
    let seconds: f64 = text.parse().map_err(|_| Reason::new("expected a number of seconds"))?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if duration >= Duration::from_millis(100) => Ok(duration),
        _ => Reason::err("must be at least 0.1 seconds"),
    }
}

/// Runs the command.
pub fn run(inspect: &Inspect, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    let root = machine::root(inspect.root.as_deref())?;
    if inspect.processes.is_empty() && !inspect.all && inspect.cgroup.is_none() {
        if let Some(seconds) = inspect.watch {
            bail!(
                "no process is named; if {} is a process ID, put --watch after it: hugewise inspect PID --watch",
                seconds.as_secs_f64()
            );
        }
        bail!("name a process, or --all, or --cgroup PATH; 'hugewise inspect --help' has examples");
    }
    let Some(gap) = inspect.watch else {
        let sampled = sample(&root, inspect, terminal)?;
        match inspect.json {
            true => print_json(&sampled.text)?,
            false => print_styled(&sampled.text, terminal)?,
        }
        return Ok(sampled.exit_code());
    };
    let interrupt = machine::install_signal_handlers()?;
    let mut sampled = sample(&root, inspect, terminal)?;
    let code = sampled.exit_code();
    loop {
        let begin = Instant::now();
        match inspect.json {
            true => print_json(&sampled.text)?,
            false => print_again(&sampled.text, terminal)?,
        }
        let have_ended = sampled.reported == 0 && !inspect.all;
        if have_ended || wait(gap.saturating_sub(begin.elapsed()), &interrupt) {
            return Ok(code);
        }
        sampled = sample(&root, inspect, terminal)?;
    }
}

/// Waits for `gap`; true if it was interrupted.
fn wait(gap: Duration, interrupt: &Interrupt) -> bool {
    let end = Instant::now() + gap;
    while interrupt.signal().is_none() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        thread::sleep(left.min(Duration::from_millis(50)));
    }
    true
}

/// The result of one sample.
struct SampleOutput {
    text: String,
    reported: usize,
    failed: usize,
}

impl SampleOutput {
    fn exit_code(&self) -> ExitCode {
        match (self.reported, self.failed) {
            (_, 0) => ExitCode::SUCCESS,
            (0, _) => ExitCode::from(crate::FAILED),
            _ => ExitCode::from(NEGATIVE),
        }
    }
}

fn sample(root: &Root, inspect: &Inspect, terminal: &Terminal) -> anyhow::Result<SampleOutput> {
    let machine = MachineState::read(root)?;
    let group = inspect.cgroup.iter().map(|path| ProcessArgument::Group(GroupName::Path(path.clone())));
    let arguments: Vec<ProcessArgument> = inspect.processes.iter().cloned().chain(group).collect();
    let samples = if inspect.all {
        totals(root, &machine)?
    } else {
        let mut pids = Vec::new();
        for argument in &arguments {
            pids.extend(argument.processes(root)?);
        }
        let options = Options { attach: inspect.attach, full: inspect.full, ..Options::default() };
        let mut shared = SharedMemory::default();
        let sampled = |pid| (pid, evidence::inspect(root, &machine, pid, options, &mut shared));
        pids.into_iter().map(sampled).collect()
    };
    // Processes that were not named on the command line and have no memory or have ended are not failures.
    let is_named = |pid| arguments.contains(&ProcessArgument::Process(pid));
    let (mut found, mut failed): (Vec<Inspected>, Vec<Failed>) = (Vec::new(), Vec::new());
    for (pid, sample) in samples {
        match sample {
            Ok(inspected) => found.push(inspected),
            Err(ProcessError { obstacle, .. }) if !is_named(pid) && has_nothing(obstacle) => {}
            Err(why) => failed.push(Failed::new(pid, why)),
        }
    }
    if inspect.all {
        found.sort_by_key(|inspected| std::cmp::Reverse(inspected.totals.resident_bytes));
    }
    let reported = found.len();
    // With --all, processes of other users are often not readable: they are not failures.
    let counted = if inspect.all { 0 } else { failed.len() };
    let text = match (inspect.json, inspect.all) {
        (true, _) => {
            let lines = found.len() + failed.len() > 1 || inspect.watch.is_some() || inspect.all;
            let found = found.into_iter().map(|reported| Document::Inspected(Box::new(reported)));
            let documents = found.chain(failed.into_iter().map(Document::Failed));
            documents
                .map(|one| if lines { json::line(&one) } else { json::text(&one) })
                .collect::<Result<_, _>>()?
        }
        (false, true) => {
            let users = pool_use::read(root, &machine.pools);
            text::overview(&found, &failed, &users, &machine, terminal)?
        }
        (false, false) => text::text(&found, &failed, &machine, inspect.full, terminal)?,
    };
    Ok(SampleOutput { text, reported, failed: counted })
}

/// The sums of all processes.
fn totals(
    root: &Root,
    machine: &MachineState,
) -> anyhow::Result<Vec<(u32, Result<Inspected, ProcessError>)>> {
    let (pids, root, machine) = (process::all(root)?, root.clone(), machine.clone());
    Ok(patient::each(pids, move |pid| (*pid, evidence::inspect_totals(&root, &machine, *pid))))
}

fn has_nothing(obstacle: Obstacle) -> bool {
    matches!(obstacle, Obstacle::KernelThread | Obstacle::NoProcess | Obstacle::Ended | Obstacle::Zombie)
}
