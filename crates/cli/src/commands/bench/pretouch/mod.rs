//! `hugewise bench pretouch`: how long it takes to make memory present, and will take for more of it.

pub mod plot;
pub mod result;
pub mod text;
pub mod units;

use std::{env, num::NonZeroUsize, path::PathBuf, process::ExitCode, str::FromStr, thread};

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use hugewise_jvm::jdks::{self, Environment};
use hugewise_linux::{
    hugepages::{backing::Backing, page_sizes::PageSizes},
    root::Root,
    units::Bytes,
};
use hugewise_measure::{
    experiment,
    pretouch::{
        By, Case, Way,
        bench::{Design, Place},
        hotspot::Jvm,
        worker,
    },
};

use self::result::{Question, Report};
use super::at_least_one;
use crate::{
    NEGATIVE, machine,
    output::{
        file,
        progress::Bar,
        terminal::{Terminal, print},
    },
};

/// How long it takes to make memory present, and to give it back
///
/// Sizes, backings, threads and chunks, each in processes of its own and in random order; what the kernel
/// really gave is read from it. From the times follows how long other sizes take, as an interval.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sudo hugewise bench pretouch
  sudo hugewise bench pretouch --baselines --jvm --bytes 1GiB,4GiB
  sudo hugewise bench pretouch --jvm --chunk auto,64KiB,4MiB,64MiB --threads 2 --plot chunks.svg
  hugewise bench pretouch --backing base,thp --predict 512GiB,4TiB --predict-threads 1,8,32
  sudo hugewise bench pretouch --bytes 512MiB,1GiB,2GiB --verify

Pools are grown for the time of the experiment and put back at its end, which needs root; without
it, what the pools already hold is used and the rest is left out. Sizes for which memory would have
to be reclaimed or compacted are left out, too.
Exit status: 0; 1 if a backing that was named could not be measured, or --verify measured a time
outside of its interval, or none; 2 it could not be done; 128 and the signal when interrupted.")]
pub struct Arguments {
    /// Sizes, in bytes or like 1GiB; the model needs two at least
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "1GiB,2GiB,4GiB")]
    bytes: Vec<Bytes>,
    /// Backings: base, thp, hugetlb[:SIZE], shm[:SIZE] [default: base,thp,hugetlb]
    #[arg(short, long, value_delimiter = ',', value_name = "LIST")]
    backing: Vec<Backing>,
    /// Numbers of threads [default: 1, and as many as CPUs may be used]
    #[arg(short, long, value_delimiter = ',', value_name = "LIST", value_parser = at_least_one)]
    threads: Vec<usize>,
    /// Chunks that a thread takes at a time; auto is what the engine, or a JVM, takes by itself
    #[arg(short, long, value_delimiter = ',', value_name = "LIST", default_value = "auto")]
    chunk: Vec<Chunk>,
    /// Processes for each size, backing, number of threads and chunk
    #[arg(short, long, default_value_t = 5, value_parser = at_least_one)]
    repetitions: usize,
    /// Measure a plain loop of writes, and one call of the kernel for each thread, too
    #[arg(long)]
    baselines: bool,
    /// Measure HotSpot's AlwaysPreTouch (G1), too: of these java, or of all JDKs that are found
    #[arg(long, value_name = "JAVA", num_args = 0.., value_delimiter = ',')]
    jvm: Option<Vec<PathBuf>>,
    /// Say how long these sizes will take
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    predict: Vec<Bytes>,
    /// With these numbers of threads [default: those that are measured]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = at_least_one, requires = "predict")]
    predict_threads: Vec<usize>,
    /// Measure twice the largest size, too, and say if it takes as long as the others foretell
    #[arg(long)]
    verify: bool,
    /// Draw the times over the chunks: to FILE.svg those of the largest size and most threads, or to a
    /// folder those of each size and number of threads
    #[arg(long, value_name = "PATH")]
    plot: Option<PathBuf>,
    /// Seed of the order in which processes run
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What must stay free beside all of it [default: 512MiB, and of what is available a tenth beside pools]
    #[arg(long, value_name = "SIZE")]
    floor: Option<Bytes>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// What a process of its own is told
#[derive(Args)]
pub struct Worker {
    #[arg(long)]
    bytes: Bytes,
    #[arg(long)]
    backing: Backing,
    #[arg(long)]
    threads: usize,
    #[arg(long)]
    by: Worked,
    #[arg(long)]
    chunk: Option<Bytes>,
}

/// Who works in a process of its own.
#[derive(Clone, Copy, ValueEnum)]
enum Worked {
    Engine,
    Loop,
    Kernel,
}

/// A chunk, or what is taken where none is named.
#[derive(Clone, Copy)]
struct Chunk(Option<Bytes>);

impl FromStr for Chunk {
    type Err = String;

    fn from_str(text: &str) -> Result<Chunk, String> {
        match text {
            "auto" => Ok(Chunk(None)),
            text => match text.parse() {
                Ok(Bytes::ZERO) => Err("a chunk of nothing".to_owned()),
                Ok(chunk) => Ok(Chunk(Some(chunk))),
                Err(error) => Err(format!("{error}; or auto")),
            },
        }
    }
}

