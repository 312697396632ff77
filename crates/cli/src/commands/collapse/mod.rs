//! `hugewise collapse`: puts memory of a running process on huge pages.

pub mod candidates;
pub mod result;
pub mod text;
pub mod words;

use std::{fs::File, process::ExitCode, time::Duration};

use anyhow::{Context, anyhow, bail, ensure};
use clap::Args;
use hugewise_evidence::process::MachineState;
use hugewise_linux::{
    interrupt::Interrupt,
    json,
    proc::{
        limits::{self, Capabilities},
        meminfo,
        process::Process,
    },
    reading::Reading,
    root::Root,
    sys::pidfd::{self, Adviser},
    sys::process::how_to_get_capability,
    units::PageSize,
};
use hugewise_measure::experiment::Progress;
use hugewise_memory::collapse::{
    admission::{self, GroupRoom},
    engine::{CollapseOutcome, CollapseResult, Settings},
    live::{self, CollapseTarget},
};

use self::{
    candidates::{CollapseOptions, ProcessSample},
    result::CollapseReport,
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

/// Put memory of a running process on huge pages, without a restart
///
/// The kernel replaces base pages by huge pages (MADV_COLLAPSE, Linux 6.1), whatever the THP mode. The
/// contents do not change, and the process keeps running. One huge page is collapsed at a time. Memory is
/// reclaimed or compacted only with --allow-reclaim.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Collapse {
    /// Process ID; or the unit (NAME.service), container (its ID) or control group (its path) of the process
    #[arg(value_name = "PID")]
    pid: ProcessArgument,

    #[command(flatten)]
    options: CollapseOptions,

    /// Print JSON (schema hugewise.collapse/2)
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Examples:
  sudo hugewise collapse 4711 --dry-run          the candidates, and the memory that they need
  sudo hugewise collapse 4711 --region heap      the object heap of a JVM
  sudo hugewise collapse 4711 --rate 0.5         everything, at 0.5 GiB/s at most
  sudo hugewise collapse 4711 --json | jq .refused

Collapsing needs CAP_SYS_NICE; reading another user's process needs CAP_SYS_PTRACE.

Exit status: 0 all candidates are on huge pages; 1 some are not, or the collapse was not started;
2 usage error, or collapsing is not possible; 128 + signal number if interrupted.";

/// Runs the command.
pub fn run(collapse: &Collapse, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    let root = Root::live();
    ensure!(pidfd::can_collapse(), "{}", no_collapse(&root));
    let pid = collapse.pid.process(&root)?;
    // The pidfd is opened first: later readings are of this process, or it has ended.
    let pidfd = pidfd::open(pid);
    let process = Process::read(&root, pid).map_err(|error| anyhow!(plain(&error.words)))?;
    let pidfd = pidfd.with_context(|| format!("cannot open process {pid} (pidfd_open)"))?;
    let missing = missing_rights(&root, &process);
    if let Some(missing) = missing.as_ref().filter(|_| !collapse.options.dry_run) {
        bail!("{missing}");
    }
    let machine = MachineState::read(&root)?;
    let size = machine.pmd().context("this kernel does not report the size of transparent huge pages")?;
    let options = &collapse.options;
    let subject = Subject { root: &root, machine: &machine, process: &process, size, options };
    let mut report = subject.before(&pidfd)?;
    report.notes.extend(missing);
    if options.dry_run || report.is_over() {
        return show(&report, true, collapse, terminal);
    }
    if !collapse.json {
        print_styled(&text::before(&report, terminal)?, terminal)?;
    }
    let interrupt = machine::install_signal_handlers()?;
    subject.collapse(&Adviser::of(pidfd), &interrupt, &mut report)?;
    let code = show(&report, false, collapse, terminal)?;
    let signal = machine::signal_number(&interrupt).filter(|_| report.was_interrupted());
    Ok(signal.map_or(code, |signal| ExitCode::from(128 + signal)))
}

fn no_collapse(root: &Root) -> String {
    let kernel = root.read("proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "this kernel ({}) cannot collapse memory: MADV_COLLAPSE needs Linux 6.1 and \
         CONFIG_TRANSPARENT_HUGEPAGE; start the program on huge pages instead: hugewise run",
        kernel.trim()
    )
}

/// The missing capabilities and their purpose; `None` if none is missing.
pub fn missing_rights(root: &Root, process: &Process) -> Option<String> {
    let mut missing = Vec::new();
    let capabilities = limits::read(root).capabilities;
    if capabilities.known().is_some_and(|capabilities| !capabilities.has(Capabilities::SYS_NICE)) {
        missing.push("CAP_SYS_NICE, for process_madvise on another process".to_owned());
    }
    let denied = |name: &str| {
        root.open_patiently(format!("proc/{}/{name}", process.pid)).is_err_and(|error| error.is_denied())
    };
    if denied("smaps") || denied("pagemap") {
        let user = process.uid.known().map_or_else(String::new, |uid| format!(" (uid {uid})"));
        missing.push(format!(
            "CAP_SYS_PTRACE, to read /proc/PID/smaps and /proc/PID/pagemap of process {}, which another \
             user{user} owns or which is not dumpable",
            process.pid
        ));
    }
    (!missing.is_empty()).then(|| format!("missing: {}; {}", missing.join("; "), how_to_get_capability()))
}

fn show(
    report: &CollapseReport,
    whole: bool,
    collapse: &Collapse,
    terminal: &Terminal,
) -> anyhow::Result<ExitCode> {
    if collapse.json {
        print_json(&json::text(report)?)?;
    } else {
        let before = if whole { text::before(report, terminal)? } else { String::new() };
        print_styled(&(before + &text::after(report, terminal)?), terminal)?;
    }
    Ok(if report.is_fine() { ExitCode::SUCCESS } else { ExitCode::from(NEGATIVE) })
}

/// The process to collapse, and the options.
struct Subject<'a> {
    root: &'a Root,
    machine: &'a MachineState,
    process: &'a Process,
    size: PageSize,
    options: &'a CollapseOptions,
}

