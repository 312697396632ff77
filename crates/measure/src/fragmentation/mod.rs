//! Memory fragmented on purpose, so that no huge page can be made of what is free.
//!
//! A process of its own fills all memory that is available: what is free in whole blocks with huge pages,
//! the rest page by page. As many huge pages as are to be left to others are broken up: a page in 64 stays,
//! the rest is free again. One page of each block cannot be moved, so that compaction works on it in vain.
//! What is not left stays filled. No setting is changed, and when the process ends the kernel takes
//! everything back.

pub mod engine;
pub mod host;
pub mod plan;
pub mod probe;
pub mod worker;

pub use engine::Outcome;
pub use host::{Fragmenter, Free, Held, HostError, Returned};
pub use plan::{Plan, Refusal, State};
pub use probe::Probe;
