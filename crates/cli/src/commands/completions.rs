//! `hugewise completions`: scripts with which shells complete commands and options.

use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::output::standard_output::print_bytes;

/// Print the completion script for a shell
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Completions {
    /// Shell to print the script for
    shell: Shell,
}

const AFTER_HELP: &str = "\
Examples:
  hugewise completions bash > ~/.local/share/bash-completion/completions/hugewise
  hugewise completions zsh > ~/.zfunc/_hugewise
  hugewise completions fish > ~/.config/fish/completions/hugewise.fish";

/// Prints the script for `arguments`.
pub fn run(completions: &Completions, mut arguments: Command) -> anyhow::Result<ExitCode> {
    // Into a buffer: the generator panics if writing fails.
    let mut script = Vec::new();
    clap_complete::generate(completions.shell, &mut arguments, "hugewise", &mut script);
    print_bytes(&script)?;
    Ok(ExitCode::SUCCESS)
}
