//! All that writes a setting of the machine, and its undoing.
//!
//! A [`difference::Difference`] is what would be written, without a way to write it; [`apply`] writes it, and the
//! [`journal`] holds each setting as it was, synced before the first change.

pub mod apply;
pub mod difference;
pub mod journal;
pub mod persisted;
pub mod pool_growth;
pub mod scratch;
mod write;
