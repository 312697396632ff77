//! `hugewise bench pretouch`: measured and predicted times of pre-touch.

pub mod plot;
pub mod result;
pub mod text;
pub mod units;

use std::{env, num::NonZeroUsize, path::PathBuf, process::ExitCode, str::FromStr, thread};

use anyhow::{Context, ensure};
use clap::Args;
use hugewise_jvm::jdks::{self, Environment, Jdk};
use hugewise_linux::{
    hugepages::{backing::Backing, page_sizes::PageSizes},
    json,
    reading::Reason,
    root::Root,
    units::Bytes,
};
use hugewise_measure::{
    experiment,
    pretouch::{
        Case, Variant,
        bench::{Design, ExperimentContext},
        hotspot::Jvm,
        worker,
    },
};

use self::result::PretouchReport;
use super::at_least_one;
use crate::{
    NEGATIVE, machine,
    output::{
        file::{self, Readers},
        progress::Bar,
        standard_error,
        standard_output::{print_json, print_styled},
        terminal::Terminal,
    },
};

/// Measure how long it takes to pre-touch memory and to release it
///
/// Each combination of size, backing, number of threads and chunk size is measured in separate processes,
/// in random order; the coverage is read from the kernel. A model of the times predicts those of other
/// sizes, as 95 % intervals.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sudo hugewise bench pretouch
  sudo hugewise bench pretouch --baselines --jvm --bytes 1GiB,4GiB
  sudo hugewise bench pretouch --jvm --chunk auto,64KiB,4MiB,64MiB --threads 2 --plot chunks.svg
  hugewise bench pretouch --backing base,thp --predict 512GiB,4TiB --predict-threads 1,8,32
  sudo hugewise bench pretouch --bytes 512MiB,1GiB,2GiB --verify

As root, pools are enlarged for the experiment and restored at its end. Without root, only free
pages of the pools are used; backings for which they do not suffice are skipped. Sizes for which
the kernel would have to reclaim or compact memory are skipped, too.
Exit status: 0 success; 1 a backing given with --backing could not be measured, or --verify was not
measured or missed its interval; 2 usage or environment error; 128 + signal number if interrupted.")]
pub struct Arguments {
    /// Sizes, in bytes or with a unit such as 1GiB; the model needs at least two
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "1GiB,2GiB,4GiB")]
    bytes: Vec<Bytes>,
    /// Backings: base, thp, hugetlb[:SIZE], shm[:SIZE] [default: base,thp,hugetlb]
    #[arg(short, long, value_delimiter = ',', value_name = "LIST")]
    backing: Vec<Backing>,
    /// Numbers of threads [default: 1, and the number of usable CPUs]
    #[arg(short, long, value_delimiter = ',', value_name = "LIST", value_parser = at_least_one)]
    threads: Vec<usize>,
    /// Chunk sizes, the memory that a thread populates at a time; auto is the default of hugewise or of
    /// the JVM
    #[arg(short, long, value_delimiter = ',', value_name = "LIST", default_value = "auto")]
    chunk: Vec<Chunk>,
    /// Processes for each size, backing, number of threads and chunk size
    #[arg(short, long, default_value_t = 5, value_parser = at_least_one)]
    repetitions: usize,
    /// Also measure a plain loop of writes, and one call of MADV_POPULATE_WRITE per thread
    #[arg(long)]
    baselines: bool,
    /// Also measure HotSpot's AlwaysPreTouch (G1) with these java executables, or with all JDKs found
    #[arg(long, value_name = "JAVA", num_args = 0.., value_delimiter = ',')]
    jvm: Option<Vec<PathBuf>>,
    /// Predict the times of these sizes
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    predict: Vec<Bytes>,
    /// Numbers of threads for --predict [default: the measured ones]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = at_least_one, requires = "predict")]
    predict_threads: Vec<usize>,
    /// Also measure double the largest size, and check that its time is in the predicted interval
    #[arg(long)]
    verify: bool,
    /// Draw time against chunk size: into FILE.svg for the largest size and most threads, or one plot for
    /// each size and number of threads into a folder
    #[arg(long, value_name = "PATH")]
    plot: Option<PathBuf>,
    /// Seed of the random order of the processes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Memory that must stay free [default: 512MiB; when a pool grows, a tenth of the memory available
    /// now, at least 512MiB]
    #[arg(long, value_name = "SIZE")]
    floor: Option<Bytes>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// A chunk size; `None` for the default.
#[derive(Clone, Copy)]
struct Chunk(Option<Bytes>);

impl FromStr for Chunk {
    type Err = Reason;

    fn from_str(text: &str) -> Result<Chunk, Reason> {
        match (text, text.parse()) {
            ("auto", _) => Ok(Chunk(None)),
            (_, Ok(Bytes::ZERO)) => Reason::err("must be at least 1 byte"),
            (_, Ok(chunk)) => Ok(Chunk(Some(chunk))),
            (_, Err(error)) => Reason::err(format!("{error}; or auto")),
        }
    }
}

