//! The result of a restore, and the restoring of one setting.

use std::{
    io,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use hugewise_linux::{reading::Reason, root::Root, settings::Setting};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    Entry, JvmLog, ProcessMemory, RemainingMemory, RemainingUnit, UnitChange, applied::ChangedSince,
};
use crate::write::write;

/// Longest time in which pools release the pages of dying processes.
const RELEASE_TIME_LIMIT: Duration = Duration::from_secs(20);
/// Longest time without a change: what is in use then is another process' and stays so.
const NO_CHANGE_TIME_LIMIT: Duration = Duration::from_secs(2);
/// Time between two readings of a pool.
const RELEASE_INTERVAL: Duration = Duration::from_millis(20);

/// The result of a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Restored {
    /// The command whose settings were restored; `null` if there was no journal.
    pub purpose: Option<String>,
    /// Settings restored to their value before the command.
    pub settings: Vec<Entry>,
    /// Settings that could not be restored, with the reason.
    pub failed: Vec<NotRestored>,
    /// Settings changed by `apply` and restored to their value before it.
    pub undone: Vec<Entry>,
    /// Settings skipped because another program changed them after Hugewise did.
    pub changed_since: Vec<ChangedSince>,
    /// systemd services that are as they were before the command.
    pub units: Vec<UnitChange>,
    /// systemd services that could not be put back, with the reason.
    pub units_left: Vec<RemainingUnit>,
    /// Process ids of the killed run's remaining children, which were ended.
    pub ended_processes: Vec<u32>,
    /// Number of processes that did not answer whether they are of the killed run.
    pub unread_processes: usize,
    /// JVM logs that were switched off.
    pub jvm_logs: Vec<JvmLog>,
    /// JVM logs that are still on, with the reason.
    pub jvm_logs_left: Vec<RemainingJvmLog>,
    /// Memory of processes that is on its pages again, or whose process has ended.
    pub memory: Vec<ProcessMemory>,
    /// Memory of processes that could not be put back, with the reason.
    pub memory_left: Vec<RemainingMemory>,
    /// Why the journal or the list of applied settings remains although its settings are restored, for example
    /// on a read-only /run; `null` if it is removed.
    pub journal_left: Option<String>,
    /// True if the machine was rebooted since, so that there was nothing to restore.
    pub rebooted: bool,
    /// Journals in other mount namespaces, or settings of them, that are not restored, with the reason; `null` if there
    /// are none.
    pub elsewhere: Option<String>,
    /// Processes of other mount namespaces that were not searched for a journal, because the lookup did not end in time.
    pub not_looked_into: Vec<u32>,
    /// Files of the journal that are damaged.
    pub damaged: Vec<DamagedFile>,
    /// The pid and command of a running recording, which restores its own settings when it ends; `null` if
    /// there is none.
    pub recording: Option<String>,
}

/// A file of the journal that is damaged, or none of ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DamagedFile {
    /// Its path.
    pub file: PathBuf,
    /// What is wrong with it.
    pub reason: String,
    /// Settings that can be read in it, with their values before the change; they are not restored.
    pub readable: Vec<Entry>,
    /// Where it was moved to, with `--set-aside`; `null` if it was not.
    pub set_aside: Option<PathBuf>,
}

/// A setting that could not be restored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NotRestored {
    #[serde(flatten)]
    pub entry: Entry,
    /// Why it could not be restored.
    pub reason: String,
}

/// A JVM log that is still on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RemainingJvmLog {
    #[serde(flatten)]
    pub log: JvmLog,
    /// Why it could not be switched off.
    pub reason: String,
}

impl Restored {
    /// Adds the command of a journal.
    pub(super) fn add_purpose(&mut self, purpose: &str) {
        self.purpose = Some(match self.purpose.take() {
            Some(earlier) => format!("{earlier}, and {purpose}"),
            None => purpose.to_owned(),
        });
    }
}

/// How a restore treats settings that another program changed after Hugewise did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignChanges {
    /// Skip and report the setting.
    Leave,
    /// Restore the value from before the change.
    Overwrite,
}

/// What a restore does with files of the journal that are damaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DamagedFiles {
    /// Reports them.
    #[default]
    Keep,
    /// Moves them away, so that they are no longer taken for a journal.
    SetAside,
}

/// Writes the old value and reads it back; false for a pool that has not reached it yet.
///
/// A setting that has its old value is not written: the change may have failed, and /sys may be read-only.
pub(super) fn put_back(root: &Root, entry: &Entry) -> Result<bool, Reason> {
    if entry.setting.read(root)? != entry.was {
        write(entry.setting, root, &entry.was)?;
    }
    let now = entry.setting.read(root)?;
    match now == entry.was {
        true => Ok(true),
        false if matches!(entry.setting, Setting::Pool { .. }) => Ok(false),
        false => Reason::err(format!("wrote {}, the kernel still reports {now}", entry.was)),
    }
}

/// Repeats [`put_back`] for a setting that could not be restored at once, while dying processes release memory.
pub(super) fn settle(root: &Root, entry: &Entry) -> Result<(), Reason> {
    let mut progress = Progress::begin();
    loop {
        let (now, write_error) = (entry.setting.read(root)?, write_back(root, entry));
        match write_error {
            Err(error) if !is_temporary(&error) => return Err(error.into()),
            written => {
                if entry.setting.read(root)? == entry.was {
                    return Ok(());
                }
                if !progress.goes_on(&now) {
                    written?;
                    return Reason::err(format!("wrote {}, the kernel still reports {now}", entry.was));
                }
            }
        }
    }
}

fn write_back(root: &Root, entry: &Entry) -> io::Result<()> {
    write(entry.setting, root, &entry.was)
}

/// Whether the kernel may accept the value once other processes have ended.
pub(super) fn is_temporary(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::ENOMEM | libc::EINTR | libc::EAGAIN))
}

/// Waits until pools have released the pages of dying processes: lowering a pool makes the pages in use surplus ones,
/// which return to the system when their users end. Those that remain are in use by another process.
pub(super) fn wait_for_release(root: &Root, entries: &[&Entry]) {
    let mut progress = Progress::begin();
    loop {
        let surplus =
            |entry: &&&Entry| entry.setting.surplus(root).unwrap_or(0).saturating_sub(entry.surplus);
        let left: u64 = entries.iter().map(|entry| surplus(&entry)).sum();
        if left == 0 || !progress.goes_on(&left.to_string()) {
            return;
        }
    }
}

/// A wait that ends when nothing changes any more.
struct Progress {
    begin: Instant,
    changed: Instant,
    state: String,
}

impl Progress {
    fn begin() -> Progress {
        Progress { begin: Instant::now(), changed: Instant::now(), state: String::new() }
    }

    /// Waits a moment; false if `state` has not changed for long, or the wait has taken too long.
    fn goes_on(&mut self, state: &str) -> bool {
        if self.state != state {
            (self.changed, self.state) = (Instant::now(), state.to_owned());
        }
        if self.begin.elapsed() > RELEASE_TIME_LIMIT || self.changed.elapsed() > NO_CHANGE_TIME_LIMIT {
            return false;
        }
        thread::sleep(RELEASE_INTERVAL);
        true
    }
}
