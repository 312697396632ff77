use std::fs;

use super::*;

struct Watching;

impl Supervisor for Watching {
    fn on_entry(&mut self, _: &mut SystemCall) -> CallAction {
        CallAction::Make
    }
    fn on_return(&mut self, _: &SystemCall, _: i64) {}
    fn on_exec(&mut self, _: u32) {}
    fn on_exit(&mut self, _: u32) {}
}

/// Runs a script that leaves a daemon in a session of its own; returns the result and whether the daemon runs.
fn with_daemon(rest: &str, is_interrupted: bool) -> io::Result<(io::Result<ExitStatus>, bool)> {
    let dir = tempfile::tempdir()?;
    let pid = dir.path().join("pid");
    let script = format!(
        "setsid sh -c 'echo $$ > {0}; exec sleep 300' & until [ -s {0} ]; do :; done; {rest}",
        pid.display()
    );
    let mut program = Program::new("sh");
    program.args(["-c", &script]);
    let begin = Instant::now();
    let interrupt = || is_interrupted && pid.exists();
    let ended = supervise(program, &[], Duration::from_secs(2), &interrupt, &mut Watching);
    assert!(begin.elapsed() < Duration::from_secs(60), "the daemon was waited for");
    let daemon = fs::read_to_string(&pid)?;
    // One that has ended may wait for process 1.
    let stat = fs::read_to_string(format!("/proc/{}/stat", daemon.trim())).unwrap_or_default();
    let runs = stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"));
    Ok((ended, runs))
}

#[test]
fn a_daemon_in_its_own_session_ends_with_the_program() -> io::Result<()> {
    let (ended, runs) = with_daemon("exit 3", false)?;
    assert_eq!((ended?.code(), runs), (Some(3), false));
    Ok(())
}

#[test]
fn all_processes_end_at_the_time_limit_and_at_a_signal() -> io::Result<()> {
    for (is_interrupted, kind) in [(false, io::ErrorKind::TimedOut), (true, io::ErrorKind::Interrupted)] {
        let (ended, runs) = with_daemon("sleep 300", is_interrupted)?;
        assert_eq!((ended.map_err(|error| error.kind()), runs), (Err(kind), false));
    }
    Ok(())
}
