//! The data of a live comparison.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A live comparison, as part of [`super::Comparison`].
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Live {
    /// The process.
    pub pid: u32,
    /// The compared regions: `heap`, `malloc` or `all`.
    pub region: String,
    /// Length of a turn.
    pub turn_seconds: f64,
    /// Time before each turn that does not count, from the warm-up.
    pub settling_seconds: f64,
    /// Whether the rates became steady in the warm-up.
    pub is_steady: bool,
    /// Why the comparison ended.
    pub ending: Ending,
    /// Why it ended, if a transition failed; null otherwise.
    pub detail: Option<String>,
    /// The pages of the process at the end: `as_found`, `base` or `huge`; null if they could not be left so.
    pub left: Option<String>,
    /// The transitions, in order.
    pub transitions: Vec<Transition>,
    /// The turns, in order; each is a round.
    pub turns: Vec<LiveTurn>,
}

impl Live {
    /// A comparison that has not begun.
    pub fn new(pid: u32, region: &str, turn: Duration) -> Live {
        Live {
            pid,
            region: region.to_owned(),
            turn_seconds: turn.as_secs_f64(),
            settling_seconds: 0.0,
            is_steady: false,
            ending: Ending::Interrupted,
            detail: None,
            left: None,
            transitions: Vec::new(),
            turns: Vec::new(),
        }
    }
}

/// A change of the pages of the process.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Transition {
    /// Whether it was from base pages to huge pages.
    pub to_huge: bool,
    /// Its begin, since that of the comparison.
    pub begin_seconds: f64,
    /// Its duration.
    pub duration_seconds: f64,
}

/// A turn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LiveTurn {
    /// Index into `rounds`.
    pub round: usize,
    /// Its begin, since that of the comparison.
    pub begin_seconds: f64,
    /// Its end.
    pub end_seconds: f64,
}

/// Why a live comparison ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The difference is known with enough precision.
    Decided,
    /// The time limit, or the number of rounds, is reached.
    OutOfTime,
    /// The user asked to end it.
    Interrupted,
    /// The process ended.
    ProcessEnded,
    /// Memory could not be put on the pages of a turn, or this took too long.
    TransitionFailed,
    /// All turns of an arm fell back.
    FellBack,
}
