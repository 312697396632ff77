//! `hugewise compare`: runs a workload on each backing and compares the results.

mod arms;
mod cases;
mod effects;
pub mod embedded;
pub mod live;
mod named;
pub mod page;
pub mod parameter_lists;
pub mod plots;
pub mod plotted;
pub mod rows;
#[cfg(test)]
mod samples;
mod server;
pub mod text;
pub mod time_line;
mod unit;
pub mod words;

use std::{
    env,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, bail, ensure};
use clap::Args;
use hugewise_linux::{
    hugepages::page_sizes::PageSizes,
    interrupt::Interrupt,
    json,
    reading::{Reading, Reason},
    root::Root,
    units::Bytes,
};
use hugewise_measure::{
    analysis,
    comparison::{Comparison, Design},
    execution::Launch,
    experiment::{Experiment, Rules},
    fragmentation::Fragmenter,
    machine::available_memory,
    random_read::RandomRead,
    stopping::Blocks,
    turns::MAX_MEMORY_TENTHS,
    verdict::Verdict,
    workload::metric::Metric,
};
use hugewise_plan::malloc::OffHeap;

use self::{live::LiveOptions, named::BackingList, server::ServerArguments, unit::Taken};
use super::bench::at_least_one;
use crate::{
    INCONCLUSIVE, NEGATIVE, machine,
    output::{
        file,
        progress::Bar,
        standard_output::{print_json, print_styled},
        terminal::Terminal,
    },
    random_read,
};

/// Measure how much a workload gains from huge pages: run it on each backing, and compare
///
/// Without a COMMAND the embedded workload runs: random reads of a large buffer in a native program and, if
/// a JDK is found, in a JVM with a heap of 1 GiB. A COMMAND that starts with java gets the large-page flags
/// of that JVM; for any other program, huge pages are requested through glibc's malloc. Coverage, the
/// share of memory on huge pages, is read from the kernel; a run below --min-coverage does not count.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sudo hugewise compare
  sudo hugewise compare -- java -Xms4g -Xmx4g -XX:+AlwaysPreTouch -jar app.jar --once
  sudo hugewise compare -b base,thp,hugetlb:1GiB --rounds 10 --html report.html -- java -Xmx8g Main
  sudo hugewise compare -L heap 1g,2g,4g -- java -Xms{heap} -Xmx{heap} Main
  hugewise compare -b base,thp --metric 'ops/s=throughput: ([0-9.]+)' -- ./server-benchmark
  sudo hugewise compare --off-heap thp -- java -Xmx1g -jar cache.jar --once
  sudo hugewise compare --server 'java -Xmx2g -jar app.jar {port}' --ready {port} --metric 'ops/s=([0-9.]+) req/s' \\
      -- wrk -d 10 http://127.0.0.1:{port}/
  sudo hugewise compare --server 'db=postgres -D data -p {port}' --server 'app=java -jar app.jar {port} {port:db}' \\
      --ready {port} -b db=base,hugetlb -b app=base,thp --metric 'ops/s=([0-9.]+) req/s' \\
      -- wrk -d 10 http://127.0.0.1:{port:app}/
  sudo hugewise compare --fragmented -b base,thp -- java -Xms4g -Xmx4g -jar app.jar --once
  hugewise compare --turns -b base,thp -- ./batch-job
  hugewise compare --aa                compare a backing with itself: the noise of this machine
  sudo hugewise compare --live 4711    a running JVM, without a restart, by its CPU time
  sudo hugewise compare --live 4711 --metric-url http://127.0.0.1:9100/metrics \\
      --metric 'requests/s=prom:http_requests_total'

