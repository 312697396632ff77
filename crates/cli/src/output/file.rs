//! Writes a report to the file that the user named.

use std::{fs, io::Write, os::unix::fs::PermissionsExt, path::Path};

use anyhow::{Context, ensure};

use super::standard_error;

enum Target {
    /// A temporary file in the same folder, renamed at the end: readers never see half a page, and a symbolic
    /// link is replaced, not followed.
    File(tempfile::NamedTempFile),
    /// A device or a pipe, such as /dev/stdout.
    Stream(fs::File),
}

/// Checks that `file` can be written; leaves no file behind.
pub fn can_be_written(file: &Path) -> anyhow::Result<()> {
    target(file).map(drop)
}

/// Checks that the report can be written, if the user named a file for it.
pub fn check_report(file: Option<&Path>) -> anyhow::Result<()> {
    let check = |file: &Path| {
        can_be_written(file).with_context(|| format!("cannot write the report {}", file.display()))
    };
    file.map_or(Ok(()), check)
}

/// Who may read a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// All users.
    All,
    /// Only its owner, like the recording that it was made from.
    Owner,
}

/// Writes the report, if the user named a file for it. `hint`: appended to the message of a failure.
pub fn write_report(
    file: Option<&Path>,
    readers: Readers,
    page: impl FnOnce() -> anyhow::Result<String>,
    hint: &str,
) -> anyhow::Result<()> {
    let Some(file) = file else { return Ok(()) };
    write(file, readers, &page()?)
        .with_context(|| format!("cannot write the report {}{hint}", file.display()))?;
    standard_error::say(format_args!("wrote {}", file.display()));
    Ok(())
}

pub fn write(file: &Path, readers: Readers, page: &str) -> anyhow::Result<()> {
    match target(file)? {
        Target::Stream(mut stream) => stream.write_all(page.as_bytes())?,
        Target::File(mut draft) => {
            draft.write_all(page.as_bytes())?;
            // The temporary file has mode 0600.
            if readers == Readers::All {
                draft.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
            }
            draft.persist(file)?;
        }
    }
    Ok(())
}

fn target(file: &Path) -> anyhow::Result<Target> {
    if let Ok(found) = fs::metadata(file) {
        ensure!(!found.is_dir(), "it is a folder");
        // If standard output is redirected to a file, /dev/stdout looks like that file; it must not be
        // replaced.
        let is_stream = fs::read_link(file).is_ok_and(|to| to.starts_with("/proc/self/fd"));
        if is_stream || !found.is_file() {
            return Ok(Target::Stream(fs::OpenOptions::new().append(true).open(file)?));
        }
    }
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let draft = tempfile::NamedTempFile::new_in(folder);
    Ok(Target::File(draft.with_context(|| format!("in the folder {}", folder.display()))?))
}

#[cfg(test)]
mod tests {
    use std::os::{fd::AsRawFd, unix::fs::symlink};

    use super::*;

    #[test]
    fn a_stream_that_is_redirected_to_a_file_stays_a_link() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let (shown, link) = (folder.path().join("shown"), folder.path().join("stdout"));
        let mut redirected = fs::File::create(&shown)?;
        redirected.write_all(b"text\n")?;
        symlink(format!("/proc/self/fd/{}", redirected.as_raw_fd()), &link)?;
        can_be_written(&link)?;
        write(&link, Readers::All, "page\n")?;
        assert!(fs::symlink_metadata(&link)?.is_symlink());
        assert_eq!(fs::read_to_string(&shown)?, "text\npage\n");
        Ok(())
    }

    #[test]
    fn a_private_report_is_readable_by_its_owner_only() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("report.html");
        for (readers, mode) in [(Readers::All, 0o644), (Readers::Owner, 0o600), (Readers::Owner, 0o600)] {
            write(&file, readers, "page\n")?;
            assert_eq!(fs::metadata(&file)?.permissions().mode() & 0o777, mode, "{readers:?}");
        }
        Ok(())
    }
}
