//! `hugewise bench touch`: random one-byte reads over growing buffers.

pub mod text;

use std::{env, process::ExitCode};

use anyhow::Context;
use clap::Args;
use hugewise_linux::{
    hugepages::{backing::Backing, page_sizes::PageSizes},
    root::Root,
    units::Bytes,
};
use hugewise_measure::{
    touch::{self, Touch},
    touch_bench::{TouchBench, TouchTable},
};

use super::at_least_one;
use crate::{
    NEGATIVE, machine,
    output::{
        progress::Bar,
        terminal::{Terminal, print},
    },
};

/// Random one-byte reads over growing buffers, on every backing this machine can give
///
/// The classic experiment: small buffers live in the caches and the TLB, large ones miss the TLB at
/// nearly every read, and the difference between the backings is what the TLB costs. Each line is
/// measured in processes of its own, and its coverage is read from the kernel.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sudo hugewise bench touch
  hugewise bench touch --backing base,thp --bytes 1000000,1000000000
  sudo hugewise bench touch --json > touch.json     a result file of JMH's format, for its viewers

Pools are grown for the time of the experiment and put back at its end, which needs root; without
it, what the pools already hold is used and the rest is left out.
Exit status: 0; 1 if a backing that was named could not be measured.")]
pub struct Arguments {
    /// Backings: base, thp, hugetlb[:SIZE], shm[:SIZE]; all that this machine has, if none is named
    #[arg(short, long, value_delimiter = ',', value_name = "LIST")]
    backing: Vec<Backing>,
    /// Sizes of the buffer, in bytes or like 1GiB
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "LIST",
        default_value = "1000,10000,1000000,10000000,100000000,1000000000"
    )]
    bytes: Vec<Bytes>,
    /// Processes for each size and backing
    #[arg(short, long, default_value_t = 3, value_parser = at_least_one)]
    forks: usize,
    /// Counted iterations in each process
    #[arg(short, long, default_value_t = 5, value_parser = at_least_one)]
    iterations: usize,
    /// Reads in one iteration
    #[arg(long, default_value_t = 20_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    reads: u64,
    /// Seed of the order in which processes run
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What must stay available beside a pool [default: a tenth of what is available now]
    #[arg(long, value_name = "SIZE")]
    floor: Option<Bytes>,
    /// Print a result in JMH's JSON format
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
    reads: u64,
    #[arg(long)]
    iterations: usize,
    #[arg(long, default_value_t = 1)]
    warm_up: usize,
}

/// The work of one process.
pub fn run_worker(worker: &Worker) -> anyhow::Result<ExitCode> {
    let touched = touch::run(&Touch {
        bytes: worker.bytes,
        backing: worker.backing,
        reads: worker.reads,
        iterations: worker.iterations,
        warm_up: worker.warm_up,
    })?;
    print(&(serde_json::to_string(&touched)? + "\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the command.
pub fn run(arguments: &Arguments, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(!arguments.bytes.contains(&Bytes::ZERO), "--bytes 0: a buffer of nothing cannot be read");
    let root = Root::live();
    let backings = if arguments.backing.is_empty() {
        every_backing(&PageSizes::read(&root).map_err(anyhow::Error::msg)?)
    } else {
        arguments.backing.clone()
    };
    let bench = TouchBench {
        sizes: arguments.bytes.clone(),
        backings,
        forks: arguments.forks,
        iterations: arguments.iterations,
        warm_up: 1,
        reads: arguments.reads,
        seed: arguments.seed,
    };
    let interrupt = machine::watch()?;
    let mut machine = machine::open_machine(&root, "bench touch", arguments.floor)?;
    let program = env::current_exe().context("finding this program's own file")?;
    let table = bench.run(&program, &root, &mut machine, &interrupt, &mut Bar::new());
    machine::close(machine)?;
    let table: TouchTable = match table {
        Ok(table) => table,
        Err(error) => return machine::interrupted(&error, &interrupt).ok_or(error.into()),
    };
    if arguments.json {
        print(&(serde_json::to_string_pretty(&text::jmh(&table))? + "\n"))?;
    } else {
        print(&text::text(&table, terminal))?;
    }
    let all_named_were_measured = arguments.backing.is_empty() || table.left_out.is_empty();
    Ok(if all_named_were_measured { ExitCode::SUCCESS } else { ExitCode::from(NEGATIVE) })
}

/// Everything that memory can be asked for on here.
fn every_backing(sizes: &PageSizes) -> Vec<Backing> {
    let explicit = sizes.hugetlb.iter().map(|size| Backing::Hugetlb(Some(*size)));
    let candidates = [Backing::Base, Backing::Thp].into_iter().chain(explicit).chain([Backing::Shm(None)]);
    candidates.filter(|backing| sizes.missing(*backing).is_none()).collect()
}
