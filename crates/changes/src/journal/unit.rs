//! systemd services that a command stops, or starts with other variables: state of systemd, not a setting of the machine.

use std::{
    thread,
    time::{Duration, Instant},
};

use hugewise_linux::{
    reading::Reason,
    systemd::{Unit, systemctl_within},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::drop_in::{DropIn, DropInOwner};

/// Longest wait for one answer of systemd.
const ANSWER_TIME_LIMIT: Duration = Duration::from_secs(10);
/// Longest wait for the start or stop of a service, which its own program can delay.
const STATE_TIME_LIMIT: Duration = Duration::from_secs(10);
/// Time between two queries of the state of a service.
const STATE_INTERVAL: Duration = Duration::from_millis(100);

/// A service before a command changed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnitChange {
    /// The name of the service.
    #[schemars(with = "String")]
    pub unit: Unit,
    /// The command whose drop-in sets other variables.
    pub drop_in: DropInOwner,
    /// Whether it ran.
    pub was_running: bool,
}

/// A service that is not as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RemainingUnit {
    #[serde(flatten)]
    pub change: UnitChange,
    /// Why it could not be put back.
    pub reason: String,
}

impl UnitChange {
    /// Removes the drop-in, and restarts the service if it ran, or stops it.
    pub(super) fn undo(&self) -> Result<(), Reason> {
        let drop_in = DropIn::of(&self.unit, self.drop_in);
        drop_in.remove_files()?;
        systemctl_within(ANSWER_TIME_LIMIT, &["daemon-reload"])?;
        // systemd refuses a start after several within some seconds; an error says that it has forgotten them by itself.
        let _ = systemctl_within(ANSWER_TIME_LIMIT, &["reset-failed", self.unit.name()]);
        let verb = if self.was_running { "restart" } else { "stop" };
        // Its program may take as long as it likes to start, in which this process need not wait.
        systemctl_within(ANSWER_TIME_LIMIT, &["--no-block", verb, self.unit.name()])?;
        self.wait_for_state()
    }

    fn wait_for_state(&self) -> Result<(), Reason> {
        let begin = Instant::now();
        loop {
            let show = ["show", "--property=ActiveState,Job", self.unit.name()];
            let state = systemctl_within(ANSWER_TIME_LIMIT, &show)?;
            let value = |key: &str| state.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
            let (active, job) = (value("ActiveState="), value("Job="));
            let is_done = matches!(job, "" | "0");
            match (active, self.was_running) {
                ("failed" | "inactive", true) if is_done => {
                    return Reason::err(format!("it did not start: journalctl --unit {}", self.unit));
                }
                _ if is_done => return Ok(()),
                // systemd goes on with it.
                _ if begin.elapsed() > STATE_TIME_LIMIT => return Ok(()),
                _ => thread::sleep(STATE_INTERVAL),
            }
        }
    }
}
