//! `hugewise run`: starts a program on huge pages, and says what it really got.

pub mod assignment;
pub mod cache;
pub mod cache_key;
pub mod observer;
pub mod readiness;
pub mod report;
pub mod target;

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use hugewise_linux::{
    hugepages::{backing::Backing, page_sizes::PageSizes, thp},
    root::Root,
    sys::handover,
};
use hugewise_plan::{
    backing_selection::{self, Answers, Choice, Wanted},
    malloc::{Malloc, OffHeap},
};

use self::{assignment::Assignment, cache::Cache, target::Target};

/// Start a program on huge pages, and report once what each region really got
///
/// This process becomes the program: same process id, signals, exit status, input and output. A java
/// launch line gets the right flags for that very JVM; those about large pages that it has already are
/// replaced, also in JAVA_TOOL_OPTIONS and its kin. Any other program is asked through its malloc.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hugewise run -- java -Xmx4g -jar app.jar
  hugewise run --backing hugetlb --strict -- java -Xms4g -Xmx4g -jar app.jar
  hugewise run --off-heap thp -- java -Xmx1g -jar cache.jar        malloc and direct buffers, too
  hugewise run --backing thp -- ./server                           any program, by its malloc
  hugewise run --report report.json -- java -Xmx4g -jar app.jar

The settings of the machine are not changed: 'hugewise plan' says what a line needs.
Exit status: the program's own; 2 where it was not started.")]
pub struct Run {
    /// base, thp, hugetlb[:SIZE], shm[:SIZE]; auto takes pages of a pool if it holds enough of them,
    /// else transparent huge pages, else base pages
    #[arg(short, long, default_value = "auto", value_parser = backing, value_name = "BACKING")]
    backing: Asked,
    /// Memory outside of the heap: what malloc, Unsafe.allocateMemory, direct buffers and native
    /// libraries take
    #[arg(long, value_enum, default_value_t = OffHeapAsked::None, value_name = "PAGES")]
    off_heap: OffHeapAsked,
    /// How --off-heap thp is reached
    #[arg(long, value_enum, default_value_t = MallocAsked::Auto, value_name = "HOW")]
    malloc: MallocAsked,
    /// Rather fail than fall back: start nothing where what was asked for cannot be had
    #[arg(long)]
    strict: bool,
    /// Say nothing, and leave no observer behind
    #[arg(short, long, conflicts_with = "report")]
    quiet: bool,
    /// Write the observer's report as JSON into FILE, and not to standard error
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Report after so many seconds at the latest, also where memory still grows
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    within: u64,
    /// Ask the JVM, even where its answers are known from an earlier start
    #[arg(long)]
    no_cache: bool,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// `auto` is none.
#[derive(Clone, Copy, Debug)]
struct Asked(Option<Backing>);

fn backing(text: &str) -> Result<Asked, String> {
    match text {
        "auto" => Ok(Asked(None)),
        text => text.parse().map(|backing| Asked(Some(backing))).map_err(|error| format!("{error}; or auto")),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OffHeapAsked {
    /// As the program has it
    None,
    /// Transparent huge pages
    Thp,
    /// Pages of the pool, by glibc's malloc
    Hugetlb,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum MallocAsked {
    /// By what works here
    Auto,
    /// glibc's own malloc, with one arena for all threads
    Glibc,
    /// jemalloc in its place, where it is installed
    Jemalloc,
    /// From outside, once the memory is there (CAP_SYS_NICE, Linux 6.1)
    Convert,
}

impl Run {
    fn wanted(&self) -> Wanted {
        Wanted {
            backing: self.backing.0,
            off_heap: match self.off_heap {
                OffHeapAsked::None => None,
                OffHeapAsked::Thp => Some(OffHeap::Thp),
                OffHeapAsked::Hugetlb => Some(OffHeap::Hugetlb),
            },
            malloc: match self.malloc {
                MallocAsked::Auto => Malloc::Auto,
                MallocAsked::Glibc => Malloc::Glibc,
                MallocAsked::Jemalloc => Malloc::Jemalloc,
                MallocAsked::Convert => Malloc::Convert,
            },
            strict: self.strict,
        }
    }

    fn say(&self, text: &str) {
        if !self.quiet {
            // A reader that has gone is no reason not to start.
            let _ = writeln!(io::stderr(), "hugewise: {text}");
        }
    }
}

/// Runs the command; comes back only where the program could not be started.
pub fn run(run: &Run) -> anyhow::Result<ExitCode> {
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
            // It may well start: it says itself what is wrong, with its own exit status.
            run.say(&format!("started as it stands: {error:#}"));
            return hand_over(&target, None);
        }
    };
    let mut ground = target.ground(&root, &sizes, &thp, &wanted);
    let nobody =
        if run.quiet { Some("--quiet leaves nobody behind who would do it") } else { observer::impossible() };
    ground.no_conversion = ground.no_conversion.or(nobody.map(str::to_owned));
    let choice = backing_selection::choose(&wanted, answers.as_ref(), &ground)
        .map_err(anyhow::Error::msg)
        .context("nothing was started")?;
    run.say(&choice.why);
    let aside = target.set_aside(&choice);
    if !aside.is_empty() {
        run.say(&format!("set aside {}", aside.join(", ")));
    }
    if choice.disable_thp {
        handover::disable_thp().context("keeping transparent huge pages away from it")?;
    }
    if !run.quiet {
        let file = run.report.as_deref().map(report_file).transpose()?;
        if let Err(error) = observer::start(&run.assignment(&target, answers.as_ref(), &choice), file) {
            ensure!(run.report.is_none(), "nothing was started: nobody would write the report: {error:#}");
            run.say(&format!("nobody will tell what it got: {error:#}"));
        }
    }
    hand_over(&target, Some(&choice))
}

fn report_file(path: &Path) -> anyhow::Result<File> {
    File::create(path).with_context(|| format!("the report {}", path.display()))
}

fn hand_over(target: &Target, choice: Option<&Choice>) -> anyhow::Result<ExitCode> {
    let (program, words, environment) = target.handover(choice)?;
    let name = program.to_string_lossy().into_owned();
    match handover::exec(&program, &words, &environment) {
        Ok(never) => match never {},
        Err(error) => Err(error).with_context(|| format!("{name} could not be started")),
    }
}

impl Run {
    fn assignment(&self, target: &Target, answers: Option<&Answers>, choice: &Choice) -> Assignment {
        let off_heap = choice.malloc.as_ref().map(|_| match (self.off_heap, choice.backing) {
            (OffHeapAsked::Thp, _) => Backing::Thp,
            (OffHeapAsked::Hugetlb, _) => Backing::Hugetlb(choice.backing.named_size()),
            (OffHeapAsked::None, backing) => backing,
        });
        Assignment {
            program: target.name(),
            backing: choice.backing,
            off_heap,
            max_heap: answers.map(|answers| answers.max_heap),
            convert: choice.convert,
            behind_wrapper: target.line.as_ref().is_none_or(|line| !line.wrapper.is_empty()),
            patience: Duration::from_secs(self.within),
            json: self.report.is_some(),
        }
    }
}

/// What 'hugewise run' leaves behind
#[derive(Args)]
#[command(hide = true)]
pub struct Observe {
    /// What to look at, as JSON
    #[arg(value_parser = assignment)]
    assignment: Assignment,
}

fn assignment(text: &str) -> Result<Assignment, String> {
    serde_json::from_str(text).map_err(|error| format!("'hugewise run' starts observers: {error}"))
}

/// Observes the process on standard input.
pub fn observe(observe: &Observe) -> anyhow::Result<ExitCode> {
    observer::run(&observe.assignment)
}