A pool that is too small is enlarged for the experiment and restored at its end, also after Ctrl-C
and errors; this needs root. After SIGKILL, 'hugewise restore' restores it.
Exit status: 0 each backing that ran is faster or without difference; 1 one is slower or fell back,
or one of --backing or --off-heap was skipped; 2 usage or environment error, or a run failed;
3 a backing is inconclusive, and none of the above; 128 + signal number if interrupted, with the
result so far.")]
pub struct Compare {
    /// Backings: base, thp, hugetlb[:SIZE], shm[:SIZE]; base is always included
    /// [default: base,thp,hugetlb]
    #[arg(short, long, value_name = "[NAME=]LIST")]
    backing: Vec<BackingList>,
    /// Compare memory outside the Java heap (malloc, direct buffers) on thp or hugetlb: each backing of
    /// --backing is then the backing of the heap, and runs without and with this option [default of --backing
    /// with this option: base]
    #[arg(long, value_name = "BACKING", value_parser = str::parse::<OffHeap>, requires = "command",
        conflicts_with_all = ["aa", "fragmented"])]
    off_heap: Option<OffHeap>,
    /// Number of blocks; a block starts every backing once, in random order [default: 5 to 200, until every
    /// backing is faster or slower to within ±4 %, or would show a difference of 3 %, or --max-time is over]
    #[arg(short, long, value_parser = at_least_one)]
    rounds: Option<usize>,
    /// End after this time, with the verdicts that are possible by then (conflicts with --rounds)
    /// [default: 180; for COMMAND the time of 8 blocks if they take longer, at most 600]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, conflicts_with = "rounds")]
    max_time: Option<Duration>,
    /// Runs of each backing at the start that do not count; the embedded workload in turns has none
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    warm_up: usize,
    /// Seed of the random order [default: random; the report contains it]
    #[arg(long)]
    seed: Option<u64>,
    /// Let the runs of a block take turns of 50 to 200 ms, if wall time decides the verdict, and COMMAND
    /// takes 1 s or more, uses or waits for a CPU for 90 % of it, and can run several times at once; else a
    /// note has the reason
    #[arg(long, requires = "command", conflicts_with = "fragmented")]
    turns: bool,
    /// Terminate a run (embedded workload in turns: a start) that takes longer, and end with an error
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Metric from the program's output: the last match of REGEX, or with prom:SELECTOR in place of REGEX the
    /// sum of these series in the format of Prometheus; higher is better if NAME starts with + or ends in /s.
    /// Or a figure of the process: wall, cpu, user, sys, peak_memory, minor_faults, major_faults.
    /// The first metric decides the verdict, unless --jmh is given; without both, wall time does
    #[arg(long, value_name = "NAME=REGEX|FIGURE")]
    metric: Vec<Metric>,
    #[command(flatten)]
    server: Box<ServerArguments>,
    /// Read scores from FILE, to which JMH in COMMAND writes JSON (-rf json -rff FILE)
    #[arg(long, value_name = "FILE")]
    jmh: Option<PathBuf>,
    /// Run COMMAND with each value in place of {NAME}; may be repeated
    #[arg(short = 'L', long, num_args = 2, value_names = ["NAME", "V1,V2,…"])]
    parameter_list: Vec<String>,
    /// Lowest coverage with which a run counts, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = clap::value_parser!(u8).range(1..=100))]
    min_coverage: u8,
    /// Memory that must stay available when a pool grows [default: a tenth of the memory available
    /// now, at least 512MiB]
    #[arg(long, value_name = "SIZE")]
    floor: Option<Bytes>,
    /// Compare the first backing with itself, to measure the noise of this machine
    #[arg(long)]
    aa: bool,
    /// Fragment memory before each run, so that no huge page is free, and leave SIZE of memory to the
    /// workload [default: 6GiB, or all if less is available]. Runs on thp count with any coverage
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true, conflicts_with = "aa")]
    fragmented: Option<Option<Bytes>>,
    /// Buffer size of the embedded workload
    #[arg(long, value_name = "SIZE", default_value = "1000000000", conflicts_with = "command")]
    bytes: Bytes,
    /// java executable for the embedded workload [default: the one in PATH]
    #[arg(long, value_name = "PATH", conflicts_with = "command")]
    java: Option<PathBuf>,
    /// Do not run the Java half of the embedded workload
    #[arg(long, conflicts_with_all = ["command", "java"])]
    no_java: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Also write the result to FILE, as a self-contained HTML page with mode 0600
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Program to run, with its arguments; with --server the driver
    #[arg(last = true)]
    command: Vec<String>,
    #[command(flatten)]
    live: LiveOptions,
}

/// Shortest time limit of an experiment of which a part is used to measure random reads.
const MIN_TIME_WITH_RANDOM_READS: Duration = Duration::from_secs(60);