/// Default of the memory that stays free besides the largest size, so that the kernel does not reclaim.
const MIN_FREE_BYTES: Bytes = Bytes(512 << 20);
/// Backings measured by default.
const DEFAULT_BACKINGS: [Backing; 3] = [Backing::Base, Backing::Thp, Backing::Hugetlb(None)];

/// Does `work`, a [`Case`] and a [`Variant`] as JSON, in this process and prints the result as JSON.
pub fn run_worker(work: &str) -> anyhow::Result<ExitCode> {
    let (case, way): (Case, Variant) = serde_json::from_str(work)?;
    let sample = worker::run(&case, &way).map_err(anyhow::Error::msg)?;
    print_json(&(serde_json::to_string(&sample)? + "\n"))?;
    Ok(ExitCode::SUCCESS)
}

pub fn run(arguments: &Arguments, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    let design = arguments.design()?;
    if let Some(path) = &arguments.plot {
        ensure!(design.chunks.len() > 1, "--plot needs several chunk sizes: give them with --chunk");
        if !path.is_dir() {
            file::can_be_written(path, Readers::All).with_context(|| format!("--plot {}", path.display()))?;
        }
    }
    let jvms = arguments.jvms()?;
    let root = Root::live();
    let sizes = PageSizes::read(&root).map_err(anyhow::Error::msg)?;
    let interrupt = machine::install_signal_handlers()?;
    let mut machine = machine::open_machine(&root, "bench pretouch", arguments.floor)?;
    let program = env::current_exe().context("cannot determine the path of this executable")?;
    let place = ExperimentContext {
        program: &program,
        root: &root,
        sizes: &sizes,
        floor: arguments.floor.unwrap_or(MIN_FREE_BYTES),
        interrupt: &interrupt,
    };
    let table = design.run(jvms, &place, &mut machine, &mut Bar::new());
    let changes = machine.changes().to_vec();
    machine::close(machine)?;
    let table = match table {
        Ok(table) => table,
        Err(error) => return machine::interrupted(&error, &interrupt).ok_or(error.into()),
    };
    let machine = experiment::describe_machine(&root);
    let (bytes, threads) = (&arguments.predict, &arguments.predict_threads);
    let report = PretouchReport::new(table, bytes, threads, machine, sizes.base, changes);
    if let Some(path) = &arguments.plot {
        plot::write(&report, path)?;
    }
    if arguments.json {
        print_json(&json::text(&report)?)?;
    } else {
        print_styled(&text::text(&report, terminal), terminal)?;
    }
    let named_is_missing = !arguments.backing.is_empty() && !report.table.left_out.is_empty();
    let unverified = arguments.verify && report.checks.is_empty();
    let negative = named_is_missing || unverified || report.checks.iter().any(|check| !check.inside);
    Ok(if negative { ExitCode::from(NEGATIVE) } else { ExitCode::SUCCESS })
}

impl Arguments {
    fn design(&self) -> anyhow::Result<Design> {
        let cpus = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let sizes = sorted(&self.bytes);
        ensure!(!sizes.contains(&Bytes::ZERO), "--bytes 0: a size must be at least 1 byte");
        let largest = sizes.last().copied().unwrap_or_default();
        let twice = largest.0.checked_mul(2).context("--verify: twice the largest size exceeds 64 bits")?;
        Ok(Design {
            held_out: self.verify.then_some(Bytes(twice)),
            backings: if self.backing.is_empty() { DEFAULT_BACKINGS.to_vec() } else { unique(&self.backing) },
            threads: if self.threads.is_empty() { sorted(&[1, cpus]) } else { sorted(&self.threads) },
            chunks: sorted(&self.chunk.iter().map(|chunk| chunk.0).collect::<Vec<_>>()),
            baselines: self.baselines,
            repetitions: self.repetitions,
            seed: self.seed,
            sizes,
        })
    }

    /// The JVMs given with `--jvm`, or all JDKs found that can be measured.
    fn jvms(&self) -> anyhow::Result<Vec<Jvm>> {
        let Some(named) = &self.jvm else { return Ok(Vec::new()) };
        if !named.is_empty() {
            return named.iter().map(|java| Jvm::ask(java).map_err(anyhow::Error::msg)).collect();
        }
        let environment = Environment::of_this_process();
        let found = jdks::find(&Root::live(), &environment);
        ensure!(
            !found.is_empty(),
            "--jvm: no JDK was found in the usual folders; give the path of a java executable"
        );
        let ask = |jdk: &Jdk| {
            let skip = |reason: &Reason| {
                standard_error::say(format_args!("skipped {}: {reason}", jdk.java.display()))
            };
            jdk.check_owners(&environment).and_then(|()| Jvm::ask(&jdk.java)).inspect_err(skip).ok()
        };
        Ok(found.iter().filter_map(ask).collect())
    }
}

fn sorted<T: Copy + Ord>(values: &[T]) -> Vec<T> {
    let mut values = values.to_vec();
    values.sort_unstable();
    values.dedup();
    values
}

/// `values` in their order, without duplicates.
fn unique(values: &[Backing]) -> Vec<Backing> {
    let first = |(at, value): (usize, &Backing)| (!values[..at].contains(value)).then_some(*value);
    values.iter().enumerate().filter_map(first).collect()
}
