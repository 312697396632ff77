//! Making memory of a running process huge, in place: `MADV_COLLAPSE` from outside.
//!
//! On its way: [`suitable`] tells which mappings can be converted at all, [`candidates`] which huge
//! pages of them are worth it, [`admission`] whether the machine has room; [`engine`] converts one
//! huge page after the other, at a [`pace`], and lets go where [`interference`] shows. Deciding is pure:
//! what the engine does to the world stands in [`live`].

pub mod admission;
pub mod candidates;
pub mod engine;
pub mod interference;
pub mod live;
pub mod pace;
pub mod refusals;
pub mod suitable;

/// Huge pages that are left to others: taking the last ones would make everybody else wait.
pub const KEPT: u64 = 8;
