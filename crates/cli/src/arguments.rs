//! The command line arguments. Parsing them accesses nothing on the system.

use clap::{Parser, Subcommand};

use crate::{commands, output::terminal::Color};

/// Huge pages for memory-hungry programs: measured, planned, applied reversibly, proven.
#[derive(Parser)]
#[command(name = "hugewise", version, max_term_width = 100, after_help = AFTER_HELP)]
pub struct Arguments {
    /// When to use colours
    #[arg(long, value_enum, default_value_t = Color::Auto, global = true, value_name = "WHEN")]
    pub color: Color,

    #[command(subcommand)]
    pub command: Command,
}

const AFTER_HELP: &str = "\
Exit status: 0 success; 1 completed with a negative result; 2 usage or environment error;
3 inconclusive (compare); 128 + signal number if interrupted.
The environment variable NO_COLOR disables colours.";

#[derive(Subcommand)]
pub enum Command {
    Check(commands::check::Check),
    Plan(commands::plan::Plan),
    Apply(commands::apply::Apply),
    Compare(commands::compare::Compare),
    Inspect(commands::inspect::Inspect),
    Bench(commands::bench::Bench),
    Run(commands::run::Run),
    Observe(commands::run::Observe),
    Collapse(commands::collapse::Collapse),
    Record(commands::record::Record),
    Report(commands::report::Report),
    Explain(commands::explain::Explain),
    Gclog(commands::gclog::Gclog),
    Restore(commands::restore::Restore),
    Completions(commands::completions::Completions),
    Man(commands::man::Man),
}
