//! The C interface of `hugewise-memory`, as in `include/hugewise.h`: that file is what C sees of the
//! modules below, and `docs/c.md` shows its use.
//!
//! Every function takes any argument: what C hands in is checked or copied in [`arguments`], regions
//! are known by handles that are looked up in [`handles`], and a panic ends as an error in [`error`].

pub mod arguments;
pub mod error;
mod handles;
pub mod preferences;
pub mod pretouch;
pub mod region;
