//! `hugewise`: huge pages for memory-hungry programs, measured and proven.

mod arguments;
mod cache;
mod commands;
mod machine;
mod output;
mod process_argument;
mod random_read;
#[cfg(test)]
mod schema_tests;
mod unit_program;

use std::{
    env, io,
    process::{self, ExitCode},
};

use clap::{CommandFactory, Parser};
use hugewise_linux::sys::process::accept_signals;

use crate::{
    arguments::{Arguments, Command},
    output::{standard_error, terminal::Terminal},
};

/// Exit status of a command that completed with a negative result.
const NEGATIVE: u8 = 1;
/// Exit status of a usage or environment error.
const FAILED: u8 = 2;
/// Exit status of an inconclusive comparison.
const INCONCLUSIVE: u8 = 3;

fn main() -> ExitCode {
    standard_error::print_panics();
    accept_signals();
    let arguments = Arguments::try_parse().unwrap_or_else(|error| refuse(&error));
    let terminal = Terminal::new(arguments.color);
    let done = match arguments.command {
        Command::Check(check) => {
            machine::warn_of_unfinished();
            commands::check::run(&check, &terminal)
        }
        Command::Plan(plan) => commands::plan::run(&plan, &terminal),
        Command::Apply(apply) => commands::apply::run(&apply, &terminal),
        Command::Inspect(inspect) => commands::inspect::run(&inspect, &terminal),
        Command::Compare(compare) => commands::compare::run(&compare, &terminal),
        Command::Bench(bench) => commands::bench::run(&bench, &terminal),
        Command::Run(run) => commands::run::run(&run),
        Command::Observe(observe) => commands::run::observe(&observe),
        Command::Record(record) => commands::record::run(&record, &terminal),
        Command::Explain(explain) => commands::explain::run(&explain, &terminal),
        Command::Collapse(collapse) => commands::collapse::run(&collapse, &terminal),
        Command::Split(split) => commands::split::run(&split, &terminal),
        Command::Report(report) => commands::report::run(&report, &terminal),
        Command::Gclog(gclog) => commands::gclog::run(&gclog, &terminal),
        Command::Restore(restore) => commands::restore::run(&restore),
        Command::Completions(completions) => commands::completions::run(&completions, Arguments::command()),
        Command::Man(man) => commands::man::run(&man, Arguments::command()),
    };
    match done {
        Ok(code) => code,
        // A reader at the other end of a pipe may close it early: not an error.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            standard_error::say_failed(&in_words(&error), &terminal);
            ExitCode::from(FAILED)
        }
    }
}

/// Prints what is wrong with the arguments, which may be names of files of other users, or the help.
fn refuse(error: &clap::Error) -> ! {
    if !error.use_stderr() {
        error.exit();
    }
    let words: Vec<String> = env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    match arguments::missing_separator(error, &words) {
        Some(said) => {
            standard_error::print(&format!("error: {said}\n\nFor more information, try '--help'.\n"))
        }
        None => standard_error::print(&error.render().to_string()),
    }
    process::exit(FAILED.into())
}

/// The error and its causes, without causes that the text before already contains.
fn in_words(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |chain, cause| match chain.as_str() {
        "" => cause,
        chain if chain.contains(&cause) => chain.to_owned(),
        chain => format!("{chain}: {cause}"),
    })
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
