//! Processes as arguments name them: by their id, or by the unit, the container or the control group that they run in.

use std::str::FromStr;

use anyhow::bail;
use hugewise_jvm::regions::is_hotspot;
use hugewise_linux::{
    cgroup::processes::{self, GroupName},
    proc::tree,
    reading::Reason,
    root::Root,
    systemd::Unit,
};

use crate::output::{standard_error, terminal::plain};

/// An argument that names processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessArgument {
    Process(u32),
    /// Those in a control group and its descendants.
    Group(GroupName),
}

impl FromStr for ProcessArgument {
    type Err = Reason;

    fn from_str(text: &str) -> Result<ProcessArgument, Reason> {
        match (text.parse(), GroupName::parse(text)) {
            (Ok(pid), _) if pid > 0 => Ok(ProcessArgument::Process(pid)),
            (_, Some(group)) => Ok(ProcessArgument::Group(group)),
            (_, None) => Reason::err(
                "expected a process id, a unit as NAME.service, a container id of at least 12 digits, or the path of a \
                 control group",
            ),
        }
    }
}

impl ProcessArgument {
    /// The systemd service that it names.
    pub fn service(&self) -> Option<Unit> {
        match self {
            ProcessArgument::Group(GroupName::Unit(unit)) => Unit::parse(unit),
            _ => None,
        }
    }

    /// All processes that it names; those of a group must be one at least.
    pub fn processes(&self, root: &Root) -> anyhow::Result<Vec<u32>> {
        let group = match self {
            ProcessArgument::Process(pid) => return Ok(vec![*pid]),
            ProcessArgument::Group(group) => group,
        };
        let pids = processes::read(root, group).map_err(anyhow::Error::msg)?;
        if pids.is_empty() {
            bail!("no process runs in {group}");
        }
        Ok(pids)
    }

    /// The process that it names: of a group the only JVM, or else the one that was started from outside. Says which one
    /// of several it took.
    pub fn process(&self, root: &Root) -> anyhow::Result<u32> {
        let pids = self.processes(root)?;
        let group = match (self, &pids[..]) {
            (ProcessArgument::Group(group), [_, _, ..]) => group,
            (_, [pid, ..]) => return Ok(*pid),
            (_, []) => bail!("no process was named"),
        };
        let jvms: Vec<u32> = pids.iter().copied().filter(|pid| is_hotspot(root, *pid)).collect();
        let is_outside = |pid: &u32| tree::parent(root, *pid).is_some_and(|parent| !pids.contains(&parent));
        let first: Vec<u32> = pids.iter().copied().filter(is_outside).collect();
        let describe = |pid: u32| {
            let name = root.read(format!("proc/{pid}/comm")).unwrap_or_else(|_| "ended".to_owned());
            format!("{pid} ({})", plain(name.trim_end()))
        };
        match (&jvms[..], &first[..]) {
            ([pid], _) | ([], [pid]) => {
                let (count, taken) = (pids.len(), describe(*pid));
                standard_error::say(format_args!("{group} has {count} processes; takes {taken}"));
                Ok(*pid)
            }
            (jvms, first) => {
                // None seems to come from outside if the group changed while it was read.
                let candidates = [jvms, first, &pids].into_iter().find(|found| !found.is_empty());
                let candidates: Vec<String> =
                    candidates.unwrap_or_default().iter().copied().map(describe).collect();
                bail!("{group} has several programs; name a process: {}", candidates.join(", "))
            }
        }
    }
}
