//! `hugewise split`: takes memory of a running process off huge pages.

pub mod candidates;
pub mod result;
pub mod text;

use std::{fs::File, process::ExitCode, time::Duration};

use anyhow::{Context, anyhow, bail, ensure};
use clap::Args;
use hugewise_evidence::process::MachineState;
use hugewise_linux::{
    hugepages::thp,
    interrupt::Interrupt,
    json,
    proc::process::Process,
    root::Root,
    sys::pidfd::{self, Adviser},
    units::{Bytes, PageSize, Pages},
};
use hugewise_measure::experiment::Progress;
use hugewise_memory::{
    collapse::{
        candidates::Candidate,
        engine::{CollapseOutcome, CollapseResult},
        live::{self, CollapseTarget},
    },
    split::{self as splitting, MAX_PASSES},
};

use self::{candidates::SplitSample, result::SplitReport};
use super::collapse::{
    candidates::{RegionSelection, rate},
    missing_rights,
    result::GIB,
};
use crate::{
    NEGATIVE, machine,
    output::{
        progress::Bar,
        standard_output::{print_json, print_styled},
        terminal::{Terminal, plain},
    },
    process_argument::ProcessArgument,
};

/// Take memory of a running process off huge pages, without a restart
///
/// The inverse of collapse: the kernel splits huge pages into base pages (MADV_COLD on a part of each, Linux
/// 5.10). The contents do not change, and the process keeps running. Base pages of anonymous memory that contain
/// only zeros are given back (Linux 6.12).
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Split {
    /// Process ID; or the unit (NAME.service), container (its ID) or control group (its path) of the process
    #[arg(value_name = "PID")]
    pid: ProcessArgument,

    #[command(flatten)]
    options: SplitOptions,

    /// Print JSON (schema hugewise.split/2)
    #[arg(long)]
    json: bool,
}

/// Options that select the huge pages, and limit the work.
#[derive(Args, Debug)]
pub struct SplitOptions {
    /// Regions to split
    #[arg(long, value_enum, default_value_t = RegionSelection::All, value_name = "REGION")]
    pub region: RegionSelection,

    /// Split at most this much per second; unlimited by default
    #[arg(long, value_name = "GiB/s", value_parser = rate)]
    pub rate: Option<f64>,

    /// Report the huge pages and the zero-filled memory in them, without splitting
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}

const AFTER_HELP: &str = "\
Examples:
  sudo hugewise split 4711 --dry-run          the huge pages, and the zero-filled memory in them
  sudo hugewise split 4711 --region heap      the object heap of a JVM
  sudo hugewise split 4711 --rate 0.5         everything, at 0.5 GiB/s at most
  sudo hugewise split 4711 --json | jq .given_back_bytes
  sudo hugewise collapse 4711                 the way back

Splitting needs CAP_SYS_NICE; reading another user's process needs CAP_SYS_PTRACE.

Exit status: 0 no huge page that can be split is left; 1 some are left; 2 usage error, or splitting is not
possible; 128 + signal number if interrupted.";

/// Runs the command.
pub fn run(split: &Split, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    let root = Root::live();
    let pid = split.pid.process(&root)?;
    // The pidfd is opened first: later readings are of this process, or it has ended.
    let pidfd = pidfd::open(pid);
    let process = Process::read(&root, pid).map_err(|error| anyhow!(plain(&error.words)))?;
    let pidfd = pidfd.with_context(|| format!("cannot open process {pid} (pidfd_open)"))?;
    let missing = missing_rights(&root, &process);
    if let Some(missing) = missing.as_ref().filter(|_| !split.options.dry_run) {
        bail!("{missing}");
    }
    let refused = splitting::judge(pidfd::may_split(&pidfd)).err();
    if let Some(refused) = refused.as_ref().filter(|_| !split.options.dry_run) {
        bail!("cannot split huge pages of process {pid}: {refused}");
    }
    let machine = MachineState::read(&root)?;
    let size = machine.pmd().context("this kernel does not report the size of transparent huge pages")?;
    let options = &split.options;
    let subject = Subject { root: &root, machine: &machine, process: &process, size, options };
    let mut report = subject.before(&pidfd)?;
    report.notes.extend(missing.into_iter().chain(refused.map(|refused| refused.to_string())));
    if options.dry_run || report.is_over() {
        return show(&report, true, split, terminal);
    }
    if !split.json {
        print_styled(&text::before(&report, terminal)?, terminal)?;
    }
    let interrupt = machine::install_signal_handlers()?;
    subject.split(&Adviser::of(pidfd), &interrupt, &mut report);
    let code = show(&report, false, split, terminal)?;
    let signal = machine::signal_number(&interrupt).filter(|_| report.was_interrupted());
    Ok(signal.map_or(code, |signal| ExitCode::from(128 + signal)))
}

