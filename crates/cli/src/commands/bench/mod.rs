//! `hugewise bench`: measurements of this machine.

pub mod pretouch;
pub mod stall;
pub mod tlb;
pub mod touch;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use comfy_table::CellAlignment;
use hugewise_linux::reading::Reason;
use hugewise_measure::serving::guard;

use crate::{
    machine,
    output::{
        table::{self, plain_table},
        terminal::Terminal,
    },
};

/// Measure this machine: TLB, random reads, pre-touch, fragmented memory
#[derive(Args)]
pub struct Bench {
    #[command(subcommand)]
    what: BenchCommand,
}

#[derive(Subcommand)]
enum BenchCommand {
    Tlb(tlb::Arguments),
    Touch(touch::Arguments),
    Pretouch(Box<pretouch::Arguments>),
    Stall(stall::Arguments),
    /// A process of `bench touch`; prints its measurement as JSON
    #[command(hide = true)]
    TouchWorker(touch::Worker),
    /// A process of `bench pretouch`; prints its measurement as JSON
    #[command(hide = true)]
    PretouchWorker(Work),
    /// The process of `bench stall` that fragments memory until its standard input is closed
    #[command(hide = true)]
    FragmentWorker(Work),
    /// The test load of `bench stall`, which requests huge pages; prints its measurement as JSON
    #[command(hide = true)]
    StallProbe(Work),
    /// The process of `compare --server` that ends the server if hugewise is killed
    #[command(hide = true)]
    ServerGuard(Work),
}

/// Arguments of a measuring process
#[derive(Args)]
struct Work {
    /// The work, as JSON
    work: String,
}

/// Parses a count of at least 1.
pub fn at_least_one(text: &str) -> Result<usize, Reason> {
    match text.parse()? {
        0 => Reason::err("must be at least 1"),
        count => Ok(count),
    }
}

/// A table of measurements; the columns with the indexes `words` are aligned to the left.
fn measurements(
    headings: Vec<&str>,
    words: [usize; 2],
    rows: impl Iterator<Item = Vec<String>>,
    terminal: &Terminal,
) -> String {
    let mut table = plain_table();
    table.set_header(headings).add_rows(rows);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if !words.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut lines = table::lines(&table);
    if let Some(heading) = lines.first_mut() {
        *heading = terminal.bold(heading);
    }
    lines.join("\n") + "\n\n"
}

pub fn run(bench: &Bench, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    use BenchCommand as Command;
    if let Command::Tlb(_) | Command::Touch(_) | Command::Pretouch(_) | Command::Stall(_) = &bench.what {
        machine::warn_of_unfinished();
    }
    match &bench.what {
        Command::Tlb(arguments) => tlb::run(arguments, terminal),
        Command::Touch(arguments) => touch::run(arguments, terminal),
        Command::Pretouch(arguments) => pretouch::run(arguments, terminal),
        Command::Stall(arguments) => stall::run(arguments, terminal),
        Command::FragmentWorker(Work { work }) => stall::run_fragment_worker(work),
        Command::StallProbe(Work { work }) => stall::run_probe(work),
        Command::ServerGuard(Work { work }) => {
            guard::watch(&serde_json::from_str(work)?)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::TouchWorker(worker) => touch::run_worker(worker),
        Command::PretouchWorker(Work { work }) => pretouch::run_worker(work),
    }
}
