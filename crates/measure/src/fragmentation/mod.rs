//! Deliberate fragmentation of memory, so that no huge page can be allocated from free memory.
//!
//! A process of its own fills all available memory: whole free blocks with huge pages, the remaining memory
//! page by page. It then breaks up huge pages to leave their memory to others: one page in 64 stays, the
//! rest is freed. One page of each block is unmovable, so that compaction fails on it. The rest of the memory
//! stays filled. No setting is changed, and the kernel reclaims everything when the process ends.

pub mod engine;
pub mod host;
pub mod plan;
pub mod probe;
pub mod worker;

pub use engine::FragmentationOutcome;
pub use host::{Fragmenter, Free, Held, HostError, RestoredMemory};
pub use plan::{Plan, Refusal, State};
pub use probe::{Probe, Waits};