fn show(report: &SplitReport, whole: bool, split: &Split, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    if split.json {
        print_json(&json::text(report)?)?;
    } else {
        let before = if whole { text::before(report, terminal)? } else { String::new() };
        print_styled(&(before + &text::after(report, terminal)?), terminal)?;
    }
    Ok(if report.is_fine() { ExitCode::SUCCESS } else { ExitCode::from(NEGATIVE) })
}

/// The process to split, and the options.
struct Subject<'a> {
    root: &'a Root,
    machine: &'a MachineState,
    process: &'a Process,
    size: PageSize,
    options: &'a SplitOptions,
}

impl Subject<'_> {
    fn sample(&self) -> anyhow::Result<SplitSample> {
        candidates::sample(self.root, self.machine, self.process, self.size, self.options.region)
    }

    /// The report before the split. Takes the pidfd and not the `Adviser`, so that it cannot change the process.
    fn before(&self, pidfd: &File) -> anyhow::Result<SplitReport> {
        let seen = self.sample()?;
        let (pid, name) = (self.process.pid, plain(&self.process.name));
        ensure!(!pidfd::has_ended(pidfd, Duration::ZERO)?, "{pid} ({name}) ended while its memory was read");
        self.options.region.ensure_exists(seen.is_jvm, &format!("{pid} ({name})"))?;
        // Before Linux 6.7 the page table does not show which ranges are on huge pages.
        let thp = seen
            .regions
            .values()
            .any(|region| region.huge > region.left_out.values().copied().sum::<Bytes>());
        ensure!(
            !thp || !seen.pages().is_empty() || seen.can_locate(self.size),
            "the huge pages of {pid} ({name}) cannot be located: this needs Linux 6.7 (PAGEMAP_SCAN)"
        );
        let zeros = self
            .options
            .dry_run
            .then(|| candidates::estimate_zeros(self.root, pid, &seen.anonymous, self.machine.sizes.base));
        Ok(SplitReport::before(self.process, self.size, self.options, seen, zeros, self.khugepaged_works()))
    }

    /// Whether khugepaged collapses memory regardless of the program's advice.
    fn khugepaged_works(&self) -> bool {
        thp::read(self.root).pmd_enabled().is_some_and(|(mode, _)| mode == "always")
    }

    fn split(&self, adviser: &Adviser, interrupt: &Interrupt, report: &mut SplitReport) {
        let target = CollapseTarget {
            root: self.root,
            pid: self.process.pid,
            adviser,
            sizes: &self.machine.sizes,
            interrupt: Some(interrupt),
        };
        let mut bar = Bar::of(&format!("huge pages of {}", self.size));
        let rate = self.options.rate.map(|rate| rate * GIB);
        let mut pass = |pages: &[Candidate]| {
            live::split_all(&target, pages, self.size, rate, &mut |done, total| bar.run(done, total, ""))
        };
        let mut done = pass(&report.seen.pages());
        let mut after = self.sample_after(&done, adviser);
        for _ in 1..MAX_PASSES {
            let Some(seen) = after.as_ref().filter(|_| done.outcome == CollapseOutcome::Finished) else {
                break;
            };
            let skipped = report.skipped(seen, &done);
            if skipped.is_empty() {
                break;
            }
            done.add_pass(Pages(skipped.len() as u64), pass(&skipped));
            after = self.sample_after(&done, adviser);
        }
        drop(bar);
        report.done(&done, after.as_ref());
    }

    /// `None` if the process ended: a sample during which it ends is incomplete.
    fn sample_after(&self, done: &CollapseResult, adviser: &Adviser) -> Option<SplitSample> {
        let has_ended = || done.outcome == CollapseOutcome::ProcessEnded || adviser.has_ended();
        if has_ended() { None } else { self.sample().ok().filter(|_| !has_ended()) }
    }
}
