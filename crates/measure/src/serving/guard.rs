//! A process that ends a server and cleans up after it if hugewise is killed: the kernel kills only the first process
//! of the server then.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Write},
    path::Path,
    process::{Child, ChildStdin, Stdio},
    time::Duration,
};

use hugewise_changes::{
    drop_in::DropIn,
    journal::{JournalPlace, UnitChange, end_processes_of},
};
use hugewise_linux::{
    interrupt::Interrupt,
    proc::task_stat::started,
    root::Root,
    sys::{
        aside::Deadline,
        pidfd,
        process::{Program, kill_group},
        wait_readable,
    },
    users::Account,
};
use serde::{Deserialize, Serialize};

use super::processes::{Processes, is_running, kill, of};
use crate::execution::Launch;

/// Time between two looks at the server's processes: those that leave its process group are known from then on.
const INTERVAL: Duration = Duration::from_millis(100);
/// Longest search for processes of a server that left its process group.
const SEARCH_TIME_LIMIT: Duration = Duration::from_secs(10);
/// What the guard reads when the server has been ended, and its folder was cleaned up.
const ENDED: u8 = b'.';

/// What the guard does besides killing the server.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Work {
    /// The command to clean up with; empty if there is none.
    pub(super) cleanup: Vec<String>,
    /// User as whom it runs.
    pub(super) user: Option<Account>,
    /// The run id that all processes of the server carry in their environment, unless they have changed it.
    pub(super) run_id: Option<String>,
    /// The systemd service to start as it was.
    pub(super) unit: Option<UnitChange>,
    /// The journal that contains the service.
    pub(super) journal: Option<JournalPlace>,
}

/// The guard of a run.
#[derive(Debug)]
pub(super) struct Guard {
    process: Child,
    line: ChildStdin,
}

