//! The commands, one module each: gather, decide, render.

pub mod apply;
pub mod bench;
pub mod check;
pub mod collapse;
pub mod compare;
pub mod completions;
pub mod explain;
pub mod gclog;
pub mod inspect;
pub mod man;
pub mod plan;
pub mod record;
pub mod report;
pub mod restore;
pub mod run;
pub mod split;