pub fn run(compare: &Compare, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    if let Some(process) = &compare.live.live {
        file::check_report(compare.html.as_deref())?;
        return live::run(compare, process, terminal);
    }
    let root = Root::live();
    let sizes = PageSizes::read(&root).map_err(anyhow::Error::msg)?;
    compare.check_arguments(&sizes)?;
    let interrupt = machine::install_signal_handlers()?;
    let program = compare.command.first();
    let purpose = program.map_or("compare".to_owned(), |program| format!("compare -- {program} …"));
    let mut machine = machine::open_machine(&root, &purpose, compare.floor)?;
    let scratch = machine.scratch().context("cannot create a temporary folder")?;
    let scratch = scratch.path();
    let mut notes = Vec::new();
    let cases = compare.cases(&root, scratch, &mut notes)?;
    let begin = Instant::now();
    let random_read = compare.random_read(&root, &interrupt, &mut notes);
    if interrupt.signal().is_some() {
        machine::close(machine)?;
        return Ok(machine::without_result(&interrupt));
    }
    let mut design = compare.design();
    design.turns = cases.iter().all(|case| case.workload().turns.is_some());
    if design.turns {
        design.warm_up = 0;
    }
    let mut fragmenter = None;
    if let Some(asked) = compare.fragmented {
        let asked = fragmenter.insert(Fragmenter {
            program: env::current_exe().context("cannot determine the path of this executable")?,
            root: root.clone(),
            sizes: sizes.clone(),
            asked,
            share: false,
            environment: machine.mark(Launch::default()),
        });
        // An error before anything is started.
        design.fragmented = Some(asked.plan()?.left);
    }
    let experiment = Experiment {
        root: &root,
        sizes: &sizes,
        cases: &cases,
        design: &design,
        rules: Rules {
            blocks: compare.blocks(begin.elapsed()),
            timeout: compare.timeout,
            turns: compare.turns,
            least_coverage: f64::from(compare.min_coverage) / 100.0,
        },
        scratch,
        interrupt: &interrupt,
        fragmenter: fragmenter.as_ref(),
    };
    let taken = Taken::take(&cases, &mut machine)?;
    let comparison = experiment.conduct(&mut machine, &mut Bar::new());
    // The settings first, then the services.
    let closed = machine::close(machine);
    taken.release();
    closed?;
    let mut comparison = match comparison {
        Ok(comparison) => comparison,
        Err(error) => {
            return machine::interrupted(&error, &interrupt).ok_or_else(|| {
                anyhow::Error::new(error).context("the comparison failed; all settings are restored")
            });
        }
    };
    comparison.notes.splice(0..0, notes);
    comparison.machine.random_read = random_read;
    analysis::analyse(&mut comparison);
    compare.show(&comparison, terminal)?;
    if interrupt.signal().is_some() {
        return Ok(machine::after_signal(&interrupt));
    }
    Ok(compare.exit_code(&comparison))
}

impl Compare {
    /// Checks the arguments before anything is started.
    fn check_arguments(&self, sizes: &PageSizes) -> anyhow::Result<()> {
        let servers = self.server.names();
        for list in &self.backing {
            list.server.as_ref().map_or(Ok(()), |name| named::check("--backing", name, &servers))?;
        }
        if !self.server.names_of_several().is_empty() {
            for (given, option) in [(self.aa, "--aa"), (self.off_heap.is_some(), "--off-heap")] {
                ensure!(!given, "{option} compares one server: give one --server, without the others");
            }
        }
        for backing in self.backing.iter().flat_map(|list| &list.backings) {
            // A backing given with a size must exist; one without a size is skipped if it does not.
            if let (Some(missing), Some(_)) = (sizes.missing(*backing), backing.named_size()) {
                bail!("--backing {backing}: {missing}");
            }
        }
        ensure!(self.bytes > Bytes::ZERO, "--bytes 0: a buffer must have at least 1 byte");
        if self.command.is_empty() {
            for (given, option) in [
                (!self.parameter_list.is_empty(), "--parameter-list"),
                (!self.metric.is_empty(), "--metric"),
                (self.jmh.is_some(), "--jmh"),
            ] {
                ensure!(!given, "{option} needs a COMMAND: hugewise compare {option} … -- COMMAND");
            }
        }
        file::check_report(self.html.as_deref())
    }