impl Guard {
    /// Starts the guard before the server.
    pub(super) fn start(program: &Path, work: &Work) -> io::Result<Guard> {
        let launch = Launch::worker(program, "server-guard", work);
        let mut command = Program::new(program);
        command.args(&launch.command[1..]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Ctrl-C is for hugewise, which ends the server in order.
        let mut process = command.start_survivor()?;
        let line = process.stdin.take().ok_or_else(|| io::Error::other("the guard has no input"))?;
        Ok(Guard { process, line })
    }

    /// Names the process group of the server, by its leader, which must not have been waited for.
    pub(super) fn watch(&mut self, pid: u32) -> io::Result<()> {
        let started = started(&Root::live(), pid).unwrap_or_default();
        self.line.write_all(&[&pid.to_ne_bytes()[..], &started.to_ne_bytes()].concat())
    }

    /// Ends the guard, after the server.
    pub(super) fn release(mut self) {
        let _ = self.line.write_all(&[ENDED]);
        drop(self.line);
        let _ = self.process.wait();
    }
}

/// Waits in this process until standard input ends; then kills the processes of the server and cleans up, unless the
/// server has ended.
pub fn watch(work: &Work) -> io::Result<()> {
    // A signal to all processes of a session or a service is for hugewise, which ends the server in order. Ignored ones
    // would be ignored by the command of the cleanup, too.
    let _ignored = Interrupt::install()?;
    let root = Root::live();
    let (mut known, mut read): (Processes, Vec<u8>) = (BTreeMap::new(), Vec::new());
    let mut leader = None;
    let stdin = io::stdin();
    loop {
        if wait_readable(&stdin, INTERVAL)? {
            let mut part = [0; LEADER_BYTES];
            match stdin.lock().read(&mut part) {
                Ok(0) => break,
                Ok(bytes) => read.extend_from_slice(&part[..bytes]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
        }
        leader = leader.or_else(|| Leader::named(&root, &read));
        if let Some(leader) = leader.as_ref().filter(|leader| leader.is_known(&root)) {
            known.append(&mut of(&root, leader.pid));
        }
    }
    if read.last() == Some(&ENDED) && read.len() % LEADER_BYTES == 1 {
        return Ok(());
    }
    // The first process has ended, and the others may have started more.
    let running = known.iter().filter(|known| is_running(&root, known));
    let last: Vec<Processes> = running.map(|(pid, _)| of(&root, *pid)).collect();
    if let Some(leader) = leader {
        leader.kill_group(&root)?;
    }
    [known].iter().chain(&last).for_each(|processes| kill(&root, processes));
    // Those that left the group between two looks. They may start more before they end.
    if let Some(run_id) = &work.run_id {
        let deadline = Deadline::after(SEARCH_TIME_LIMIT, None);
        while !end_processes_of(&root, run_id, &deadline).ended.is_empty() {}
    }
    if let Some(change) = &work.unit {
        DropIn::of(&change.unit, change.drop_in).undo()?;
        if let Some(journal) = &work.journal {
            // One that is not free is being restored, which does the same once more.
            let _ = journal.forget_unit(change);
        }
    }
    if !work.cleanup.is_empty() {
        let cleanup = Launch::aside(&work.cleanup, work.user.clone());
        let child = cleanup.start(Stdio::null(), Stdio::null(), Stdio::null()).map_err(io::Error::other)?;
        while !child.wait_for_end(INTERVAL)? {}
    }
    Ok(())
}

/// The size of a leader's name: its process id, and its start in clock ticks since boot.
const LEADER_BYTES: usize = size_of::<u32>() + size_of::<u64>();

/// The leader of the server's process group.
struct Leader {
    pid: u32,
    started: u64,
    /// `None` if it had ended before it was opened, or before Linux 5.3.
    pidfd: Option<File>,
}

impl Leader {
    /// `None` until it was named.
    fn named(root: &Root, read: &[u8]) -> Option<Leader> {
        let (pid, rest) = read.split_first_chunk()?;
        let (pid, started) = (u32::from_ne_bytes(*pid), u64::from_ne_bytes(*rest.first_chunk()?));
        let pidfd = pidfd::open(pid).ok();
        let leader = Leader { pid, started, pidfd };
        let is_known = leader.is_known(root);
        Some(Leader { pidfd: leader.pidfd.filter(|_| is_known), ..leader })
    }

    /// Whether its process id is not another process' by now.
    fn is_known(&self, root: &Root) -> bool {
        started(root, self.pid) == Some(self.started)
    }

    /// Kills its process group, but none that has got the same number since.
    fn kill_group(&self, root: &Root) -> io::Result<()> {
        match self.pidfd.as_ref().map(pidfd::kill_group) {
            Some(Ok(())) => Ok(()),
            // Before Linux 6.9. Without a leader, the processes of the group are found by other means.
            _ if self.is_known(root) => kill_group(self.pid),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::process::CommandExt, process::Command};

    use super::*;

    /// A shell that leads a process group of its own, with a child.
    fn group() -> io::Result<Child> {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 1000 & wait"]).process_group(0).stdin(Stdio::null()).spawn()
    }

    fn named(pid: u32, started: u64) -> Option<Leader> {
        Leader::named(&Root::live(), &[&pid.to_ne_bytes()[..], &started.to_ne_bytes()].concat())
    }

    #[test]
    fn only_the_group_of_the_leader_is_killed() -> io::Result<()> {
        let root = Root::live();
        let mut shell = group()?;
        let started = started(&root, shell.id()).ok_or(io::ErrorKind::NotFound)?;
        // Its number was another program's before.
        let earlier = named(shell.id(), started - 1).ok_or(io::ErrorKind::InvalidData)?;
        assert!(earlier.pidfd.is_none());
        earlier.kill_group(&root)?;
        assert!(shell.try_wait()?.is_none(), "another program was killed");
        named(shell.id(), started).ok_or(io::ErrorKind::InvalidData)?.kill_group(&root)?;
        assert!(!shell.wait()?.success());
        Ok(())
    }

    /// The leader was waited for, and its children run on: their group is known by its pidfd (Linux 6.9).
    #[test]
    fn a_group_without_its_leader_is_killed() -> io::Result<()> {
        let root = Root::live();
        let mut shell = group()?;
        let started = started(&root, shell.id()).ok_or(io::ErrorKind::NotFound)?;
        let leader = named(shell.id(), started).ok_or(io::ErrorKind::InvalidData)?;
        let mut children = Vec::new();
        while children.is_empty() {
            children = of(&root, shell.id()).into_iter().filter(|(pid, _)| *pid != shell.id()).collect();
        }
        shell.kill()?;
        shell.wait()?;
        let knows_groups = leader.pidfd.as_ref().is_some_and(|pidfd| pidfd::kill_group(pidfd).is_ok());
        leader.kill_group(&root)?;
        let (pid, ticks) = children[0];
        let begin = std::time::Instant::now();
        while knows_groups && is_running(&root, &(&pid, &ticks)) {
            assert!(begin.elapsed() < Duration::from_secs(60), "its child runs on");
            std::thread::sleep(Duration::from_millis(10));
        }
        kill(&root, &children.into_iter().collect());
        Ok(())
    }

    #[test]
    fn a_leader_is_named_whole() {
        assert!(Leader::named(&Root::live(), &[1; LEADER_BYTES - 1]).is_none());
    }
}
