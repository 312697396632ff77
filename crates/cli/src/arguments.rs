//! What the user may type. No system access happens here.

use clap::{Parser, Subcommand};

use crate::{commands, output::terminal::Color};

/// Huge pages for memory-hungry programs: measured, planned, applied reversibly, proven.
#[derive(Parser)]
#[command(name = "hugewise", version, max_term_width = 100, after_help = AFTER_HELP)]
pub struct Arguments {
    /// Colours in the output
    #[arg(long, value_enum, default_value_t = Color::Auto, global = true, value_name = "WHEN")]
    pub color: Color,

    #[command(subcommand)]
    pub command: Command,
}

const AFTER_HELP: &str = "\
Exit status: 0 fine; 1 done, and the verdict is negative; 2 wrong usage, or the environment did not allow it.
NO_COLOR in the environment switches colours off.";

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
