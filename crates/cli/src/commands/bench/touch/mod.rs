//! `hugewise bench touch`: random one-byte reads of buffers of growing size.

pub mod text;

use std::{env, io, process::ExitCode};

use anyhow::Context;
use clap::Args;
use hugewise_linux::{
    hugepages::{backing::Backing, page_sizes::PageSizes},
    json,
    root::Root,
    units::Bytes,
};
use hugewise_measure::{
    touch::{self, Touch},
    touch_bench::TouchBench,
};

use super::at_least_one;
use crate::{
    NEGATIVE, machine,
    output::{
        progress::Bar,
        standard_output::{print_json, print_styled},
        terminal::Terminal,
    },
};

/// Measure random one-byte reads of buffers of growing size, on each backing
///
/// Small buffers fit into the caches and the TLB; in large ones nearly every read on base pages misses
/// the TLB. The difference between the backings is the cost of these misses. Each size and backing is
/// measured in separate processes; the coverage is read from the kernel.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sudo hugewise bench touch
  hugewise bench touch --backing base,thp --bytes 1000000,1000000000
  sudo hugewise bench touch --json > touch.json     write JMH's JSON format, for JMH viewers

As root, pools are enlarged for the experiment and restored at its end. Without root, only free
pages of the pools are used; backings for which they do not suffice are skipped.
Exit status: 0 success; 1 a backing given with --backing could not be measured; 2 usage or
environment error; 128 + signal number if interrupted.")]
pub struct Arguments {
    /// Backings: base, thp, hugetlb[:SIZE], shm[:SIZE] [default: all that this machine has]
    #[arg(short, long, value_delimiter = ',', value_name = "LIST")]
    backing: Vec<Backing>,
    /// Buffer sizes, in bytes or with a unit such as 1GiB
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
    /// Measured iterations in each process
    #[arg(short, long, default_value_t = 5, value_parser = at_least_one)]
    iterations: usize,
    /// Reads in each iteration
    #[arg(long, default_value_t = 20_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    reads: u64,
    /// Seed of the random order of the processes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Memory that must stay available when a pool grows [default: a tenth of the memory available
    /// now, at least 512MiB]
    #[arg(long, value_name = "SIZE")]
    floor: Option<Bytes>,
    /// Print the result in JMH's JSON format
    #[arg(long)]
    json: bool,
}

/// Arguments of a measuring process
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
    /// Take turns: see `touch::take_turns`
    #[arg(long)]
    turns: bool,
}

/// Measures in this process and prints the result as JSON.
pub fn run_worker(worker: &Worker) -> anyhow::Result<ExitCode> {
    let touch = Touch {
        bytes: worker.bytes,
        backing: worker.backing,
        reads: worker.reads,
        iterations: worker.iterations,
        warm_up: worker.warm_up,
    };
    let touched = if worker.turns {
        touch::take_turns(&touch, io::stdin().lock(), io::stdout().lock())
    } else {
        touch::run(&touch)
    };
    let touched = touched.map_err(anyhow::Error::msg)?;
    print_json(&(serde_json::to_string(&touched)? + "\n"))?;
    Ok(ExitCode::SUCCESS)
}

pub fn run(arguments: &Arguments, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(!arguments.bytes.contains(&Bytes::ZERO), "--bytes 0: a buffer must have at least 1 byte");
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
    let interrupt = machine::install_signal_handlers()?;
    let mut machine = machine::open_machine(&root, "bench touch", arguments.floor)?;
    let program = env::current_exe().context("cannot determine the path of this executable")?;
    let table = bench.run(&program, &root, &mut machine, &interrupt, &mut Bar::new());
    machine::close(machine)?;
    let table = match table {
        Ok(table) => table,
        Err(error) => return machine::interrupted(&error, &interrupt).ok_or(error.into()),
    };
    if arguments.json {
        print_json(&json::text(&text::jmh(&table))?)?;
    } else {
        print_styled(&text::text(&table, terminal), terminal)?;
    }
    let all_named_were_measured = arguments.backing.is_empty() || table.left_out.is_empty();
    Ok(if all_named_were_measured { ExitCode::SUCCESS } else { ExitCode::from(NEGATIVE) })
}

/// All backings of this machine.
fn every_backing(sizes: &PageSizes) -> Vec<Backing> {
    let explicit = sizes.hugetlb.iter().map(|size| Backing::Hugetlb(Some(*size)));
    let candidates = [Backing::Base, Backing::Thp].into_iter().chain(explicit).chain([Backing::Shm(None)]);
    candidates.filter(|backing| sizes.missing(*backing).is_none()).collect()
}
