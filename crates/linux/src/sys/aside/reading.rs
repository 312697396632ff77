//! Deadlines of readings of a command.

use std::time::Duration;

use super::Deadline;
use crate::interrupt::Interrupt;

/// Longest reading after a signal, when a command completes its report.
const AFTER_SIGNAL: Duration = Duration::from_millis(500);

impl Deadline<'static> {
    /// A deadline `time` from now, or at the first signal to this command. Readings after it complete a report, and have
    /// less time instead.
    pub fn of_reading(time: Duration) -> Deadline<'static> {
        match Interrupt::of_handlers() {
            Some(interrupt) if interrupt.signal().is_some() => Deadline::after(time.min(AFTER_SIGNAL), None),
            interrupt => Deadline::after(time, interrupt),
        }
    }
}