impl Subject<'_> {
    fn sample(&self) -> anyhow::Result<ProcessSample> {
        candidates::sample(self.root, self.machine, self.process, self.size, self.options)
    }

    /// The report before the collapse. Takes the pidfd and not the `Adviser`, so that it cannot change the
    /// process.
    fn before(&self, pidfd: &File) -> anyhow::Result<CollapseReport> {
        let (seen, size, options) = (self.sample()?, self.size, self.options);
        let (pid, name) = (self.process.pid, plain(&self.process.name));
        ensure!(!pidfd::has_ended(pidfd, Duration::ZERO)?, "{pid} ({name}) ended while its memory was read");
        options.region.ensure_exists(seen.is_jvm, &format!("{pid} ({name})"))?;
        let room = Reading::from(live::room(self.root, self.machine.sizes.base, size));
        let available = meminfo::read(self.root).available;
        let group = GroupRoom::read(self.root, pid);
        let admitted = admission::admit(seen.wanted(), size, &room, &group, options.allow_reclaim);
        Ok(CollapseReport::before(self.process, size, options, seen, room, available, admitted.err()))
    }

    fn collapse(
        &self,
        adviser: &Adviser,
        interrupt: &Interrupt,
        report: &mut CollapseReport,
    ) -> anyhow::Result<()> {
        let target = CollapseTarget {
            root: self.root,
            pid: self.process.pid,
            adviser,
            sizes: &self.machine.sizes,
            interrupt: Some(interrupt),
        };
        let settings = Settings {
            size: self.size,
            rate: self.options.rate.map(|rate| rate * result::GIB),
            allow_reclaim: self.options.allow_reclaim,
        };
        let mut bar = Bar::of(&format!("huge pages of {}", self.size));
        let done: CollapseResult =
            live::collapse_all(&target, &report.seen.candidates, settings, &mut |done, total| {
                bar.run(done, total, "");
            });
        drop(bar);
        let ended = done.outcome == CollapseOutcome::ProcessEnded || adviser.has_ended();
        // A sample during which the process ends is incomplete.
        let after = if ended { None } else { self.sample().ok().filter(|_| !adviser.has_ended()) };
        report.done(done, after, GroupRoom::read(self.root, self.process.pid).limit.as_ref());
        Ok(())
    }
}
