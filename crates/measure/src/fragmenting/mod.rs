//! Memory fragmented on purpose, so that no huge page can be made of what is free.
//!
//! A process of its own fills all memory that is available with huge pages. As many of them as are to be
//! left to others are broken up: a page in 64 stays, the rest is free again, and the last page of each
//! block cannot be moved, so that compaction works on every block in vain. The rest stays filled. No
//! setting is changed, and when the process ends the kernel takes everything back.

pub mod engine;
pub mod host;
pub mod plan;
pub mod probe;
pub mod worker;

pub use engine::Outcome;
pub use host::{Fragmenter, Held, HostError, Returned};
pub use plan::{Plan, Refusal, State};
pub use probe::Probe;
