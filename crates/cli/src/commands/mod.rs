//! One file a command: gather, decide, render.

pub mod check;
