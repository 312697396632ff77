//! The C interface of `hugewise-memory`. `include/hugewise.h` is generated from [`error`], [`region`] and
//! [`pretouch`]; `docs/c.md` shows its use.
//!
//! Every function accepts any argument: `arguments.rs` validates and copies it, `handles.rs` looks up regions
//! by handle, `error.rs` turns a panic into an error, and `cancellation.rs` lets each call finish.

#![warn(missing_docs)]

mod arguments;
mod cancellation;
pub mod error;
mod handles;
#[cfg(all(feature = "old-glibc", target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod old_glibc;
mod preferences;
pub mod pretouch;
pub mod region;
mod spare_memory;