    /// Whether a process for each backing fits into memory, which turns need; if not, a note says so.
    fn arms_fit_at_once(&self, root: &Root, notes: &mut Vec<String>) -> bool {
        let process = if self.no_java { self.bytes } else { self.bytes.max(embedded::JVM_BYTES) };
        let needed = Bytes(process.0.saturating_mul(self.arms().len() as u64));
        let available = match available_memory(root) {
            Reading::Known(available) => available,
            Reading::Unknown { unknown } => {
                notes.push(format!(
                    "each process runs from its start to its end, instead of in turns: the available memory is \
                     unknown: {unknown}"
                ));
                return false;
            }
        };
        let fit = needed.0 <= available.0 / 10 * MAX_MEMORY_TENTHS;
        if !fit {
            notes.push(format!(
                "the processes of all backings need {needed} together, more than {}0 % of the {available} \
                 available: each runs from its start to its end, instead of in turns",
                MAX_MEMORY_TENTHS
            ));
        }
        fit
    }

    fn design(&self) -> Design {
        let now =
            || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| u64::from(now.subsec_nanos()));
        Design {
            arms: self.arms(),
            rounds: self.rounds.unwrap_or(0), // Counted at the end.
            warm_up: self.warm_up,
            seed: self.seed.unwrap_or_else(now),
            aa: self.aa,
            turns: false,     // Set with the cases.
            fragmented: None, // Set after the machine is read.
        }
    }

    /// The number of blocks of the experiment, or their time limit, `elapsed` after its begin.
    fn blocks(&self, elapsed: Duration) -> Blocks {
        let left = || self.max_time.map(|limit| limit.saturating_sub(elapsed));
        self.rounds.map_or_else(|| Blocks::UntilDecided(left()), Blocks::Exactly)
    }

    /// The gain of huge pages for random reads on this machine, for comparison with the gain of a command.
    /// The embedded workload consists of such reads.
    fn random_read(&self, root: &Root, interrupt: &Interrupt, notes: &mut Vec<String>) -> Option<RandomRead> {
        if self.command.is_empty() || self.aa || self.fragmented.is_some() {
            return None;
        }
        if self.max_time.is_some_and(|limit| limit < MIN_TIME_WITH_RANDOM_READS) {
            return random_read::known(root);
        }
        match random_read::known_or_measured(root, interrupt) {
            Reading::Known(read) => Some(read),
            Reading::Unknown { unknown } => {
                notes.push(format!("random reads on this machine were not measured: {unknown}"));
                None
            }
        }
    }

    fn show(&self, comparison: &Comparison, terminal: &Terminal) -> anyhow::Result<()> {
        match self.json {
            true => print_json(&json::text(comparison)?)?,
            false => print_styled(&text::text(comparison, terminal), terminal)?,
        }
        let hint = "; the result is printed above";
        file::write_report(self.html.as_deref(), || page::html(comparison), hint)
    }

    fn exit_code(&self, comparison: &Comparison) -> ExitCode {
        let status = |(verdict, of_off_heap): (Verdict, bool)| match verdict {
            Verdict::Slower | Verdict::FellBack => NEGATIVE,
            Verdict::LeftOut if !self.backing.is_empty() || of_off_heap => NEGATIVE,
            Verdict::Inconclusive => INCONCLUSIVE,
            Verdict::Base | Verdict::Faster | Verdict::NoDifference | Verdict::LeftOut => 0,
        };
        // One negative verdict outweighs inconclusive ones.
        let rows = comparison.backings.iter().map(|row| (row.verdict, row.off_heap_backing.is_some()));
        let effects = comparison.effects.iter().map(|effect| (effect.verdict, false));
        // The effects of several servers decide, not their combinations.
        let statuses: Vec<u8> = match comparison.effects.is_empty() {
            true => rows.map(status).collect(),
            false => effects.map(status).collect(),
        };
        let status = [NEGATIVE, INCONCLUSIVE].into_iter().find(|status| statuses.contains(status));
        status.map_or(ExitCode::SUCCESS, ExitCode::from)
    }
}

fn seconds(text: &str) -> Result<Duration, Reason> {
    let Ok(seconds) = text.trim_end_matches('s').parse() else {
        return Reason::err("must be a number of seconds");
    };
    let limit = Duration::try_from_secs_f64(seconds).ok().filter(|limit| !limit.is_zero());
    limit.ok_or_else(|| Reason::new("must be a positive number of seconds"))
}
