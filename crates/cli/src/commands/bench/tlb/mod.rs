//! `hugewise bench tlb`: capacity of the TLB and cost of a miss, by timing.

pub mod plot;
pub mod result;
#[cfg(test)]
mod tests;
pub mod text;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, ensure};
use clap::Args;
use hugewise_linux::{
    hugepages::backing::Backing,
    json,
    root::Root,
    units::{Bytes, Pages},
};
use hugewise_measure::tlb::bench::Design;

use self::result::TlbReport;
use super::at_least_one;
use crate::{
    NEGATIVE, machine,
    output::{
        file::{self, Readers},
        progress::Bar,
        standard_output::{print_json, print_styled},
        terminal::Terminal,
    },
};

/// Measure the capacity of each TLB level and the cost of a miss, by timing
///
/// Needs no hardware counters, which most virtual machines lack. Dependent loads visit a growing
/// number of pages in random order, one cache line per page. The time for the same number of adjacent
/// cache lines is subtracted, which removes the effect of the caches. The page counts at which the
/// remaining time rises are the capacities of the TLB levels.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hugewise bench tlb
  hugewise bench tlb --plot tlb.svg
  sudo hugewise bench tlb --backing base,thp,hugetlb:1GiB
  taskset -c 3 hugewise bench tlb       measure one CPU, if the CPUs of the machine differ

As root, pools are enlarged for the experiment and restored at its end.
Exit status: 0 success; 1 a backing could not be measured; 2 usage or environment error;
128 + signal number if interrupted.")]
pub struct Arguments {
    /// Backings: base, thp, hugetlb[:SIZE]
    #[arg(short, long, value_delimiter = ',', value_name = "LIST", default_value = "base,thp")]
    backing: Vec<Backing>,
    /// Largest number of pages
    #[arg(long, value_name = "PAGES", default_value_t = 8192, value_parser = clap::value_parser!(u64).range(64..=32_768))]
    most: u64,
    /// Memory for the pages of one backing, at most half of the available memory; further pages map the
    /// same memory at other addresses
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    memory: Bytes,
    /// Passes over all page counts
    #[arg(short, long, default_value_t = 40, value_parser = at_least_one)]
    passes: usize,
    /// Seed of the random order of cache lines and page counts
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Memory that must stay available when a pool grows [default: a tenth of the memory available
    /// now, at least 512MiB]
    #[arg(long, value_name = "SIZE")]
    floor: Option<Bytes>,
    /// Draw the curves into FILE, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print JSON (schema hugewise.tlb/2)
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    ensure!(
        !arguments.backing.iter().any(|backing| matches!(backing, Backing::Shm(_))),
        "--backing shm is not measured: its pages are those of the pool, use --backing hugetlb"
    );
    if let Some(file) = &arguments.plot {
        file::can_be_written(file, Readers::All).with_context(|| format!("--plot {}", file.display()))?;
    }
    let root = Root::live();
    let design = Design {
        backings: arguments.backing.clone(),
        most: Pages(arguments.most),
        passes: arguments.passes,
        memory: arguments.memory,
        seed: arguments.seed,
    };
    let interrupt = machine::install_signal_handlers()?;
    let mut machine = machine::open_machine(&root, "bench tlb", arguments.floor)?;
    let curves = design.run(&root, &mut machine, &interrupt, &mut Bar::new());
    machine::close(machine)?;
    let curves = match curves {
        Ok(curves) => curves,
        Err(error) => return machine::interrupted(&error, &interrupt).ok_or(error.into()),
    };
    let all_measured = curves.left_out.is_empty();
    let report = TlbReport::new(design, curves);
    if let Some(file) = &arguments.plot {
        let plot = plot::svg(&report)?;
        file::write(file, Readers::All, &plot).with_context(|| format!("--plot {}", file.display()))?;
    }
    match arguments.json {
        true => print_json(&json::text(&report)?)?,
        false => print_styled(&text::text(&report, terminal)?, terminal)?,
    }
    Ok(if all_measured { ExitCode::SUCCESS } else { ExitCode::from(NEGATIVE) })
}
