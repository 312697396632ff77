//! `hugewise run`: starts a program on huge pages, and reports the coverage of its regions.

pub mod assignment;
pub mod cache_key;
mod exit_sample;
pub mod observer;
pub mod readiness;
mod regions;
pub mod report;
mod sampled_process;
mod script;
mod strict;
pub mod target;
mod unit;

use std::{
    ffi::OsString,
    fs::File,
    io,
    path::PathBuf,
    process::{self, ExitCode},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use hugewise_linux::{
    hugepages::{backing::Backing, page_sizes::PageSizes, thp},
    reading::Reason,
    root::Root,
    sys::{
        file::{Output, Readers},
        process::handover,
    },
    systemd::Unit,
};
use hugewise_plan::{
    backing_selection::{self, BackingRequest, BackingSelection, JvmAnswers},
    malloc::{Malloc, OffHeap},
};

use self::{
    assignment::{ObserverTask, ReportPlace},
    target::{Handover, Target},
};
use crate::{cache::Cache, output::standard_error};

/// Start a program on huge pages, and report the coverage of its regions
///
/// The program replaces the hugewise process (exec): same process ID, signals, exit status, input and output.
/// Large-page flags of a java command line are replaced, also in JAVA_TOOL_OPTIONS, JDK_JAVA_OPTIONS and
/// _JAVA_OPTIONS. Other programs get huge pages through their malloc.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hugewise run -- java -Xmx4g -jar app.jar
  hugewise run --backing hugetlb --strict -- java -Xms4g -Xmx4g -jar app.jar
  hugewise run --off-heap thp -- java -Xmx1g -jar cache.jar        also malloc and direct buffers
  hugewise run --backing thp -- ./server                           any program, through its malloc
  hugewise run --exact -- ./job                                    a job of less than a second
  hugewise run --report report.json -- java -Xmx4g -jar app.jar
  sudo hugewise run --unit tomcat10.service                        restart a systemd service on huge pages
  sudo hugewise run --undo --unit tomcat10.service                 restart it as it was

No setting of the machine is changed; 'hugewise plan' counts the pages that a command line needs.
Exit status: the program's own; 2 if it was not started; with --strict 1 in place of 0 if it did not get the pages.
With --unit: 0; 1 if the service did not get the pages; 2 if it did not start.")]
pub struct Run {
    /// Backing: base, thp, hugetlb[:SIZE], shm[:SIZE] or auto. auto uses the first that is available: a pool
    /// with enough pages (JVMs only), transparent huge pages, base pages
    #[arg(short, long, default_value = "auto", value_parser = backing, value_name = "BACKING")]
    backing: BackingOrAuto,
    /// Backing of memory outside of the heap: malloc, Unsafe.allocateMemory, direct buffers, native libraries
    #[arg(long, value_enum, default_value_t = OffHeapArgument::None, value_name = "BACKING")]
    off_heap: OffHeapArgument,
    /// Method for --off-heap thp
    #[arg(long, value_enum, default_value_t = MallocArgument::Auto, value_name = "HOW")]
    malloc: MallocArgument,
    /// Fail instead of falling back: start nothing if the requested backing is not available, and end with status 1 if
    /// the program did not get it. The program is then a child of hugewise
    #[arg(long)]
    strict: bool,
    /// Print nothing, write no report, and collapse nothing
    #[arg(short, long, conflicts_with = "report")]
    quiet: bool,
    /// Write the report as JSON to FILE instead of as text to standard error
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Read the memory at the exit of the program, for which it is traced until then: no debugger can attach, and
    /// a set-user-ID program is refused
    #[arg(long, conflicts_with = "quiet")]
    exact: bool,
    /// Report after this many seconds even if memory still grows
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    within: u64,
    /// Query the JVM even if its answers are cached from an earlier start
    #[arg(long)]
    no_cache: bool,
    /// Restart a systemd service with the variables of the backing, until the machine is started again; auto is thp
    #[arg(long, value_name = "NAME.service", value_parser = unit_name)]
    #[arg(conflicts_with_all = ["command", "off_heap", "malloc", "strict", "exact", "no_cache"])]
    unit: Option<Unit>,
    /// Restart the service as it was
    #[arg(long, requires = "unit", conflicts_with_all = ["backing", "quiet", "report", "within"])]
    undo: bool,
    /// The program and its arguments
    #[arg(last = true, required_unless_present = "unit")]
    command: Vec<OsString>,
}

/// `None` is `auto`. Not named `Option`, which clap would take for an argument that may be missing.
type BackingOrAuto = Option<Backing>;

fn backing(text: &str) -> Result<BackingOrAuto, Reason> {
    match text {
        "auto" => Ok(None),
        text => text.parse().map(Some).map_err(|error| Reason::new(format!("{error}; or auto"))),
    }
}

fn unit_name(text: &str) -> Result<Unit, Reason> {
    Unit::parse(text)
        .ok_or_else(|| Reason::new("expected the name of a systemd service, as in tomcat10.service"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OffHeapArgument {
    /// Unchanged
    None,
    /// Transparent huge pages
    Thp,
    /// Pages of the pool, through glibc's malloc
    Hugetlb,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum MallocArgument {
    /// The first method that works on this machine
    Auto,
    /// glibc's own malloc, with one arena for all threads
    Glibc,
    /// jemalloc in place of the program's malloc, if installed
    Jemalloc,
    /// Collapse the memory once it is resident (needs CAP_SYS_NICE, Linux 6.1)
    #[value(alias = "convert")]
    Collapse,
}

impl Run {
    fn wanted(&self) -> BackingRequest {
        BackingRequest {
            backing: self.backing,
            off_heap: match self.off_heap {
                OffHeapArgument::None => None,
                OffHeapArgument::Thp => Some(OffHeap::Thp),
                OffHeapArgument::Hugetlb => Some(OffHeap::Hugetlb),
            },
            malloc: match self.malloc {
                MallocArgument::Auto => Malloc::Auto,
                MallocArgument::Glibc => Malloc::Glibc,
                MallocArgument::Jemalloc => Malloc::Jemalloc,
                MallocArgument::Collapse => Malloc::Collapse,
            },
            strict: self.strict,
        }
    }

    fn assignment(
        &self,
        target: &Target,
        answers: Option<&JvmAnswers>,
        choice: &BackingSelection,
        place: ReportPlace,
    ) -> ObserverTask {
        let off_heap = choice.malloc.as_ref().map(|_| match (self.off_heap, choice.backing) {
            (OffHeapArgument::Thp, _) => Backing::Thp,
            (OffHeapArgument::Hugetlb, _) => Backing::Hugetlb(choice.backing.named_size()),
            (OffHeapArgument::None, backing) => backing,
        });
        ObserverTask {
            pid: process::id(),
            program: target.name(),
            backing: choice.backing,
            off_heap,
            max_heap: answers.filter(|_| target.line.is_some()).map(|answers| answers.max_heap),
            for_jvms: target.is_for_jvms(),
            passed: target.passed(choice),
            collapse: choice.collapse,
            behind_wrapper: target.line.as_ref().is_none_or(|line| !line.wrapper.is_empty()),
            patience: self.patience(),
            exact: self.exact,
            is_service: false,
            report: place,
        }
    }

    /// Longest time to the report.
    fn patience(&self) -> Duration {
        Duration::from_secs(self.within)
    }

    /// The kind and the file of the report, which has the names of the program and its files.
    fn report_file(&self) -> anyhow::Result<(ReportPlace, Option<File>)> {
        let Some(path) = &self.report else { return Ok((ReportPlace::Text, None)) };
        let create = || {
            let output = Output::at(path, Readers::Owner)?;
            let place = if output.is_file() { ReportPlace::File } else { ReportPlace::Stream };
            Ok((place, Some(output.into_file()?)))
        };
        create().map_err(|error: io::Error| {
            anyhow::Error::new(error).context(format!("cannot create the report {}", path.display()))
        })
    }

    fn say(&self, text: &str) {
        if !self.quiet {
            // The program starts even if standard error is closed.
            standard_error::say(text);
        }
    }
}

/// Runs the command; returns only if a program could not be started, and after the restart of a service.
pub fn run(run: &Run) -> anyhow::Result<ExitCode> {
    if let Some(unit) = &run.unit {
        return unit::run(run, unit);
    }
    let root = Root::live();
    let wanted = run.wanted();
    let target = Target::new(&run.command)?;
    let sizes = PageSizes::read(&root).map_err(anyhow::Error::msg)?;
    if let (Some(backing), Some(missing)) = (wanted.backing, wanted.backing.and_then(|b| sizes.missing(b))) {
        ensure!(backing.named_size().is_none(), "--backing {backing}: {missing}");
    }
    let thp = thp::read(&root);
    let cache = if run.no_cache || target.line.is_none() { None } else { Cache::of_user() };
    let asked = match &target.not_understood {
        Some(error) => Err(anyhow::anyhow!("{error}")),
        None => target.answers(&root, &wanted, &sizes, &thp, cache.as_ref()),
    };
    let answers = match asked {
        Ok(answers) => answers,
        Err(error) if wanted.strict => return Err(error.context("nothing was started (--strict)")),
        Err(error) => {
            // The program may start anyway, or report the error with its own exit status.
            run.say(&format!("the program is started unchanged: {error:#}"));
            return hand_over(&target, None);
        }
    };
    let mut facts = target.facts(&root, &sizes, &thp, &wanted, answers.as_ref());
    let no_observer = if run.quiet {
        Some("--quiet does not start the observer, which collapses the memory")
    } else {
        observer::start_obstacle()
    };
    facts.collapse_obstacle = facts.collapse_obstacle.or(no_observer.map(str::to_owned));
    let choice = backing_selection::choose(&wanted, answers.as_ref(), &facts)
        .map_err(anyhow::Error::msg)
        .context("nothing was started")?;
    run.say(&choice.why);
    if let Some(passed) = target.passed(&choice) {
        let described = target.launcher.as_ref().and_then(|launcher| launcher.describe(&passed.options));
        described.iter().for_each(|described| run.say(described));
    }
    if let Some(warning) = &choice.warning {
        run.say(&format!("warning: {warning}"));
    }
    let aside = target.set_aside(&choice);
    if !aside.is_empty() {
        run.say(&format!("removed {}", aside.join(", ")));
    }
    if choice.disable_thp {
        handover::disable_thp().context("cannot disable transparent huge pages for the program")?;
    }
    ensure!(
        !run.exact || !target.is_privileged(),
        "--exact: {} gains privileges, which tracing prevents",
        target.name()
    );
    if !run.quiet {
        let (place, file) = run.report_file()?;
        let assignment = run.assignment(&target, answers.as_ref(), &choice, place);
        if run.strict && !run.exact {
            return strict::run(target.handover(Some(&choice))?, assignment, file);
        }
        if let Err(error) = observer::start(&assignment, file) {
            let no_report = "nothing was started, because no process can write the report";
            ensure!(run.report.is_none(), "{no_report}: {error:#}");
            run.say(&format!("no report will follow: {error:#}"));
        } else if run.exact {
            run.say(match wait_for_tracer(&root) {
                true => {
                    "--exact: the program is traced until its exit; no debugger can attach in the meantime"
                }
                false => {
                    "--exact: the observer does not trace the program; the report is of the fullest sample"
                }
            });
        }
    }
    hand_over(&target, Some(&choice))
}

/// Longest wait for the observer to trace this process.
const MAX_WAIT_FOR_TRACER: Duration = Duration::from_secs(2);

/// Waits until the observer traces this process, which becomes the program; false if it does not.
fn wait_for_tracer(root: &Root) -> bool {
    let begin = Instant::now();
    let is_traced = || {
        let status = root.read("proc/self/status").unwrap_or_default();
        status.lines().any(|line| line.strip_prefix("TracerPid:").is_some_and(|pid| pid.trim() != "0"))
    };
    while !is_traced() {
        if begin.elapsed() > MAX_WAIT_FOR_TRACER {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}

fn hand_over(target: &Target, choice: Option<&BackingSelection>) -> anyhow::Result<ExitCode> {
    let Handover { program, words, environment } = target.handover(choice)?;
    let failed = || format!("{} could not be started", program.to_string_lossy());
    match handover::exec(&program, &words, &environment).with_context(failed)? {}
}

/// Observer of a program that 'hugewise run' started
#[derive(Args)]
#[command(hide = true)]
pub struct Observe {
    /// The assignment, as JSON
    #[arg(value_parser = assignment)]
    assignment: ObserverTask,
}

fn assignment(text: &str) -> Result<ObserverTask, Reason> {
    let refused = |error| Reason::new(format!("only 'hugewise run' starts observers: {error}"));
    serde_json::from_str(text).map_err(refused)
}

/// Observes the process on standard input.
pub fn observe(observe: &Observe) -> anyhow::Result<ExitCode> {
    observer::run(&observe.assignment)
}
