//! The command line arguments. Parsing them accesses nothing on the system.

use std::path::Path;

use clap::{
    CommandFactory, Parser, Subcommand,
    error::{ContextKind, ContextValue, ErrorKind},
};
use hugewise_linux::shell;

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
    Split(commands::split::Split),
    Record(commands::record::Record),
    Report(commands::report::Report),
    Explain(commands::explain::Explain),
    Gclog(commands::gclog::Gclog),
    Restore(commands::restore::Restore),
    Completions(commands::completions::Completions),
    Man(commands::man::Man),
}

/// The error for a program's command line that does not follow `--`; `None` if `error` has another cause.
pub fn missing_separator(error: &clap::Error, words: &[String]) -> Option<String> {
    let mut command = Arguments::command();
    let mut first = 1;
    while let Some(next) = words.get(first).and_then(|word| command.find_subcommand(word)).cloned() {
        (command, first) = (next, first + 1);
    }
    let takes_program = command.get_positionals().any(clap::Arg::is_last_set);
    if !takes_program || words.iter().any(|word| word == "--") {
        return None;
    }
    // The value of an option is not the program.
    let of_option = |value: Option<&ContextValue>| matches!(value, Some(ContextValue::String(arg)) if arg.starts_with('-'));
    if error.kind() != ErrorKind::UnknownArgument && of_option(error.get(ContextKind::InvalidArg)) {
        return None;
    }
    let named = [ContextKind::InvalidArg, ContextKind::InvalidValue].into_iter().find_map(|kind| {
        let Some(ContextValue::String(word)) = error.get(kind) else { return None };
        words.iter().skip(first).position(|other| other == word && !word.starts_with('-'))
    });
    let is_java = |word: &String| Path::new(word).file_name().is_some_and(|name| name == "java");
    let at = first + words.iter().skip(first).position(is_java).or(named)?;
    let (before, program) = words.split_at(at);
    let separated = [&["hugewise".to_owned()], &before[1..], &["--".to_owned()], program].concat();
    Some(format!("the command line of the program follows '--':\n\n  {}", shell::line(&separated)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_a_separator_is_shown_with_one() {
        let said = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let error = Arguments::try_parse_from(&words).err()?;
            Some(missing_separator(&error, &words)?.split("  ").last().unwrap_or_default().to_owned())
        };
        for (line, separated) in [
            ("./hugewise run java -version", Some("hugewise run -- java -version")),
            ("hugewise run -b thp ./server --port 1", Some("hugewise run -b thp -- ./server --port 1")),
            (
                "hugewise record /opt/jdk/bin/java -version",
                Some("hugewise record -- /opt/jdk/bin/java -version"),
            ),
            ("hugewise bench stall java Main", Some("hugewise bench stall -- java Main")),
            ("hugewise compare -b hugepages", None),
            ("hugewise run --no-such-option", None),
            ("hugewise run --no-such-option -- java", None),
            ("hugewise check java", None),
            ("hugewise run --backing java -- x", None),
            ("hugewise --help", None),
        ] {
            assert_eq!(said(line).as_deref(), separated, "{line}");
        }
    }
}
