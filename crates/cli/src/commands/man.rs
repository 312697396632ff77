//! `hugewise man`: the manual pages, one for each command.

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::Context;
use clap::{Args, Command};
use clap_mangen::Man as Page;

use crate::output::standard_output::print_bytes;

/// Print the manual page, or write the manual pages of all commands
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Man {
    /// Write one page per command to DIR, which is created if necessary
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
Examples:
  hugewise man | man -l -
  hugewise man --dir ~/.local/share/man/man1";

/// Prints or writes the pages of `arguments`.
pub fn run(man: &Man, arguments: Command) -> anyhow::Result<ExitCode> {
    match &man.dir {
        Some(dir) => fs::create_dir_all(dir)
            .and_then(|()| clap_mangen::generate_to(arguments, dir))
            .with_context(|| format!("cannot write manual pages to {}", dir.display()))?,
        None => {
            let mut page = Vec::new();
            Page::new(arguments).render(&mut page)?;
            print_bytes(&page)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
