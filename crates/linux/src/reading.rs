//! Three answers, not two: a value that was read, or why it could not be told.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A value read from the machine, or the reason why nobody could tell.
///
/// In JSON a known reading is its plain value, an unknown one `{"could_not_tell": REASON}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Reading<T> {
    /// It was not possible to tell, and this is why.
    CouldNotTell {
        /// What was missing, and what would give it.
        could_not_tell: String,
    },
    /// Read.
    Known(T),
}

impl<T> Reading<T> {
    /// Could not tell, for this reason.
    pub fn unknown(reason: impl ToString) -> Reading<T> {
        Reading::CouldNotTell { could_not_tell: reason.to_string() }
    }

    /// The value, where there is one.
    pub fn known(&self) -> Option<&T> {
        match self {
            Reading::Known(value) => Some(value),
            Reading::CouldNotTell { .. } => None,
        }
    }

    /// The reason, where there is no value.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Reading::Known(_) => None,
            Reading::CouldNotTell { could_not_tell } => Some(could_not_tell),
        }
    }

    /// The same reading of something else.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Reading<U> {
        match self {
            Reading::Known(value) => Reading::Known(f(value)),
            Reading::CouldNotTell { could_not_tell } => Reading::CouldNotTell { could_not_tell },
        }
    }

    /// What `f` makes of the value, where it can; its error becomes the reason.
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
