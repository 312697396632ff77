//! The process of a server: one that this program has started, or the main process of a systemd service.

use std::{
    io, thread,
    time::{Duration, Instant},
};

use hugewise_linux::{
    proc::task_stat::started,
    root::Root,
    sys::process::{ChildExit, GroupLeader},
    systemd::{Unit, systemctl},
};

use super::{
    READY_INTERVAL,
    processes::{self, is_running},
    unit,
};
use crate::execution::last_lines;

pub(super) enum ServerProcess {
    Child(GroupLeader),
    Unit(UnitProcess),
}

/// A service that systemd starts.
pub(super) struct UnitProcess {
    pub(super) unit: Unit,
    /// systemctl, until the service has started.
    start: Option<GroupLeader>,
    /// The main process of the service, with its start in clock ticks since boot.
    main: Option<(u32, u64)>,
}

impl UnitProcess {
    /// `start`: `systemctl start` of the unit.
    pub(super) fn starting(unit: Unit, start: GroupLeader) -> UnitProcess {
        UnitProcess { unit, start: Some(start), main: None }
    }

    /// Waits at most `timeout` for the end of the service, or of its start.
    fn wait_for_end(&mut self, timeout: Duration, root: &Root) -> io::Result<bool> {
        if let Some(start) = &mut self.start {
            let Some(ended) = start.wait(timeout)? else { return Ok(false) };
            self.start = None;
            let main = if ended.status.success() { self.unit.main_process()? } else { None };
            self.main = main.and_then(|pid| Some((pid, started(root, pid)?)));
        } else {
            thread::sleep(timeout);
        }
        Ok(!self.main.is_some_and(|(pid, ticks)| is_running(root, &(&pid, &ticks))))
    }
}

impl ServerProcess {
    /// `None` while a service starts, and if it could not be started.
    pub(super) fn pid(&self) -> Option<u32> {
        match self {
            ServerProcess::Child(leader) => Some(leader.pid()),
            ServerProcess::Unit(of_unit) => of_unit.main.map(|(pid, _)| pid),
        }
    }

    /// Waits at most `timeout` for its end.
    pub(super) fn wait_for_end(&mut self, timeout: Duration, root: &Root) -> io::Result<bool> {
        match self {
            ServerProcess::Child(leader) => leader.wait_for_end(timeout),
            ServerProcess::Unit(of_unit) => of_unit.wait_for_end(timeout, root),
        }
    }

    /// The end of its output for an error message, of which `output` is what it printed here.
    pub(super) fn last_lines(&self, output: &str) -> String {
        match self {
            ServerProcess::Child(_) => last_lines(output),
            ServerProcess::Unit(of_unit) => {
                last_lines(&format!("{output}\n{}", unit::last_messages(&of_unit.unit)))
            }
        }
    }

    /// Ends the server in order, and what is left of it after `timeout`; a service by systemd, with the timeouts of its
    /// unit. `None` if it did not end by itself.
    pub(super) fn stop(self, timeout: Duration, root: &Root) -> io::Result<Option<ChildExit>> {
        let mut leader = match self {
            ServerProcess::Child(leader) => leader,
            ServerProcess::Unit(of_unit) => {
                drop(of_unit.start);
                return systemctl(&["stop", of_unit.unit.name()]).map(|_| None);
            }
        };
        let remaining = processes::of(root, leader.pid());
        leader.terminate();
        let begin = Instant::now();
        let mut ended = None;
        while ended.is_none() && begin.elapsed() < timeout {
            ended = leader.wait(timeout.saturating_sub(begin.elapsed()).min(READY_INTERVAL))?;
        }
        drop(leader);
        processes::kill(root, &remaining);
        Ok(ended)
    }
}
