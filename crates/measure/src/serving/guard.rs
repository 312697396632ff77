//! A process that ends a server if hugewise is killed: the kernel kills only the first process of the server then.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    time::Duration,
};

use hugewise_linux::{
    root::Root,
    sys::{process::kill_group, wait_readable},
};

use super::processes::{Processes, is_running, kill, of};
use crate::execution::Launch;

/// Time between two looks at the server's processes: those that leave its process group are known from then on.
const INTERVAL: Duration = Duration::from_millis(100);
/// What the guard reads when the server has been ended.
const ENDED: &[u8] = b".";

/// The guard of a running server.
pub(super) struct Guard {
    process: Child,
    line: ChildStdin,
}

impl Guard {
    /// Starts the guard of the process group that `pid` leads.
    pub(super) fn start(program: &Path, pid: u32) -> io::Result<Guard> {
        let launch = Launch::worker(program, "server-guard", &pid);
        let mut command = Command::new(program);
        command.args(&launch.command[1..]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Ctrl-C is for hugewise, which ends the server in order.
        let mut process = command.process_group(0).spawn()?;
        let line = process.stdin.take().ok_or_else(|| io::Error::other("the guard has no input"))?;
        Ok(Guard { process, line })
    }

    /// Ends the guard, after the server.
    pub(super) fn release(mut self) {
        let _ = self.line.write_all(ENDED);
        drop(self.line);
        let _ = self.process.wait();
    }
}

/// Waits in this process until standard input ends; kills the processes of the server if nothing was read.
pub fn watch(pid: u32) -> io::Result<()> {
    let root = Root::live();
    let mut known: Processes = BTreeMap::new();
    let stdin = io::stdin();
    while !wait_readable(&stdin, INTERVAL)? {
        known.append(&mut of(&root, pid));
    }
    let mut read = Vec::new();
    stdin.lock().read_to_end(&mut read)?;
    if read != ENDED {
        // The first process has ended, and the others may have started more.
        let running = known.iter().filter(|known| is_running(&root, known));
        let last: Vec<Processes> = running.map(|(pid, _)| of(&root, *pid)).collect();
        kill_group(pid)?;
        [known].iter().chain(&last).for_each(|processes| kill(&root, processes));
    }
    Ok(())
}
