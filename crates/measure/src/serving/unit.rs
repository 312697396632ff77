//! A systemd service whose program takes its variables from a drop-in, until the machine is started again.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use hugewise_linux::{
    bounded_run,
    sys::process::Program,
    systemd::{Unit, environment_file, systemctl},
};

/// Units and drop-ins that are lost when the machine is started again.
const FOLDER: &str = "/run/systemd/system";
/// Lines of the journal that are shown for a service that failed.
const JOURNAL_LINES: &str = "6";
/// Time limit for reading them.
const JOURNAL_TIME_LIMIT: Duration = Duration::from_secs(5);

/// A drop-in of a service.
#[derive(Clone, Copy, Debug)]
pub struct DropIn<'a> {
    unit: &'a Unit,
    /// Sorted behind those of others, whose variables it overrides.
    name: &'static str,
    /// Who removes it, and when.
    removed_by: &'static str,
}

impl<'a> DropIn<'a> {
    /// That of a comparison, which overrides that of `run`.
    pub fn of_compare(unit: &'a Unit) -> DropIn<'a> {
        DropIn { unit, name: "99-hugewise-compare", removed_by: "hugewise compare, at its end" }
    }

    pub fn of_run(unit: &'a Unit) -> DropIn<'a> {
        DropIn { unit, name: "98-hugewise-run", removed_by: "hugewise run --undo --unit" }
    }

    pub fn exists(&self) -> bool {
        self.file().exists()
    }

    /// Writes it with these variables; those without a value are removed. They hold from the next start on.
    pub fn set(&self, variables: &[(String, Option<OsString>)]) -> io::Result<()> {
        fs::create_dir_all(self.folder())?;
        let mut lines = String::new();
        for (name, value) in variables {
            let Some(value) = value else { continue };
            let value = value.to_str().ok_or_else(|| io::Error::other(format!("{name} is not UTF-8")))?;
            lines += &environment_file::line(name, value)?;
        }
        write(&self.environment_file(), &lines)?;
        write(&self.file(), &self.text(variables))?;
        self.reload()
    }

    /// Removes it. It holds until the next start.
    pub fn remove(&self) -> io::Result<()> {
        for file in [self.file(), self.environment_file()] {
            match fs::remove_file(&file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        // Others may have drop-ins there.
        let _ = fs::remove_dir(self.folder());
        self.reload()
    }

    /// Removes it, and starts the service without it.
    pub fn undo(&self) -> io::Result<()> {
        self.remove()?;
        systemctl(&["restart", self.unit.name()])?;
        Ok(())
    }

    /// Reads the drop-ins anew, and forgets earlier starts: systemd refuses one after several within some seconds.
    fn reload(&self) -> io::Result<()> {
        systemctl(&["daemon-reload"])?;
        // An error says that it has forgotten them by itself.
        let _ = systemctl(&["reset-failed", self.unit.name()]);
        Ok(())
    }

    fn folder(&self) -> PathBuf {
        Path::new(FOLDER).join(format!("{}.d", self.unit))
    }

    fn file(&self) -> PathBuf {
        self.folder().join(format!("{}.conf", self.name))
    }

    /// The variables, beside the drop-in.
    fn environment_file(&self) -> PathBuf {
        self.folder().join(format!("{}.env", self.name))
    }

    /// Variables of a file override those of the unit, and are not shown to other users.
    fn text(&self, variables: &[(String, Option<OsString>)]) -> String {
        let removed = variables.iter().filter(|(_, value)| value.is_none());
        let removed: String = removed.map(|(name, _)| format!("UnsetEnvironment={name}\n")).collect();
        let head = format!("# Removed by {}.\n[Service]", self.removed_by);
        // It is a pattern, in which a backslash of the unit's name takes the meaning of the next character.
        let file = self.environment_file().display().to_string().replace('\\', "\\\\");
        format!("{head}\nEnvironmentFile={file}\n{removed}")
    }
}

/// Writes a file that only root can read, as values may be secret.
fn write(file: &Path, text: &str) -> io::Result<()> {
    let mut options = File::options();
    options.create(true).truncate(true).write(true).mode(0o600);
    options.open(file)?.write_all(text.as_bytes())
}

/// The last lines of the service in the journal; empty if they cannot be read.
pub fn last_messages(unit: &Unit) -> String {
    let options =
        ["--unit", unit.name(), "--lines", JOURNAL_LINES, "--output", "cat", "--no-pager", "--quiet"];
    let ran = Program::of_system("journalctl").and_then(|mut journal| {
        journal.args(options);
        bounded_run::run_regardless_of_signals(journal, JOURNAL_TIME_LIMIT)
    });
    ran.ok().flatten().map(|ran| ran.stdout).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use hugewise_linux::reading::Reason;

    use super::*;

    #[test]
    fn a_drop_in_sets_and_removes_variables() -> Result<(), Reason> {
        let variables =
            [("JAVA_TOOL_OPTIONS".to_owned(), Some("-Da=b".into())), ("MALLOC_CONF".to_owned(), None)];
        let unit = Unit::parse("a.service").ok_or_else(|| Reason::new("a name"))?;
        let text = DropIn::of_compare(&unit).text(&variables);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        let file = "EnvironmentFile=/run/systemd/system/a.service.d/99-hugewise-compare.env";
        assert_eq!(lines, ["[Service]", file, "UnsetEnvironment=MALLOC_CONF"]);
        Ok(())
    }
}
