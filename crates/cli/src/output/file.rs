//! Writes a report to the file that the user named.

use std::path::Path;

use anyhow::Context;
use hugewise_linux::sys::file::Output;
pub use hugewise_linux::sys::file::Readers;

use super::standard_error;

/// Checks that `file` can be written; leaves no file behind.
pub fn can_be_written(file: &Path, readers: Readers) -> anyhow::Result<()> {
    Ok(Output::at(file, readers)?.check()?)
}

/// Checks that the report can be written, if the user named a file for it.
pub fn check_report(file: Option<&Path>) -> anyhow::Result<()> {
    let check = |file: &Path| {
        can_be_written(file, Readers::Owner)
            .with_context(|| format!("cannot write the report {}", file.display()))
    };
    file.map_or(Ok(()), check)
}

/// Writes the report, if the user named a file for it. Reports contain command lines, names and log lines of other
/// programs, so only the owner may read them. `hint`: appended to the message of a failure.
pub fn write_report(
    file: Option<&Path>,
    page: impl FnOnce() -> anyhow::Result<String>,
    hint: &str,
) -> anyhow::Result<()> {
    let Some(file) = file else { return Ok(()) };
    write(file, Readers::Owner, &page()?)
        .with_context(|| format!("cannot write the report {}{hint}", file.display()))?;
    standard_error::say(format_args!("wrote {}", file.display()));
    Ok(())
}

pub fn write(file: &Path, readers: Readers, page: &str) -> anyhow::Result<()> {
    Ok(Output::at(file, readers)?.write(page.as_bytes())?)
}
