//! A value read from the machine, or the reason why it is unknown.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A value read from the machine, or the reason why it is unknown.
///
/// In JSON a known value is written plainly, an unknown one as `{"could_not_tell": REASON}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Reading<T> {
    /// The value is unknown.
    CouldNotTell {
        /// What is missing, and what would make it available.
        could_not_tell: String,
    },
    /// The value.
    Known(T),
}

impl<T> Reading<T> {
    pub fn unknown(reason: impl ToString) -> Reading<T> {
        Reading::CouldNotTell { could_not_tell: reason.to_string() }
    }

    pub fn known(&self) -> Option<&T> {
        match self {
            Reading::Known(value) => Some(value),
            Reading::CouldNotTell { .. } => None,
        }
    }

    /// The reason; `None` if the value is known.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Reading::Known(_) => None,
            Reading::CouldNotTell { could_not_tell } => Some(could_not_tell),
        }
    }

    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Reading<U> {
        match self {
            Reading::Known(value) => Reading::Known(f(value)),
            Reading::CouldNotTell { could_not_tell } => Reading::CouldNotTell { could_not_tell },
        }
    }

    /// Converts the value; an error of `f` becomes the reason.
    pub fn and_then<U, E: ToString>(self, f: impl FnOnce(T) -> Result<U, E>) -> Reading<U> {
        match self {
            Reading::Known(value) => f(value).into(),
            Reading::CouldNotTell { could_not_tell } => Reading::CouldNotTell { could_not_tell },
        }
    }
}

impl<T, E: ToString> From<Result<T, E>> for Reading<T> {
    fn from(result: Result<T, E>) -> Reading<T> {
        match result {
            Ok(value) => Reading::Known(value),
            Err(error) => Reading::unknown(error),
        }
    }
}
