//! A proposed change: part of the result of every command that judges.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A proposed change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Action {
    /// The change, as a sentence.
    pub change: String,
    /// Command that makes the change; null if no command does.
    pub command: Option<String>,
    /// Command that shows the effect of the change; null if there is none.
    pub verify: Option<String>,
}

impl Action {
    /// A change without commands.
    pub fn new(change: impl Into<String>) -> Action {
        Action { change: change.into(), command: None, verify: None }
    }

    #[must_use]
    pub fn by(self, command: impl Into<String>) -> Action {
        Action { command: Some(command.into()), ..self }
    }

    #[must_use]
    pub fn verified_by(self, command: impl Into<String>) -> Action {
        Action { verify: Some(command.into()), ..self }
    }
}
