//! What was switched on in another process, which is no setting of the machine.

use std::{ffi::OsStr, fs, path::Path};

use hugewise_linux::{proc::process::Process, root::Root};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A log that a running JVM was asked to write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JvmLog {
    /// The JVM.
    pub pid: u32,
    /// Its start in ticks since boot, which tells it from a later process of this number.
    pub started: u64,
    /// The log's file in its /tmp, `.hugewise-…`, as the JVM sees it.
    pub file: String,
}

/// Switches a log off, or says why it could not.
pub type SwitchOff<'a> = dyn Fn(&JvmLog) -> Result<(), String> + 'a;

impl JvmLog {
    /// A log of the process that runs as `pid` now.
    #[must_use]
    pub fn of(root: &Root, pid: u32, file: String) -> Option<JvmLog> {
        let started = Process::read(root, pid).ok()?.started?;
        Some(JvmLog { pid, started, file })
    }

    /// Does the JVM run that wrote it?
    #[must_use]
    pub fn is_there(&self, root: &Root) -> bool {
        Process::read(root, self.pid).is_ok_and(|process| process.started == Some(self.started))
    }

    /// Switches it off; a JVM that has ended took its log along.
    pub(super) fn end(&self, root: &Root, switch_off: &SwitchOff<'_>) -> Result<(), String> {
        if self.is_there(root) {
            return switch_off(self);
        }
        self.remove_file(root);
        Ok(())
    }

    /// Removes the log's file, if it has still its name. One that the JVM writes to lives on without.
    pub fn remove_file(&self, root: &Root) {
        // The JVM's folders where it runs; its file may be among ours where it does not.
        let tmp = if self.is_there(root) { format!("proc/{}/root/tmp", self.pid) } else { "tmp".to_owned() };
        let is_ours = |name: &&OsStr| name.to_string_lossy().starts_with(".hugewise-");
        if let Some(name) = Path::new(&self.file).file_name().filter(is_ours) {
            let _ = fs::remove_file(root.path(tmp).join(name));
        }
    }
}

/// Whoever has no means to reach a JVM.
pub(super) fn left_to_restore(log: &JvmLog) -> Result<(), String> {
    Err(format!("process {} still writes {}", log.pid, log.file))
}
