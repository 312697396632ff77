//! Starts the program, and finds processes that it left running.

use std::{
    env,
    error::Error,
    fs::{self, File},
    io::{Read, Seek},
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{self, Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use hugewise_measure::comparison::{Comparison, Round};

use crate::{
    documents::check_document,
    settings::{JOURNAL, MAX_WAIT_TIME, RECORDING},
};

/// Environment variable with the path of a program to test in place of the built one.
const BINARY: &str = "HUGEWISE_BINARY";
/// Environment variable of all processes that these tests start.
pub const MARKER: &str = "HUGEWISE_MACHINE_TEST";
/// Longest wait for processes that were ended to be gone.
const MAX_EXIT_TIME: Duration = Duration::from_secs(120);
/// Part of the message when another process holds the journal.
pub const BUSY: &str = "another hugewise process has locked the settings";
/// Part of the message when another process records.
const RECORDING_BUSY: &str = "another recording is running";
/// Exit status of a comparison with too few blocks for a verdict.
pub const INCONCLUSIVE: i32 = 3;
/// The shortest comparison of the embedded workload.
pub const QUICK_RUN: [&str; 6] = ["compare", "--no-java", "--bytes", "100000000", "--rounds", "1"];

/// A process that has ended.
#[derive(Debug)]
pub struct EndedProcess {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl EndedProcess {
    /// Fails unless the exit status is `expected` and the process did not panic.
    pub fn ended_with(self, expected: i32) -> Result<EndedProcess, Box<dyn Error>> {
        if self.status.code() != Some(expected) || self.stderr.contains("panicked") {
            return Err(format!("{expected} was expected as exit status, without a panic: {self:#?}").into());
        }
        Ok(self)
    }

    /// The comparison in its standard output.
    pub fn comparison(&self) -> Result<Comparison, Box<dyn Error>> {
        serde_json::from_str(&self.stdout).map_err(|error| format!("{error}: {self:#?}").into())
    }
}

/// A process that is running.
pub struct Running {
    pub child: Child,
    stdout: File,
    stderr: File,
}

impl Running {
    /// Starts `command` with its output redirected to files, so that it never blocks on a pipe.
    pub fn start(command: &mut Command) -> Result<Running, Box<dyn Error>> {
        let (stdout, stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
        let child = command
            .env(MARKER, process::id().to_string())
            .stdin(Stdio::null())
            .stdout(stdout.try_clone()?)
            .stderr(stderr.try_clone()?)
            .spawn()?;
        Ok(Running { child, stdout, stderr })
    }

    /// Starts `make()` and waits until it has the journal; starts it again while another process has it.
    pub fn holding_the_journal(make: &dyn Fn() -> Command) -> Result<Running, Box<dyn Error>> {
        let begin = Instant::now();
        loop {
            let mut running = Running::start(&mut make())?;
            let owner = format!("\"owner\": {},", running.child.id());
            while running.child.try_wait()?.is_none() {
                let holds = |file| fs::read_to_string(file).is_ok_and(|journal| journal.contains(&owner));
                if holds(JOURNAL) || holds(RECORDING) {
                    return Ok(running);
                }
                thread::sleep(Duration::from_millis(1));
            }
            let ran = running.wait()?;
            if !is_busy(&ran.stderr) || begin.elapsed() > MAX_WAIT_TIME {
                return Err(format!("it ended without ever having the journal: {ran:#?}").into());
            }
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// Waits for the end of the process, and kills it after [`MAX_WAIT_TIME`]. Checks JSON against its schema.
    pub fn wait(mut self) -> Result<EndedProcess, Box<dyn Error>> {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if begin.elapsed() > MAX_WAIT_TIME {
                self.child.kill()?;
                break self.child.wait()?;
            }
            thread::sleep(Duration::from_millis(2));
        };
        let text = |mut file: File| -> std::io::Result<String> {
            file.rewind()?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let ran = EndedProcess { status, stdout: text(self.stdout)?, stderr: text(self.stderr)? };
        check_document(&ran.stdout).map_err(|error| format!("{error}, in {ran:#?}"))?;
        Ok(ran)
    }

    /// Sends a signal by name.
    pub fn signal(&self, name: &str) -> Result<(), Box<dyn Error>> {
        send(name, self.child.id())
    }
}

/// Path of the tested program: the built one, unless [`BINARY`] names another.
pub fn program() -> PathBuf {
    env::var_os(BINARY).map_or_else(|| env!("CARGO_BIN_EXE_hugewise").into(), PathBuf::from)
}

/// A command that starts the tested program.
pub fn hugewise(arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(arguments);
    for variable in ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "GLIBC_TUNABLES", "JAVA_HOME"]
    {
        command.env_remove(variable);
    }
    command
}

/// Runs the built program; again while another process holds the journal.
pub fn run(arguments: &[&str]) -> Result<EndedProcess, Box<dyn Error>> {
    run_command(&|| hugewise(arguments))
}

/// Runs the command that `make` returns; again while another process holds the journal.
pub fn run_command(make: &dyn Fn() -> Command) -> Result<EndedProcess, Box<dyn Error>> {
    let begin = Instant::now();
    loop {
        let ran = Running::start(&mut make())?.wait()?;
        if ran.status.signal() == Some(9) {
            return Err(format!("it hung, or was killed: {ran:#?}").into());
        }
        if !is_busy(&ran.stderr) || begin.elapsed() > MAX_WAIT_TIME {
            return Ok(ran);
        }
        thread::sleep(Duration::from_millis(200));
    }
}

/// Whether another process has the journal, by what hugewise says.
pub fn is_busy(stderr: &str) -> bool {
    [BUSY, RECORDING_BUSY].iter().any(|part| stderr.contains(part))
}

/// Waits until `is` returns true; fails after [`MAX_WAIT_TIME`].
pub fn wait_until(
    what: &str,
    mut is: impl FnMut() -> Result<bool, Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let begin = Instant::now();
    while !is()? {
        if begin.elapsed() > MAX_WAIT_TIME {
            return Err(format!("not within {} s: {what}", MAX_WAIT_TIME.as_secs()).into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Ids and names of processes of these tests that still run after [`MAX_EXIT_TIME`]; they are killed, so that one
/// failure does not become one of each later test.
pub fn left_running() -> Vec<String> {
    let begin = Instant::now();
    loop {
        let left = marked();
        // A killed process may still be releasing its memory.
        if left.is_empty() || begin.elapsed() > MAX_EXIT_TIME {
            left.iter().for_each(|process| drop(send("KILL", process.id)));
            return left.iter().map(|process| format!("{} {}", process.id, process.name)).collect();
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Kills programs that hugewise started and does not end, and waits for the end of hugewise's own processes.
pub fn kill_programs() -> Result<(), Box<dyn Error>> {
    wait_until("the end of hugewise's processes", || {
        let left = marked();
        // A child that was just forked has the name of hugewise until it executes the program.
        let programs = left.iter().filter(|process| process.name != "hugewise");
        programs.for_each(|process| drop(send("KILL", process.id)));
        Ok(left.is_empty())
    })
}

/// A process that these tests started, or a descendant of one.
struct Marked {
    id: u32,
    name: String,
}

fn marked() -> Vec<Marked> {
    let marker = format!("{MARKER}={}", process::id());
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|id| {
        let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == marker.as_bytes())
    })
    .map(|id| {
        let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
        Marked { id, name: name.trim().to_owned() }
    })
    .collect()
}

/// Sends a signal by name.
fn send(name: &str, id: u32) -> Result<(), Box<dyn Error>> {
    let sent = Command::new("sh").args(["-c", "kill -s \"$0\" \"$1\"", name, &id.to_string()]).status()?;
    if sent.success() { Ok(()) } else { Err(format!("SIG{name} could not be sent to {id}").into()) }
}

/// The rounds of one backing, including warm-ups.
pub fn rounds<'a>(comparison: &'a Comparison, backing: &str) -> Result<Vec<&'a Round>, Box<dyn Error>> {
    let arm = comparison.design.arms.iter().position(|arm| arm.to_string() == backing);
    let arm = arm.ok_or_else(|| format!("{backing} is not among the arms"))?;
    let rounds: Vec<&Round> = comparison.rounds.iter().filter(|round| round.arm == arm).collect();
    if rounds.is_empty() {
        return Err(format!(
            "{backing} did not run; skipped: {:?}; notes: {:?}",
            comparison.left_out, comparison.notes
        )
        .into());
    }
    Ok(rounds)
}

/// Fails unless every round of `backing` counts and has at least this coverage.
pub fn covered(comparison: &Comparison, backing: &str, least: f64) -> Result<(), Box<dyn Error>> {
    for round in rounds(comparison, backing)? {
        if round.fell_back.is_some() || round.coverage.is_none_or(|share| share < least) {
            return Err(format!("coverage of at least {least} was expected on {backing}: {round:?}").into());
        }
    }
    Ok(())
}

/// The reason why `backing` was skipped.
pub fn reason_left_out<'a>(comparison: &'a Comparison, backing: &str) -> Result<&'a str, Box<dyn Error>> {
    let found = comparison.left_out.iter().find(|out| comparison.design.arms[out.arm].to_string() == backing);
    found
        .map(|out| out.reason.as_str())
        .ok_or_else(|| format!("{backing} was not skipped: {comparison:#?}").into())
}

/// Fails unless `text` contains each of `words`.
pub fn says(text: &str, words: &[&str]) -> Result<(), Box<dyn Error>> {
    for word in words {
        if !text.contains(word) {
            return Err(format!("'{word}' was expected in: {text}").into());
        }
    }
    Ok(())
}
