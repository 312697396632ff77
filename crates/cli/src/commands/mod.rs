//! One file a command: gather, decide, render.

pub mod check;
pub mod completions;
pub mod man;
