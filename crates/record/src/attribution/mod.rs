//! Attribution of a JVM's pauses to causes, from a recording.
//!
//! [`RecordingData`] is the recording in order, [`split`] attributes the kernel's work to the pauses in which
//! it happened, [`Totals`] sums up, [`verdict`] decides, and [`actions`] lists changes.

pub mod actions;
mod gathered;
mod gathering;
#[cfg(test)]
mod hostile_tests;
mod intervals;
mod log;
mod room;
pub mod split;
#[cfg(test)]
mod synthetic;
#[cfg(test)]
mod tests;
mod totals;
mod touch_bounds;
pub mod verdict;

pub use gathered::{HugePageAttempt, RecordingData, Thread, UsageStep};
pub use intervals::{Stall, Wait};
pub use log::{LogSource, LoggedPause, Safepoint};
pub use room::Room;
pub use split::{Pause, ThreadPart, TimeByActivity, TimeToSafepoint, WaitTotal};
pub use totals::{Outside, Totals, WaitSum};
pub use verdict::{Decision, TouchTime, Verdict, VerdictReason};

/// A recording with the attribution of its pauses.
#[derive(Debug)]
pub struct Attribution {
    pub gathered: RecordingData,
    /// The pauses, by start.
    pub pauses: Vec<Pause>,
    pub totals: Totals,
    pub decision: Decision,
}

impl Attribution {
    /// The attribution of a recording.
    pub fn of(mut gathered: RecordingData) -> Attribution {
        let (pauses, room) = split::split(&gathered);
        gathered.room = room;
        let totals = Totals::of(&gathered, &pauses);
        let decision = verdict::decide(&gathered, &pauses, &totals);
        Attribution { gathered, pauses, totals, decision }
    }
}
