//! Changes and restores settings of the machine.
//!
//! A [`difference::Difference`] lists the changes and cannot write; [`apply`] writes them, and the
//! [`journal`] holds each setting's value from before its first change.

pub mod apply;
pub mod difference;
pub mod drop_in;
pub mod journal;
pub mod persisted;
pub mod pool_growth;
pub mod scratch;
mod write;
