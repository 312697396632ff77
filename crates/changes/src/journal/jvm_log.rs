//! JVM logs that a command switched on: state of another process, not a setting of the machine.

use std::{
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use hugewise_linux::{
    proc::task_stat,
    reading::Reason,
    root::Root,
    sys::{
        aside::{self, Deadline},
        file::inside,
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Longest wait for a lookup in the files of a process.
const LOOKUP_TIME_LIMIT: Duration = Duration::from_secs(if cfg!(test) { 20 } else { 1 });

/// A log switched on in a running JVM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JvmLog {
    /// The process id of the JVM.
    pub pid: u32,
    /// Start of the JVM in clock ticks since boot; identifies it if the pid is reused.
    #[serde(rename = "started_ticks", alias = "started")]
    pub started: u64,
    /// The log file `.hugewise-…` in /tmp, as a path in the JVM's mount namespace.
    pub file: String,
}

/// Switches a log off; the error is the reason why it stays on.
pub type SwitchOff<'a> = dyn Fn(&JvmLog) -> Result<(), Reason> + 'a;

impl JvmLog {
    /// `None` if the start time of process `pid` cannot be read.
    pub fn of(root: &Root, pid: u32, file: String) -> Option<JvmLog> {
        Some(JvmLog { pid, started: task_stat::started(root, pid)?, file })
    }

    /// True while the JVM that writes the log runs.
    pub fn is_running(&self, root: &Root) -> bool {
        task_stat::started(root, self.pid) == Some(self.started)
    }

    /// Switches the log off. If no JVM writes it, only the file is removed.
    pub(super) fn end(&self, root: &Root, switch_off: &SwitchOff<'_>) -> Result<(), Reason> {
        if self.is_running(root) && self.is_open(root).unwrap_or(true) {
            return switch_off(self);
        }
        self.remove_file(root);
        Ok(())
    }

    /// Whether the process has the log open, or the file exists: it may then be opened yet. The file of a log that is
    /// written has no name any more.
    fn is_open(&self, root: &Root) -> io::Result<bool> {
        let deadline = Deadline::after(LOOKUP_TIME_LIMIT, None);
        let found = aside::ask(&[], &deadline, 1, || {
            let folder = format!("proc/{}/fd", self.pid);
            let name = Path::new(&self.file).file_name().unwrap_or_default().to_string_lossy().into_owned();
            let is_it = |fd: &String| {
                let target = root.link(format!("{folder}/{fd}"));
                target.is_ok_and(|target| target.to_string_lossy().contains(&name))
            };
            let open = root.list(&folder).map_err(io::Error::other)?.iter().any(is_it);
            let exists = || match inside::entry(&self.root(root), Path::new(&self.file)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
                found => found.map(|_| true),
            };
            Ok(vec![u8::from(open || exists()?)])
        })?;
        Ok(found != [0])
    }

    /// The root of its mount namespace.
    fn root(&self, root: &Root) -> PathBuf {
        root.path(format!("proc/{}/root", self.pid))
    }

    /// Removes the log file, if its name begins with `.hugewise-`. A JVM that has it open continues to write.
    pub fn remove_file(&self, root: &Root) {
        let is_ours = |name: &&OsStr| name.to_string_lossy().starts_with(".hugewise-");
        let Some(name) = Path::new(&self.file).file_name().filter(is_ours) else { return };
        let deadline = Deadline::after(LOOKUP_TIME_LIMIT, None);
        // A running JVM may have its own mount namespace; after its exit the file may still be in our /tmp.
        let _ = aside::ask(&[], &deadline, 0, || {
            match self.is_running(root) {
                true => inside::remove(&self.root(root), &Path::new("tmp").join(name))?,
                false => fs::remove_file(root.path("tmp").join(name))?,
            }
            Ok(Vec::new())
        });
    }
}

/// The [`SwitchOff`] of a caller that cannot attach to a JVM.
pub(super) fn leave_log_on(log: &JvmLog) -> Result<(), Reason> {
    Reason::err(format!("process {} still writes {}", log.pid, log.file))
}
