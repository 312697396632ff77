//! Runs the program with a deadline, and with a limit of memory.

use std::{
    error::Error,
    fs,
    os::unix::process::ExitStatusExt,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use hugewise_linux::units::Bytes;

use crate::{
    memory_group::Group,
    start::{EndedProcess, Running, hugewise, is_busy},
};

/// Deadline of a command that should end at once.
pub const AT_ONCE: Duration = Duration::from_secs(10);
/// Deadline of a comparison, which may populate all free memory first, if the host takes it back.
pub const COMPARED: Duration = Duration::from_secs(120);
/// Limit of memory of a command that reads what others shape.
pub const CAGE: Bytes = Bytes(1 << 30);

/// Runs hugewise; fails if it has not ended within `limit`.
pub fn within(limit: Duration, arguments: &[&str]) -> Result<EndedProcess, Box<dyn Error>> {
    ends_within(limit, &mut hugewise(arguments))
}

/// Runs hugewise in a control group with a limit of memory; fails if it is killed, or has not ended within `limit`.
pub fn caged(memory: Bytes, limit: Duration, arguments: &[&str]) -> Result<EndedProcess, Box<dyn Error>> {
    let group = Group::with_limit(memory)?;
    let ended = ends_within(limit, &mut in_group(&group, &hugewise(arguments)))?;
    match ended.status.signal() {
        Some(9) => Err(format!("{arguments:?} was killed for lack of memory").into()),
        _ => Ok(ended),
    }
}

/// `command` in a control group.
pub fn in_group(group: &Group, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    let procs = group.0.join("cgroup.procs");
    shell.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(procs);
    shell.arg(command.get_program()).args(command.get_args());
    shell
}

/// Runs a command; fails if it has not ended within `limit`, and then kills it.
pub fn ends_within(limit: Duration, command: &mut Command) -> Result<EndedProcess, Box<dyn Error>> {
    let begin = Instant::now();
    loop {
        let ran = ended(Running::start(command)?, limit);
        let ran = ran.map_err(|error| format!("{command:?}: {error}"))?;
        // Of another test, which ends.
        if !is_busy(&ran.stderr) || begin.elapsed() > limit {
            return Ok(ran);
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Waits for the end of a process; after `limit` says what it waits for, and kills it.
pub fn ended(mut running: Running, limit: Duration) -> Result<EndedProcess, Box<dyn Error>> {
    if has_ended(&mut running, limit)? {
        return running.wait();
    }
    let state = state(running.child.id());
    running.child.kill()?;
    let outcome = if has_ended(&mut running, Duration::from_secs(2))? { "" } else { ", also after SIGKILL" };
    Err(format!("it had not ended after {} s: {state}{outcome}", limit.as_secs()).into())
}

/// Waits at most `limit` for the end of a process.
pub fn has_ended(running: &mut Running, limit: Duration) -> Result<bool, Box<dyn Error>> {
    let begin = Instant::now();
    while running.child.try_wait()?.is_none() {
        if begin.elapsed() > limit {
            return Ok(false);
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(true)
}

/// Sends each of the signals after `before`, then waits at most [`AT_ONCE`] for the end.
pub fn ends_by(signal: &str, mut running: Running, before: Duration) -> Result<EndedProcess, Box<dyn Error>> {
    if !has_ended(&mut running, before)? {
        running.signal(signal)?;
    }
    ended(running, AT_ONCE).map_err(|error| format!("after SIG{signal}, {error}").into())
}

/// What the threads of a process do, for a message.
fn state(pid: u32) -> String {
    let folder = format!("/proc/{pid}/task");
    let threads = fs::read_dir(folder).into_iter().flatten().flatten();
    let waits = threads.map(|thread| fs::read_to_string(thread.path().join("wchan")).unwrap_or_default());
    format!("its threads wait in {}", waits.collect::<Vec<_>>().join(", "))
}
