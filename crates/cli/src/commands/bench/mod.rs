//! `hugewise bench`: measurements of this machine.

pub mod pretouch;
pub mod stall;
pub mod tlb;
pub mod touch;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::{machine, output::terminal::Terminal};

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
    PretouchWorker(pretouch::Worker),
    /// The process of `bench stall` that fragments memory until its standard input is closed
    #[command(hide = true)]
    FragmentWorker(stall::FragmentWorker),
    /// The test load of `bench stall`, which requests huge pages; prints its measurement as JSON
    #[command(hide = true)]
    StallProbe(stall::ProbeWorker),
}

/// Parses a count of at least 1.
pub fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".to_owned()),
        Ok(count) => Ok(count),
        Err(error) => Err(format!("{error}")),
    }
}

pub fn run(bench: &Bench, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    match &bench.what {
        BenchCommand::Tlb(arguments) => {
            machine::warn_of_unfinished();
            tlb::run(arguments, terminal)
        }
        BenchCommand::Touch(arguments) => {
            machine::warn_of_unfinished();
            touch::run(arguments, terminal)
        }
        BenchCommand::Pretouch(arguments) => {
            machine::warn_of_unfinished();
            pretouch::run(arguments, terminal)
        }
        BenchCommand::Stall(arguments) => {
            machine::warn_of_unfinished();
            stall::run(arguments, terminal)
        }
        BenchCommand::FragmentWorker(worker) => stall::run_fragment_worker(worker),
        BenchCommand::StallProbe(worker) => stall::run_probe(worker),
        BenchCommand::TouchWorker(worker) => touch::run_worker(worker),
        BenchCommand::PretouchWorker(worker) => pretouch::run_worker(worker),
    }
}
