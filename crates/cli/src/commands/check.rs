//! `hugewise check`: what this machine offers, and what is wrong with it.

use std::process::ExitCode;

use clap::Args;

use crate::terminal::Terminal;

/// What this machine offers in huge pages, and what stands in the way
#[derive(Args)]
pub struct Check {}

/// Runs the command.
pub fn run(_check: &Check, _terminal: &Terminal) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}
