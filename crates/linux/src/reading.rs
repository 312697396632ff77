//! A value read from the machine, or the reason why it is unknown.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

/// Schema key that marks a [`Reading`]; [`crate::json::schema`] removes it.
pub(crate) const IS_READING: &str = "x-reading";

/// Why a value is unknown or a step is not possible, as text for the user.
///
/// `?` turns every error into a reason; callers that distinguish errors use an enum instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason(String);

impl Reason {
    pub fn new(text: impl Into<String>) -> Reason {
        Reason(text.into())
    }

    /// Result of a step that failed for this reason.
    pub fn err<T>(text: impl Into<String>) -> Result<T, Reason> {
        Err(Reason::new(text))
    }
}

impl<E: Error> From<E> for Reason {
    fn from(error: E) -> Reason {
        Reason(error.to_string())
    }
}

impl From<Reason> for String {
    fn from(reason: Reason) -> String {
        reason.0
    }
}

/// For clap, which shows the error of a value's parser.
impl From<Reason> for Box<dyn Error + Send + Sync> {
    fn from(reason: Reason) -> Self {
        reason.0.into()
    }
}

/// For tests.
impl From<Reason> for Box<dyn Error> {
    fn from(reason: Reason) -> Self {
        reason.0.into()
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A value read from the machine, or the reason why it is unknown.
///
/// [`crate::json`] writes an unknown value as null, with the reason in the object that contains it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Reading<T> {
    /// The value is unknown.
    Unknown {
        /// What is missing, and what would make it available.
        unknown: String,
    },
    /// The value.
    Known(T),
}

impl<T> Reading<T> {
    pub fn unknown(reason: impl ToString) -> Reading<T> {
        Reading::Unknown { unknown: reason.to_string() }
    }

    pub fn known(&self) -> Option<&T> {
        match self {
            Reading::Known(value) => Some(value),
            Reading::Unknown { .. } => None,
        }
    }

    /// The reason; `None` if the value is known.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Reading::Known(_) => None,
            Reading::Unknown { unknown } => Some(unknown),
        }
    }

    pub fn into_result(self) -> Result<T, Reason> {
        match self {
            Reading::Known(value) => Ok(value),
            Reading::Unknown { unknown } => Err(Reason(unknown)),
        }
    }

    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Reading<U> {
        match self {
            Reading::Known(value) => Reading::Known(f(value)),
            Reading::Unknown { unknown } => Reading::Unknown { unknown },
        }
    }

    /// Converts the value; an error of `f` becomes the reason.
    pub fn and_then<U, E: ToString>(self, f: impl FnOnce(T) -> Result<U, E>) -> Reading<U> {
        match self {
            Reading::Known(value) => f(value).into(),
            Reading::Unknown { unknown } => Reading::Unknown { unknown },
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

impl<T: JsonSchema> JsonSchema for Reading<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Reading_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = Option::<T>::json_schema(generator);
        schema.insert(IS_READING.to_owned(), true.into());
        schema
    }
}
