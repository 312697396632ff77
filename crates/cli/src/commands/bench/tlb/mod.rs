//! `hugewise bench tlb`: the TLB by timing alone.

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
    root::Root,
    units::{Bytes, Pages},
};
use hugewise_measure::tlb::bench::Design;

use self::result::Report;
use super::at_least_one;
use crate::{
    NEGATIVE, machine,
    output::{
        file,
        progress::Bar,
        terminal::{Terminal, print},
    },
};

/// Pages and bytes that the TLB holds, and what a miss costs, by timing alone
///
/// For machines without hardware counters, like most virtual machines. Loads that each wait for the
/// one before go in random order over more and more pages, one cache line on each. What as many lines
/// cost that lie close together is taken off, so that the caches drop out. The counts at which the rest
/// steps up are the sizes of the TLB's levels.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hugewise bench tlb
  hugewise bench tlb --plot tlb.svg
  sudo hugewise bench tlb --backing base,thp,hugetlb:1GiB
  taskset -c 3 hugewise bench tlb       on one CPU, where not all are alike

Pools are grown for the time of the experiment and put back at its end, which needs root.
Exit status: 0; 1 if a backing that was named could not be measured; 2 if it could not be done.")]
pub struct Arguments {
    /// Backings: base, thp, hugetlb[:SIZE]
    #[arg(short, long, value_delimiter = ',', value_name = "LIST", default_value = "base,thp")]
    backing: Vec<Backing>,
    /// Go up to this many pages
    #[arg(long, value_name = "PAGES", default_value_t = 8192, value_parser = clap::value_parser!(u64).range(64..=32_768))]
    most: u64,
    /// Memory that the pages of one backing may take (never more than half of what is available); the
    /// others are the same memory at other addresses
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    memory: Bytes,
    /// Passes over all points
    #[arg(short, long, default_value_t = 40, value_parser = at_least_one)]
    passes: usize,
    /// Seed of the order of lines and points
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What must stay available beside a pool [default: a tenth of what is available now]
    #[arg(long, value_name = "SIZE")]
    floor: Option<Bytes>,
    /// Draw the curves into this file, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print JSON (schema hugewise.tlb/1)
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(arguments: &Arguments, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    ensure!(
        !arguments.backing.iter().any(|backing| matches!(backing, Backing::Shm(_))),
        "--backing shm: its pages are those of the pool, and hugetlb measures them"
    );
    if let Some(file) = &arguments.plot {
        file::can_be_written(file).with_context(|| format!("--plot {}", file.display()))?;
    }
    let root = Root::live();
    let design = Design {
        backings: arguments.backing.clone(),
        most: Pages(arguments.most),
        passes: arguments.passes,
        memory: arguments.memory,
        seed: arguments.seed,
    };
    let interrupt = machine::watch()?;
    let mut machine = machine::open_machine(&root, "bench tlb", arguments.floor)?;
    let curves = design.run(&root, &mut machine, &interrupt, &mut Bar::new());
    machine::close(machine)?;
    let curves = match curves {
        Ok(curves) => curves,
        Err(error) => return machine::interrupted(&error, &interrupt).ok_or(error.into()),
    };
    let all_measured = curves.left_out.is_empty();
    let report = Report::new(design, curves);
    let shown = if arguments.json {
        serde_json::to_string_pretty(&report)? + "\n"
    } else {
        text::text(&report, terminal)?
    };
    if let Some(file) = &arguments.plot {
        let plot = plot::svg(&report)?;
        file::write(file, &plot).with_context(|| format!("--plot {}", file.display()))?;
    }
    print(&shown)?;
    Ok(if all_measured { ExitCode::SUCCESS } else { ExitCode::from(NEGATIVE) })
}
