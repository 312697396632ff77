//! Memory on huge pages: reserve it with a chosen backing, make it present, prove what it got, give it back.
//!
//! A [`region::Region`] is aligned so that every huge page of it is usable, and carries how it was
//! got and, where it fell back, why. [`pretouch`] makes it, or any other memory of this process,
//! present by several threads; [`release`] gives it back. [`collapse`] puts memory on huge pages that
//! another process has already.

#![warn(missing_docs)]

mod chunks;
pub mod collapse;
pub mod coverage;
mod demand;
pub mod placement;
pub mod pretouch;
pub mod region;
pub mod release;
mod target;
mod threads;

pub use threads::Stopped;
