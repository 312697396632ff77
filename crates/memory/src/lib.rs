//! Memory on huge pages: reserve it on a chosen backing, populate it, read its coverage, release it.
//!
//! A [`region::Region`] is aligned so that each of its huge pages is usable, and records its backing and why
//! preferred backings failed. [`pretouch`] populates it, or any other memory of this process, by several
//! threads; [`release`] releases it. [`collapse`] puts existing memory of another process on huge pages, and [`split`]
//! takes it off them.

#![warn(missing_docs)]

mod chunks;
pub mod collapse;
pub mod coverage;
mod demand;
pub mod placement;
pub mod pretouch;
pub mod region;
pub mod release;
pub mod split;
mod target;
mod threads;

pub use threads::Stopped;
