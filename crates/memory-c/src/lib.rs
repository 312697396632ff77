//! The C interface of `hugewise-memory`, as in `include/hugewise.h`: that file is what C sees of
//! [`error`], [`region`] and [`pretouch`], and `docs/c.md` shows its use.
//!
//! Every function takes any argument: what C hands in is checked or copied in `arguments.rs`, regions
//! are known by handles that are looked up in `handles.rs`, and a panic ends as an error in `error.rs`.

#![warn(missing_docs)]

mod arguments;
pub mod error;
mod handles;
#[cfg(all(feature = "old-glibc", target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod old_glibc;
mod preferences;
pub mod pretouch;
pub mod region;
