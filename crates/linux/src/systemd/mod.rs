//! Services of systemd.

mod environment;
pub mod environment_file;

use std::{
    fmt, io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    bounded_run::{self, Printed},
    reading::Reason,
    sys::process::{GroupLeader, Program},
};

pub use environment::UnitEnvironment;

/// Time limit of a question; systemd answers in some milliseconds.
const QUESTION_TIME_LIMIT: Duration = Duration::from_secs(10);
/// Time limit of a job. systemd limits the start and the end of a unit itself, usually to 90 s each.
const JOB_TIME_LIMIT: Duration = Duration::from_secs(900);

/// Ending of the units that start a program.
const ENDING: &str = ".service";

/// A service of systemd, by the name of its unit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Unit(String);

impl TryFrom<String> for Unit {
    type Error = Reason;

    fn try_from(text: String) -> Result<Unit, Reason> {
        Unit::parse(&text).ok_or_else(|| Reason::new("not the name of a systemd service"))
    }
}

impl Unit {
    /// Parses the name of a service, which ends in `.service`; `None` for any other text.
    ///
    /// Source: systemd.unit(5).
    pub fn parse(text: &str) -> Option<Unit> {
        let prefix = text.strip_suffix(ENDING)?;
        let is_name = !prefix.is_empty() && !prefix.starts_with('-') && prefix.chars().all(is_of_names);
        is_name.then(|| Unit(text.to_owned()))
    }

    pub fn name(&self) -> &str {
        &self.0
    }

    /// The program of its first `ExecStart=`; `None` if it has none.
    pub fn program(&self) -> io::Result<Option<PathBuf>> {
        let answer = ask(&["show", "--property=ExecStart", "--value", "--", &self.0])?;
        Ok(program_of(&answer))
    }

    /// Its main process; `None` if it does not run.
    pub fn main_process(&self) -> io::Result<Option<u32>> {
        let pid = ask(&["show", "--property=MainPID", "--value", "--", &self.0])?;
        Ok(pid.trim().parse().ok().filter(|pid| *pid != 0))
    }
}

/// The program in systemd's description of a command: `{ path=/bin/a ; argv[]=/bin/a -x ; … }`.
fn program_of(command: &str) -> Option<PathBuf> {
    let path = command.trim_start().strip_prefix("{ path=")?.split(" ; ").next()?;
    path.starts_with('/').then(|| PathBuf::from(path))
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The control group of a running unit of any type, as systemd names it, from the root of its hierarchy; `None` if it
/// has none, or systemd does not run. An error if systemd does not answer.
pub fn control_group(unit: &str) -> io::Result<Option<String>> {
    // Source: sd_booted(3).
    if !Path::new("/run/systemd/system").is_dir() || !unit.chars().all(is_of_names) {
        return Ok(None);
    }
    let group = ask(&["show", "--property=ControlGroup", "--value", "--", unit])?;
    Ok(Some(group.trim_end_matches('\n').to_owned()).filter(|group| !group.is_empty()))
}

/// Whether the name of a unit may contain the character (systemd.unit(5)).
fn is_of_names(c: char) -> bool {
    c.is_ascii_alphanumeric() || ":-_.\\@".contains(c)
}

/// Asks systemd by systemctl(1), which changes nothing; returns what it printed, or an error with its message.
fn ask(arguments: &[&str]) -> io::Result<String> {
    let ran = bounded_run::run_with_timeout(systemctl_with(arguments)?, QUESTION_TIME_LIMIT);
    printed(arguments, ran, QUESTION_TIME_LIMIT)
}

/// Runs systemctl(1) to its end, regardless of signals; returns what it printed, or an error with its message.
pub fn systemctl(arguments: &[&str]) -> io::Result<String> {
    let ran = bounded_run::run_regardless_of_signals(systemctl_with(arguments)?, JOB_TIME_LIMIT);
    printed(arguments, ran, JOB_TIME_LIMIT)
}

/// Starts a unit; the process ends when the unit has started, or has failed.
pub fn start(unit: &Unit, stdout: Stdio, stderr: Stdio) -> io::Result<GroupLeader> {
    let mut program = systemctl_with(&["start", unit.name()])?;
    program.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    program.start()
}

fn systemctl_with(arguments: &[&str]) -> io::Result<Program> {
    let mut program = Program::of_system("systemctl")?;
    program.args(arguments);
    Ok(program)
}

fn printed(arguments: &[&str], ran: io::Result<Option<Printed>>, limit: Duration) -> io::Result<String> {
    let failed = |why: String| io::Error::other(format!("systemctl {}: {why}", arguments.join(" ")));
    let ran = ran.map_err(|error| failed(error.to_string()))?;
    let ran = ran.ok_or_else(|| failed(format!("it did not end within {} s", limit.as_secs())))?;
    if ran.status.success() { Ok(ran.stdout) } else { Err(failed(ran.stderr.trim().to_owned())) }
}

/// Like [`systemctl`], but ends it after `timeout`; what systemd has begun goes on.
pub fn systemctl_within(timeout: Duration, arguments: &[&str]) -> io::Result<String> {
    let ran = bounded_run::run_regardless_of_signals(systemctl_with(arguments)?, timeout);
    printed(arguments, ran, timeout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_of_a_command_is_its_path() {
        let command = "{ path=/opt/a b/run ; argv[]=/opt/a b/run -x ; ignore_errors=no ; pid=0 }\n";
        assert_eq!(program_of(command), Some("/opt/a b/run".into()));
        assert_eq!((program_of(""), program_of("{ path=relative ; }")), (None, None));
    }

    #[test]
    fn only_names_of_services_are_units() {
        for name in ["tomcat10.service", "postgresql@15-main.service", "a\\x2db.service"] {
            assert_eq!(Unit::parse(name).as_ref().map(Unit::name), Some(name));
        }
        for word in ["", ".service", "-x.service", "./a.service", "a b.service", "a.socket", "a.service;"] {
            assert_eq!(Unit::parse(word), None, "{word}");
        }
    }
}
