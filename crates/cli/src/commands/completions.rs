//! `hugewise completions`: what a shell needs to complete our commands and options.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::arguments::Arguments;

/// Print a shell's completions
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Completions {
    /// The shell
    shell: Shell,
}

const AFTER_HELP: &str = "\
Examples:
  hugewise completions bash > ~/.local/share/bash-completion/completions/hugewise
  hugewise completions zsh > ~/.zfunc/_hugewise
  hugewise completions fish > ~/.config/fish/completions/hugewise.fish";

/// Runs the command.
pub fn run(completions: &Completions) -> anyhow::Result<ExitCode> {
    // By way of a buffer, since the generator panics where writing fails.
    let mut script = Vec::new();
    clap_complete::generate(completions.shell, &mut Arguments::command(), "hugewise", &mut script);
    io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}