/// What stays free beside the largest size, so that the kernel does not begin to reclaim.
const LEAST_FREE: Bytes = Bytes(512 << 20);
/// Where no backing is named.
const USUAL: [Backing; 3] = [Backing::Base, Backing::Thp, Backing::Hugetlb(None)];

/// Runs the worker.
pub fn run_worker(worker: &Worker) -> anyhow::Result<ExitCode> {
    let case = Case { bytes: worker.bytes, backing: worker.backing, threads: worker.threads };
    let by = match worker.by {
        Worked::Engine => By::Engine,
        Worked::Loop => By::Loop,
        Worked::Kernel => By::Kernel,
    };
    let sample = worker::run(&case, &Way { by, chunk: worker.chunk })?;
    print(&(serde_json::to_string(&sample)? + "\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the command.
pub fn run(arguments: &Arguments, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    let design = arguments.design()?;
    let question = Question {
        bytes: arguments.predict.clone(),
        threads: match arguments.predict_threads.as_slice() {
            [] => design.threads.clone(),
            threads => threads.to_vec(),
        },
    };
    if let Some(path) = &arguments.plot {
        ensure!(design.chunks.len() > 1, "--plot draws times over chunks: name several with --chunk");
        if !path.is_dir() {
            file::can_be_written(path).with_context(|| format!("--plot {}", path.display()))?;
        }
    }
    let jvms = arguments.jvms()?;
    let root = Root::live();
    let sizes = PageSizes::read(&root).map_err(anyhow::Error::msg)?;
    let interrupt = machine::watch()?;
    let mut machine = machine::open_machine(&root, "bench pretouch", arguments.floor)?;
    let program = env::current_exe().context("finding this program's own file")?;
    let place = Place {
        program: &program,
        root: &root,
        sizes: &sizes,
        floor: arguments.floor.unwrap_or(LEAST_FREE),
        interrupt: &interrupt,
    };
    let table = design.run(jvms, &place, &mut machine, &mut Bar::new());
    let changes = machine.changes().to_vec();
    machine::close(machine)?;
    let table = match table {
        Ok(table) => table,
        Err(error) => return machine::interrupted(&error, &interrupt).ok_or(error.into()),
    };
    let report = Report::new(table, &question, experiment::describe_machine(&root), &sizes, changes);
    if let Some(path) = &arguments.plot {
        plot::write(&report, path)?;
    }
    if arguments.json {
        print(&(serde_json::to_string_pretty(&report)? + "\n"))?;
    } else {
        print(&text::text(&report, terminal))?;
    }
    let named_is_missing = !arguments.backing.is_empty() && !report.table.left_out.is_empty();
    let unverified = arguments.verify && report.checks.is_empty();
    let negative = named_is_missing || unverified || report.checks.iter().any(|check| !check.inside);
    Ok(if negative { ExitCode::from(NEGATIVE) } else { ExitCode::SUCCESS })
}

impl Arguments {
    fn design(&self) -> anyhow::Result<Design> {
        let sizes = sorted(&self.bytes);
        ensure!(!sizes.contains(&Bytes::ZERO), "--bytes 0: nothing cannot be made present");
        let largest = sizes.last().copied().unwrap_or_default();
        let twice =
            largest.0.checked_mul(2).context("--verify: twice the largest size cannot be addressed")?;
        let mut chunks: Vec<Option<Bytes>> = self.chunk.iter().map(|chunk| chunk.0).collect();
        chunks.sort_unstable();
        chunks.dedup();
        Ok(Design {
            held_out: self.verify.then_some(Bytes(twice)),
            backings: if self.backing.is_empty() { USUAL.to_vec() } else { unique(&self.backing) },
            threads: if self.threads.is_empty() { usual_threads() } else { sorted(&self.threads) },
            chunks,
            baselines: self.baselines,
            repetitions: self.repetitions,
            seed: self.seed,
            sizes,
        })
    }

    /// Those that were named, or all that are found and can be measured.
    fn jvms(&self) -> anyhow::Result<Vec<Jvm>> {
        let Some(named) = &self.jvm else { return Ok(Vec::new()) };
        if !named.is_empty() {
            return named.iter().map(|java| Jvm::ask(java).map_err(anyhow::Error::msg)).collect();
        }
        let found = jdks::find(&Root::live(), &Environment::of_this_process());
        ensure!(!found.is_empty(), "--jvm: no JDK was found in the usual folders; name a java behind it");
        let mut jvms = Vec::new();
        for jdk in found {
            match Jvm::ask(&jdk.java) {
                Ok(jvm) => jvms.push(jvm),
                Err(reason) => eprintln!("hugewise: left out {}: {reason}", jdk.java.display()),
            }
        }
        Ok(jvms)
    }
}

fn sorted<T: Copy + Ord>(values: &[T]) -> Vec<T> {
    let mut values = values.to_vec();
    values.sort_unstable();
    values.dedup();
    values
}

/// In the order in which they were named.
fn unique(values: &[Backing]) -> Vec<Backing> {
    let mut kept = Vec::new();
    values.iter().for_each(|value| {
        if !kept.contains(value) {
            kept.push(*value)
        }
    });
    kept
}

fn usual_threads() -> Vec<usize> {
    sorted(&[1, thread::available_parallelism().map_or(1, NonZeroUsize::get)])
}
