//! Services of systemd.

use std::{fmt, io, process::Stdio, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    bounded_run::{self, Printed},
    sys::process::{GroupLeader, Program},
};

/// Time limit of a question; systemd answers in some milliseconds.
const QUESTION_TIME_LIMIT: Duration = Duration::from_secs(10);
/// Time limit of a job. systemd limits the start and the end of a unit itself, usually to 90 s each.
const JOB_TIME_LIMIT: Duration = Duration::from_secs(900);

/// Ending of the units that start a program.
const ENDING: &str = ".service";

/// A service of systemd, by the name of its unit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Unit(String);

impl Unit {
    /// Parses the name of a service, which ends in `.service`; `None` for any other text.
    ///
    /// Source: systemd.unit(5).
    pub fn parse(text: &str) -> Option<Unit> {
        let is_of_names = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
        let prefix = text.strip_suffix(ENDING)?;
        let is_name = !prefix.is_empty() && !prefix.starts_with('-') && prefix.chars().all(is_of_names);
        is_name.then(|| Unit(text.to_owned()))
    }

    pub fn name(&self) -> &str {
        &self.0
    }

    /// Its main process; `None` if it does not run.
    pub fn main_process(&self) -> io::Result<Option<u32>> {
        let pid = ask(&["show", "--property=MainPID", "--value", &self.0])?;
        Ok(pid.trim().parse().ok().filter(|pid| *pid != 0))
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
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

/// A line of a file for `EnvironmentFile=`.
///
/// Source: systemd.exec(5); as in a shell, these characters are special between double quotes.
pub fn environment_line(name: &str, value: &str) -> String {
    let mut line = format!("{name}=\"");
    for c in value.chars() {
        if matches!(c, '"' | '\\' | '$' | '`') {
            line.push('\\');
        }
        line.push(c);
    }
    line + "\"\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_services_are_units() {
        for name in ["tomcat10.service", "postgresql@15-main.service", "a\\x2db.service"] {
            assert_eq!(Unit::parse(name).as_ref().map(Unit::name), Some(name));
        }
        for word in ["", ".service", "-x.service", "./a.service", "a b.service", "a.socket", "a.service;"] {
            assert_eq!(Unit::parse(word), None, "{word}");
        }
    }

    #[test]
    fn values_are_quoted() {
        assert_eq!(environment_line("A", "b c"), "A=\"b c\"\n");
        assert_eq!(environment_line("A", r#""$x" \`%"#), "A=\"\\\"\\$x\\\" \\\\\\`%\"\n");
    }
}
