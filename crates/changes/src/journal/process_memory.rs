//! Memory that a command moves between base and huge pages: state of another process, not a setting of the machine.

use hugewise_linux::{proc::task_stat, reading::Reason, root::Root};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::jvm_log::{SwitchOff, leave_log_on};

/// The pages of a process before a command moved its memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessMemory {
    /// The process id.
    pub pid: u32,
    /// Start of the process in clock ticks since boot; identifies it if the pid is reused.
    #[serde(rename = "started_ticks")]
    pub started: u64,
    /// The regions whose memory is moved, as the command's option `--region` names them.
    pub region: String,
    /// The addresses that were on huge pages: first, and first after the range. All other memory of the regions
    /// was on base pages.
    pub huge: Vec<[u64; 2]>,
}

/// Memory that could not be put back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RemainingMemory {
    #[serde(flatten)]
    pub memory: ProcessMemory,
    /// Why it could not be put back.
    pub reason: String,
}

/// Puts memory back on its pages; the error is the reason why it stays as it is.
pub type PutBack<'a> = dyn Fn(&ProcessMemory) -> Result<(), Reason> + 'a;

/// How changes in other processes are undone. The default leaves them.
#[derive(Clone, Copy)]
pub struct ProcessUndo<'a> {
    pub switch_off: &'a SwitchOff<'a>,
    pub put_back: &'a PutBack<'a>,
}

impl Default for ProcessUndo<'_> {
    fn default() -> Self {
        ProcessUndo { switch_off: &leave_log_on, put_back: &leave_memory }
    }
}

fn leave_memory(memory: &ProcessMemory) -> Result<(), Reason> {
    Reason::err(format!("the memory of process {} is on the pages of a turn", memory.pid))
}

impl ProcessMemory {
    /// Puts the memory back, if the process still runs.
    pub(super) fn end(&self, root: &Root, put_back: &PutBack<'_>) -> Result<(), Reason> {
        let is_running = task_stat::started(root, self.pid) == Some(self.started);
        if is_running { put_back(self) } else { Ok(()) }
    }
}
