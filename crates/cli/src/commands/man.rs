//! `hugewise man`: the manual pages, one for each command.

use std::{io, path::PathBuf, process::ExitCode};

use anyhow::Context;
use clap::{Args, Command};
use clap_mangen::Man as Page;
use hugewise_linux::sys::file::Folder;

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
        Some(dir) => {
            let written = Folder::create_all(dir, 0o755).and_then(|folder| {
                let mut all = arguments.disable_help_subcommand(true);
                all.build();
                write(all, &folder)
            });
            written.with_context(|| format!("cannot write manual pages to {}", dir.display()))?;
        }
        None => print_bytes(&page(&Page::new(arguments))?)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the pages of a command and of the commands in it.
fn write(command: Command, folder: &Folder) -> io::Result<()> {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        write(inner.clone(), folder)?;
    }
    let man = Page::new(command);
    folder.replace(man.get_filename().as_ref(), 0o644, &page(&man)?)
}

fn page(man: &Page) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    man.render(&mut page)?;
    Ok(page)
}
