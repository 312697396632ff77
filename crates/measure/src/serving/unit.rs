//! A systemd service as a server: a drop-in sets the variables of a backing, until the machine is started again.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use hugewise_linux::systemd::{Unit, environment_line, systemctl};

/// Units and drop-ins that are lost when the machine is started again.
const FOLDER: &str = "/run/systemd/system";
/// Sorted behind those of others, whose variables it overrides.
const DROP_IN: &str = "99-hugewise.conf";
/// The variables, beside the drop-in.
const ENVIRONMENT: &str = "99-hugewise.env";
/// Lines of the journal that are shown for a service that failed.
const JOURNAL_LINES: &str = "6";

/// Removes the drop-in, and starts the service without it.
pub(super) fn give_back(unit: &Unit) -> io::Result<()> {
    for file in [drop_in(unit), environment_file(unit)] {
        match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    // Others may have drop-ins there.
    let _ = fs::remove_dir(folder(unit));
    reload(unit)?;
    systemctl(&["restart", unit.name()])?;
    Ok(())
}

/// Writes the drop-in with these variables; those without a value are removed.
pub(super) fn set_environment(unit: &Unit, variables: &[(String, Option<OsString>)]) -> io::Result<()> {
    fs::create_dir_all(folder(unit))?;
    let known = |(name, value): &(String, Option<OsString>)| {
        Some(environment_line(name, &value.as_ref()?.to_string_lossy()))
    };
    let file = environment_file(unit);
    write(&file, &variables.iter().filter_map(known).collect::<String>())?;
    write(&drop_in(unit), &text(&file, variables))?;
    reload(unit)
}

/// Writes a file that only root can read, as values may be secret.
fn write(file: &Path, text: &str) -> io::Result<()> {
    let mut options = File::options();
    options.create(true).truncate(true).write(true).mode(0o600);
    options.open(file)?.write_all(text.as_bytes())
}

/// Reads the drop-ins anew, and forgets earlier starts: systemd refuses one after several within some seconds.
fn reload(unit: &Unit) -> io::Result<()> {
    systemctl(&["daemon-reload"])?;
    // An error says that it has forgotten them by itself.
    let _ = systemctl(&["reset-failed", unit.name()]);
    Ok(())
}

/// The last lines of the service in the journal; empty if they cannot be read.
pub(super) fn last_messages(unit: &Unit) -> String {
    let options =
        ["--unit", unit.name(), "--lines", JOURNAL_LINES, "--output", "cat", "--no-pager", "--quiet"];
    let ran = Command::new("journalctl").args(options).output();
    ran.map(|ran| String::from_utf8_lossy(&ran.stdout).into_owned()).unwrap_or_default()
}

fn folder(unit: &Unit) -> PathBuf {
    Path::new(FOLDER).join(format!("{unit}.d"))
}

fn drop_in(unit: &Unit) -> PathBuf {
    folder(unit).join(DROP_IN)
}

fn environment_file(unit: &Unit) -> PathBuf {
    folder(unit).join(ENVIRONMENT)
}

/// The drop-in. Variables of a file override those of the unit, and are not shown to other users.
fn text(file: &Path, variables: &[(String, Option<OsString>)]) -> String {
    let removed = variables.iter().filter(|(_, value)| value.is_none());
    let removed: String = removed.map(|(name, _)| format!("UnsetEnvironment={name}\n")).collect();
    let head = "# Written by hugewise compare, which removes it at its end.\n[Service]";
    // Specifiers begin with a percent sign.
    let file = file.display().to_string().replace('%', "%%");
    format!("{head}\nEnvironmentFile={file}\n{removed}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drop_in_sets_and_removes_variables() {
        let variables =
            [("JAVA_TOOL_OPTIONS".to_owned(), Some("-Da=b".into())), ("MALLOC_CONF".to_owned(), None)];
        let text = text(Path::new("/run/env"), &variables);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(lines, ["[Service]", "EnvironmentFile=/run/env", "UnsetEnvironment=MALLOC_CONF"]);
    }
}
