//! `hugewise compare`: what huge pages buy a workload, measured and proven.

pub mod embedded;
pub mod page;
pub mod parameters;
pub mod plots;
pub mod plotted;
pub mod rows;
#[cfg(test)]
mod samples;
pub mod text;
pub mod words;

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, bail, ensure};
use clap::Args;
use hugewise_jvm::launch::LaunchLine;
use hugewise_linux::{
    hugepages::{backing::Backing, page_sizes::PageSizes},
    root::Root,
    units::Bytes,
};
use hugewise_measure::{
    analysis,
    comparison::{Comparison, Design, Verdict},
    execution::Launch,
    experiment::{Blocks, CaseToRun, Experiment, ExperimentError, Rules},
    fragmentation::Fragmenter,
    machine::Machine,
    workload::{OwnFigures, Workload, metric::Metric},
};

use self::embedded::Java;
use super::bench::at_least_one;
use crate::{
    NEGATIVE, machine,
    output::{
        file,
        progress::Bar,
        terminal::{Terminal, print},
    },
};

/// What huge pages buy a workload: run it on each backing, prove what each run got, compare
///
/// Without a COMMAND the embedded workload runs: random reads of a large buffer, natively and, where
/// a java is found, in a JVM with a heap of 1 GiB. A COMMAND that begins with java gets the right
/// flags for that very JVM; any other program is asked through its C library and the kernel. Each
/// run's coverage is read from the kernel, and a run that did not get its pages is not counted.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sudo hugewise compare
  sudo hugewise compare -- java -Xms4g -Xmx4g -XX:+AlwaysPreTouch -jar app.jar --once
  sudo hugewise compare -b base,thp,hugetlb:1GiB --rounds 10 --html report.html -- java -Xmx8g Main
  sudo hugewise compare -L heap 1g,2g,4g -- java -Xms{heap} -Xmx{heap} Main
  hugewise compare -b base,thp --metric 'ops/s=throughput: ([0-9.]+)' -- ./server-benchmark
  sudo hugewise compare --fragmented -b base,thp -- java -Xms4g -Xmx4g -jar app.jar --once
  hugewise compare --aa                the same backing twice: how much this machine's noise shows

A pool that is too small is grown for the time of the experiment and put back at its end, on Ctrl-C
and on an error too; that needs root. After a SIGKILL, 'hugewise restore' puts it back.
Exit status: 0 compared; 1 a backing fell back, or one that was named was left out; 2 it could not
be done; 128 and the signal when interrupted.")]
pub struct Compare {
    /// Backings: base, thp, hugetlb[:SIZE], shm[:SIZE]; base is always among them
    /// [default: base,thp,hugetlb]
    #[arg(short, long, value_delimiter = ',', value_name = "LIST")]
    backing: Vec<Backing>,
    /// Blocks: each runs every backing once, in random order [default: 5, and more until a
    /// difference of 10 % would be seen, or --max-time is over]
    #[arg(short, long, value_parser = at_least_one)]
    rounds: Option<usize>,
    /// Begin no further block after this many seconds, where --rounds does not say how many
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "120", conflicts_with = "rounds")]
    max_time: Duration,
    /// Runs of each backing before, that are not counted
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    warm_up: usize,
    /// Seed of the order [default: another one each time; the report names it]
    #[arg(long)]
    seed: Option<u64>,
    /// End a run that takes longer, in seconds, and give up
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// A figure of the program's own: the last match of REGEX in its output. More is better where
    /// NAME begins with + or ends in /s. The first metric decides the verdict, else wall time
    #[arg(long, value_name = "NAME=REGEX")]
    metric: Vec<Metric>,
    /// Scores from the JSON result that the COMMAND lets JMH write here (-rf json -rff FILE)
    #[arg(long, value_name = "FILE")]
    jmh: Option<PathBuf>,
    /// Run COMMAND with each value in place of {NAME}; may be given several times
    #[arg(short = 'L', long, num_args = 2, value_names = ["NAME", "V1,V2,…"])]
    parameter_list: Vec<String>,
    /// The least share of huge pages, in percent, with which a run counts
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = clap::value_parser!(u8).range(1..=100))]
    min_coverage: u8,
    /// What must stay available beside a pool [default: a tenth of what is available now]
    #[arg(long, value_name = "SIZE")]
    floor: Option<Bytes>,
    /// Run the first backing against itself, to see how the method behaves on this machine
    #[arg(long)]
    aa: bool,
    /// Fragment memory before each run, so that no huge page can be made of what is free, and leave SIZE
    /// of it to the workload [default: 6GiB, or what is there]. Runs on thp count whatever they get
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true, conflicts_with = "aa")]
    fragmented: Option<Option<Bytes>>,
    /// Size of the embedded workload's buffer
    #[arg(long, value_name = "SIZE", default_value = "1000000000", conflicts_with = "command")]
    bytes: Bytes,
    /// The java of the embedded workload [default: that of PATH]
    #[arg(long, value_name = "PATH", conflicts_with = "command")]
    java: Option<PathBuf>,
    /// Leave the embedded workload's Java half out
    #[arg(long, conflicts_with_all = ["command", "java"])]
    no_java: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Write the result as one self-contained page, too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// The program and its arguments
    #[arg(last = true)]
    command: Vec<String>,
}

