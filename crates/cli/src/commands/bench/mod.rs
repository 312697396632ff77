//! `hugewise bench`: experiments on this machine itself.

pub mod pretouch;
pub mod stall;
pub mod tlb;
pub mod touch;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::{machine, output::terminal::Terminal};

/// Measure this machine itself
#[derive(Args)]
pub struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Tlb(tlb::Arguments),
    Touch(touch::Arguments),
    Pretouch(Box<pretouch::Arguments>),
    Stall(stall::Arguments),
    /// One process of `bench touch`; prints its report as JSON
    #[command(hide = true)]
    TouchWorker(touch::Worker),
    /// One process of `bench pretouch`; prints its report as JSON
    #[command(hide = true)]
    PretouchWorker(pretouch::Worker),
    /// The process of `bench stall` that fragments memory until its input ends
    #[command(hide = true)]
    FragmentWorker(stall::FragmentWorker),
    /// One process of `bench stall` that asks for huge pages; prints its report as JSON
    #[command(hide = true)]
    StallProbe(stall::ProbeWorker),
}

/// A count that is not zero.
pub fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("at least 1 is needed".to_owned()),
        Ok(count) => Ok(count),
        Err(error) => Err(format!("{error}")),
    }
}

/// Runs the command.
pub fn run(bench: &Bench, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    match &bench.what {
        What::Tlb(arguments) => {
            machine::tell_unfinished();
            tlb::run(arguments, terminal)
        }
        What::Touch(arguments) => {
            machine::tell_unfinished();
            touch::run(arguments, terminal)
        }
        What::Pretouch(arguments) => {
            machine::tell_unfinished();
            pretouch::run(arguments, terminal)
        }
        What::Stall(arguments) => {
            machine::tell_unfinished();
            stall::run(arguments, terminal)
        }
        What::FragmentWorker(worker) => stall::run_fragment_worker(worker),
        What::StallProbe(worker) => stall::run_probe(worker),
        What::TouchWorker(worker) => touch::run_worker(worker),
        What::PretouchWorker(worker) => pretouch::run_worker(worker),
    }
}
