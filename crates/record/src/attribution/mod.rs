//! Where the time of a JVM's pauses went: a recording, explained.
//!
//! [`Gathered`] puts the lines of a recording in order, [`split`] lays what the kernel did to the pauses
//! in which it did it, [`Totals`] adds up, [`verdict`] decides, and [`actions`] says what to change.

pub mod actions;
mod gathered;
mod gathering;
mod intervals;
mod log;
pub mod split;
#[cfg(test)]
mod tests;
mod totals;
pub mod verdict;

pub use gathered::{Gathered, HugePageAt, Step, Thread};
pub use intervals::{Stall, Wait};
pub use log::{LogSource, Safepoint, Stop};
pub use split::{Explained, Part, Reaching, Split, ThreadPart};
pub use totals::{Outside, Totals, WaitSum};
pub use verdict::{Because, Decision, Verdict};

/// A recording with everything that was found in it.
#[derive(Debug)]
pub struct Explanation {
    /// What was recorded.
    pub gathered: Gathered,
    /// The pauses, in the order of their times.
    pub pauses: Vec<Explained>,
    /// What they add up to, and what lay outside of them.
    pub totals: Totals,
    /// What it means.
    pub decision: Decision,
}

impl Explanation {
    /// Of a recording that was gathered.
    #[must_use]
    pub fn of(gathered: Gathered) -> Explanation {
        let pauses = split::split(&gathered);
        let totals = Totals::of(&gathered, &pauses);
        let decision = verdict::decide(&gathered, &pauses, &totals);
        Explanation { gathered, pauses, totals, decision }
    }
}