/// What is compared where nothing is named.
const USUAL: [Backing; 3] = [Backing::Base, Backing::Thp, Backing::Hugetlb(None)];

/// Runs the command.
pub fn run(compare: &Compare, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    let root = Root::live();
    let sizes = PageSizes::read(&root).map_err(anyhow::Error::msg)?;
    compare.refuse_impossible(&sizes)?;
    let interrupt = machine::watch()?;
    let mut machine = machine::open_machine(&root, &compare.purpose(), compare.floor)?;
    let scratch = machine.scratch().context("making a scratch folder")?;
    let scratch = scratch.path();
    let mut notes = Vec::new();
    let cases = compare.cases(&root, scratch, &mut notes)?;
    let mut design = compare.design();
    let fragmenter = compare.fragmented.map(|asked| compare.fragmenter(asked, &root, &sizes, &machine));
    let fragmenter = fragmenter.transpose()?;
    if let Some(fragmenter) = &fragmenter {
        // Refused before anything is started.
        design.fragmented = Some(fragmenter.plan()?.left);
    }
    let experiment = Experiment {
        root: &root,
        sizes: &sizes,
        cases: &cases,
        design: &design,
        rules: Rules {
            blocks: compare.rounds.map_or(Blocks::UntilPrecise(compare.max_time), Blocks::Exactly),
            timeout: compare.timeout,
            least_coverage: f64::from(compare.min_coverage) / 100.0,
        },
        scratch,
        interrupt: &interrupt,
        fragmenter: fragmenter.as_ref(),
    };
    let comparison = experiment.conduct(&mut machine, &mut Bar::new());
    machine::close(machine)?;
    let mut comparison = match comparison {
        Ok(comparison) => comparison,
        Err(error) => return machine::interrupted(&error, &interrupt).ok_or_else(|| advised(error)),
    };
    comparison.notes.splice(0..0, notes);
    analysis::analyse(&mut comparison);
    compare.show(&comparison, terminal)?;
    Ok(compare.exit_code(&comparison))
}

/// An error with the next step.
fn advised(error: ExperimentError) -> anyhow::Error {
    anyhow::Error::new(error).context("the comparison was broken off, and the machine is as it was")
}

impl Compare {
    /// What can be refused before anything is started.
    fn refuse_impossible(&self, sizes: &PageSizes) -> anyhow::Result<()> {
        for backing in &self.backing {
            // One that has no name but a kind may be missing; one that was named must be there.
            if let (Some(missing), Some(_)) = (sizes.missing(*backing), backing.named_size()) {
                bail!("--backing {backing}: {missing}");
            }
        }
        ensure!(self.bytes > Bytes::ZERO, "--bytes 0: a buffer of nothing cannot be read");
        if self.command.is_empty() {
            for (given, option) in [
                (!self.parameter_list.is_empty(), "--parameter-list"),
                (!self.metric.is_empty(), "--metric"),
                (self.jmh.is_some(), "--jmh"),
            ] {
                ensure!(!given, "{option} needs a COMMAND: hugewise compare {option} … -- COMMAND");
            }
        }
        if let Some(html) = &self.html {
            file::can_be_written(html)
                .with_context(|| format!("the report {} cannot be written", html.display()))?;
        }
        Ok(())
    }

