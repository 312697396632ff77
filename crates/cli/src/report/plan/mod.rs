//! A plan, for people and for the files of other programs.

pub mod formats;
pub mod text;
