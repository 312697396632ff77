//! Drop-ins of systemd services, which set other variables until the machine is started again.

use std::{
    ffi::OsString,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use hugewise_linux::{
    sys::file::{self, inside},
    systemd::{Unit, environment_file, systemctl},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Units and drop-ins that are lost when the machine is started again.
const FOLDER: &str = "/run/systemd/system";

/// The command that a drop-in is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DropInOwner {
    /// `compare`, whose drop-in overrides that of `run`.
    Compare,
    /// `run --unit`
    Run,
}

impl DropInOwner {
    /// Sorted behind those of others, whose variables it overrides.
    fn name(self) -> &'static str {
        match self {
            DropInOwner::Compare => "99-hugewise-compare",
            DropInOwner::Run => "98-hugewise-run",
        }
    }

    /// The command that removes it, and when.
    fn removed_by(self) -> &'static str {
        match self {
            DropInOwner::Compare => "hugewise compare, at its end",
            DropInOwner::Run => "hugewise run --undo --unit",
        }
    }
}

/// A drop-in of a service.
#[derive(Clone, Copy, Debug)]
pub struct DropIn<'a> {
    unit: &'a Unit,
    owner: DropInOwner,
}

impl<'a> DropIn<'a> {
    pub fn of(unit: &'a Unit, owner: DropInOwner) -> DropIn<'a> {
        DropIn { unit, owner }
    }

    pub fn exists(&self) -> bool {
        inside::entry(Path::new(FOLDER), &self.below(".conf")).is_ok()
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
        self.write(".env", &lines)?;
        self.write(".conf", &self.text(variables))?;
        self.reload()
    }

    /// Removes it. It holds until the next start.
    pub fn remove(&self) -> io::Result<()> {
        self.remove_files()?;
        self.reload()
    }

    /// Removes it, and starts the service without it.
    pub fn undo(&self) -> io::Result<()> {
        self.remove()?;
        systemctl(&["restart", self.unit.name()])?;
        Ok(())
    }

    /// Removes its files, of which systemd does not know before it reloads. No link is followed.
    pub(crate) fn remove_files(&self) -> io::Result<()> {
        for ending in [".conf", ".env"] {
            match inside::remove(Path::new(FOLDER), &self.below(ending)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        // Others may have drop-ins there.
        let _ = fs::remove_dir(self.folder());
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

    /// A file of it below the folder of units.
    fn below(&self, ending: &str) -> PathBuf {
        PathBuf::from(format!("{}.d/{}{ending}", self.unit, self.owner.name()))
    }

    /// The variables of a file override those of the unit, and are not shown to other users.
    fn text(&self, variables: &[(String, Option<OsString>)]) -> String {
        let removed = variables.iter().filter(|(_, value)| value.is_none());
        let removed: String = removed.map(|(name, _)| format!("UnsetEnvironment={name}\n")).collect();
        let head = format!("# Removed by {}.\n[Service]", self.owner.removed_by());
        // It is a pattern, in which a backslash of the unit's name takes the meaning of the next character.
        let file = Path::new(FOLDER).join(self.below(".env")).display().to_string().replace('\\', "\\\\");
        format!("{head}\nEnvironmentFile={file}\n{removed}")
    }

    /// Replaces a file that only root can read, as values may be secret.
    fn write(&self, ending: &str, text: &str) -> io::Result<()> {
        let path = Path::new(FOLDER).join(self.below(ending));
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        file::create_new(&path, 0o600)?.write_all(text.as_bytes())
    }
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
        let text = DropIn::of(&unit, DropInOwner::Compare).text(&variables);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        let file = "EnvironmentFile=/run/systemd/system/a.service.d/99-hugewise-compare.env";
        assert_eq!(lines, ["[Service]", file, "UnsetEnvironment=MALLOC_CONF"]);
        Ok(())
    }
}
