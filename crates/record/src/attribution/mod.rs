//! Attribution of a JVM's pauses to causes, from a recording.
//!
//! [`Gathered`] holds the recording in order, [`split`] attributes the kernel's work to the pauses in which
//! it happened, [`Totals`] sums up, [`verdict`] decides, and [`actions`] lists changes.

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

/// A recording with the attribution of its pauses.
#[derive(Debug)]
pub struct Explanation {
    pub gathered: Gathered,
    /// The pauses, by start.
    pub pauses: Vec<Explained>,
    pub totals: Totals,
    pub decision: Decision,
}

impl Explanation {
    /// The attribution of a recording.
    #[must_use]
    pub fn of(gathered: Gathered) -> Explanation {
        let pauses = split::split(&gathered);
        let totals = Totals::of(&gathered, &pauses);
        let decision = verdict::decide(&gathered, &pauses, &totals);
        Explanation { gathered, pauses, totals, decision }
    }
}
