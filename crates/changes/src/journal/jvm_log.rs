//! JVM logs that a command switched on: state of another process, not a setting of the machine.

use std::{ffi::OsStr, fs, path::Path};

use hugewise_linux::{proc::process::Process, reading::Reason, root::Root, sys::file::inside};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    /// `None` if process `pid` or its start time cannot be read.
    pub fn of(root: &Root, pid: u32, file: String) -> Option<JvmLog> {
        let started = Process::read(root, pid).ok()?.started?;
        Some(JvmLog { pid, started, file })
    }

    /// True while the JVM that writes the log runs.
    pub fn is_running(&self, root: &Root) -> bool {
        Process::read(root, self.pid).is_ok_and(|process| process.started == Some(self.started))
    }

    /// Switches the log off. If the JVM has exited, only the file is removed.
    pub(super) fn end(&self, root: &Root, switch_off: &SwitchOff<'_>) -> Result<(), Reason> {
        if self.is_running(root) {
            return switch_off(self);
        }
        self.remove_file(root);
        Ok(())
    }

    /// Removes the log file, if its name begins with `.hugewise-`. A JVM that has it open continues to write.
    pub fn remove_file(&self, root: &Root) {
        let is_ours = |name: &&OsStr| name.to_string_lossy().starts_with(".hugewise-");
        let Some(name) = Path::new(&self.file).file_name().filter(is_ours) else { return };
        // A running JVM may have its own mount namespace; after its exit the file may still be in our /tmp.
        let _ = match self.is_running(root) {
            true => {
                inside::remove(&root.path(format!("proc/{}/root", self.pid)), &Path::new("tmp").join(name))
            }
            false => fs::remove_file(root.path("tmp").join(name)),
        };
    }
}

/// The [`SwitchOff`] of a caller that cannot attach to a JVM.
pub(super) fn leave_log_on(log: &JvmLog) -> Result<(), Reason> {
    Reason::err(format!("process {} still writes {}", log.pid, log.file))
}
