//! One file a command: gather, decide, render.

pub mod bench;
pub mod check;
pub mod compare;
pub mod completions;
pub mod inspect;
pub mod man;
pub mod restore;
