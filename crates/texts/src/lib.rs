//! Texts that people bring: logs in any wrapping, and messages about huge pages.

pub mod decoder;
pub mod lines;
pub mod messages;
pub mod near;
pub mod secrets;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
