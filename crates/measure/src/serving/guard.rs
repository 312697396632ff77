//! A process that ends a server and cleans up after it if hugewise is killed: the kernel kills only the first process
//! of the server then.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    path::Path,
    process::{Child, ChildStdin, Stdio},
    time::Duration,
};

use hugewise_changes::journal::end_processes_of;
use hugewise_linux::{
    root::Root,
    sys::{
        process::{Program, kill_group},
        wait_readable,
    },
    systemd::Unit,
    users::Account,
};
use serde::{Deserialize, Serialize};

use super::{
    processes::{Processes, is_running, kill, of},
    unit::DropIn,
};
use crate::execution::Launch;

/// Time between two looks at the server's processes: those that leave its process group are known from then on.
const INTERVAL: Duration = Duration::from_millis(100);
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
    pub(super) unit: Option<Unit>,
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

    /// Names the process group of the server, by its leader.
    pub(super) fn watch(&mut self, pid: u32) -> io::Result<()> {
        self.line.write_all(&pid.to_ne_bytes())
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
    let root = Root::live();
    let (mut known, mut read): (Processes, Vec<u8>) = (BTreeMap::new(), Vec::new());
    let stdin = io::stdin();
    loop {
        if wait_readable(&stdin, INTERVAL)? {
            let mut part = [0; size_of::<u32>()];
            match stdin.lock().read(&mut part)? {
                0 => break,
                bytes => read.extend_from_slice(&part[..bytes]),
            }
        }
        if let Some(pid) = leader(&read) {
            known.append(&mut of(&root, pid));
        }
    }
    if read.last() == Some(&ENDED) && read.len() % size_of::<u32>() == 1 {
        return Ok(());
    }
    // The first process has ended, and the others may have started more.
    let running = known.iter().filter(|known| is_running(&root, known));
    let last: Vec<Processes> = running.map(|(pid, _)| of(&root, *pid)).collect();
    if let Some(pid) = leader(&read) {
        kill_group(pid)?;
    }
    [known].iter().chain(&last).for_each(|processes| kill(&root, processes));
    // Those that left the group between two looks. They may start more before they end.
    if let Some(run_id) = &work.run_id {
        while !end_processes_of(&root, run_id).is_empty() {}
    }
    if let Some(unit) = &work.unit {
        DropIn::of_compare(unit).undo()?;
    }
    if !work.cleanup.is_empty() {
        let cleanup = Launch::aside(&work.cleanup, work.user.clone());
        let child = cleanup.start(Stdio::null(), Stdio::null(), Stdio::null()).map_err(io::Error::other)?;
        while !child.wait_for_end(INTERVAL)? {}
    }
    Ok(())
}

/// The leader of the server's process group, once it was named.
fn leader(read: &[u8]) -> Option<u32> {
    read.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}
