//! A plan, for people and for the files of other programs.

#[allow(dead_code)]
pub mod formats;
pub mod text;
