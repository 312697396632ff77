//! Deadlines of readings of a command.

use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

use super::Deadline;
use crate::interrupt::Interrupt;

/// Longest reading after a signal, when a command completes its report.
const AFTER_SIGNAL: Duration = Duration::from_millis(500);
/// The same after its time limit, when several readings may follow.
const AFTER_LIMIT: Duration = Duration::from_millis(200);

/// The time limit of this command.
static END: OnceLock<Instant> = OnceLock::new();

/// Ends later readings of this command `limit` from now; the first limit counts.
pub fn limit_readings(limit: Duration) {
    if let Some(end) = Instant::now().checked_add(limit) {
        let _ = END.set(end);
    }
}

impl Deadline<'static> {
    /// A deadline `time` from now, at the time limit of this command, or at the first signal to it. Readings after both
    /// complete a report, and have less time instead.
    pub fn of_reading(time: Duration) -> Deadline<'static> {
        let left = END.get().map(|end| end.saturating_duration_since(Instant::now()).max(AFTER_LIMIT));
        let time = left.map_or(time, |left| left.min(time));
        match Interrupt::of_handlers() {
            Some(interrupt) if interrupt.signal().is_some() => Deadline::after(time.min(AFTER_SIGNAL), None),
            interrupt => Deadline::after(time, interrupt),
        }
    }
}