    fn purpose(&self) -> String {
        match self.command.split_first() {
            Some((program, _)) => format!("compare -- {program} …"),
            None => "compare".to_owned(),
        }
    }

    fn design(&self) -> Design {
        let mut arms: Vec<Backing> = Vec::new();
        if self.aa {
            arms = vec![self.backing.first().copied().unwrap_or(Backing::Base); 2];
        } else {
            let wanted = if self.backing.is_empty() { &USUAL[..] } else { &self.backing };
            for backing in [Backing::Base].iter().chain(wanted) {
                if !arms.contains(backing) {
                    arms.push(*backing);
                }
            }
        }
        let now =
            || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| u64::from(now.subsec_nanos()));
        Design {
            arms,
            rounds: self.rounds.unwrap_or(0), // Counted when it is over.
            warm_up: self.warm_up,
            seed: self.seed.unwrap_or_else(now),
            aa: self.aa,
            fragmented: None, // How much is known from the machine.
        }
    }

    fn fragmenter(
        &self,
        asked: Option<Bytes>,
        root: &Root,
        sizes: &PageSizes,
        machine: &Machine,
    ) -> anyhow::Result<Fragmenter> {
        Ok(Fragmenter {
            program: env::current_exe().context("finding this program")?,
            root: root.clone(),
            sizes: sizes.clone(),
            asked,
            share: false,
            environment: machine.mark(Launch::default()),
        })
    }

    fn cases(&self, root: &Root, scratch: &Path, notes: &mut Vec<String>) -> anyhow::Result<Vec<CaseToRun>> {
        if self.command.is_empty() {
            let java = match &self.java {
                _ if self.no_java => Java::LeftOut,
                Some(path) => Java::Named(path.clone()),
                None => Java::Usual,
            };
            return embedded::cases(root, self.bytes, &java, scratch, notes);
        }
        let combinations = parameters::combinations(&self.parameter_list, &self.command)?;
        let case = |parameters: BTreeMap<String, String>| {
            let command = parameters::substitute(&self.command, &parameters);
            Ok(CaseToRun { workload: self.workload(command)?, command: self.command.clone(), parameters })
        };
        combinations.into_iter().map(case).collect()
    }

    fn workload(&self, command: Vec<String>) -> anyhow::Result<Workload> {
        let own = OwnFigures { metrics: self.metric.clone(), jmh: self.jmh.clone() };
        match LaunchLine::parse(&command, &|file| fs::read_to_string(file)) {
            Some(line) => Workload::java(line?, own).map_err(anyhow::Error::msg),
            None => Ok(Workload::other(command, own)),
        }
    }

    fn show(&self, comparison: &Comparison, terminal: &Terminal) -> anyhow::Result<()> {
        if self.json {
            print(&(serde_json::to_string_pretty(comparison)? + "\n"))?;
        } else {
            print(&text::text(comparison, terminal))?;
        }
        if let Some(file) = &self.html {
            let page = page::html(comparison)?;
            file::write(file, &page).with_context(|| {
                format!("writing the report {}; what it would have held is printed above", file.display())
            })?;
            eprintln!("hugewise: wrote {}", file.display());
        }
        Ok(())
    }

    fn exit_code(&self, comparison: &Comparison) -> ExitCode {
        let named = !self.backing.is_empty();
        let negative = comparison.backings.iter().any(|row| match row.verdict {
            Verdict::FellBack => true,
            Verdict::LeftOut => named,
            _ => false,
        });
        if negative { ExitCode::from(NEGATIVE) } else { ExitCode::SUCCESS }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 =
        text.trim_end_matches('s').parse().map_err(|_| "a number of seconds is needed".to_owned())?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|limit| !limit.is_zero())
        .ok_or_else(|| "a positive number of seconds is needed".to_owned())
}
