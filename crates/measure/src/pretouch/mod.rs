//! The pretouch experiment: the time to populate memory, and to release it.
//!
//! [`mod@bench`] runs each [`Case`] in every [`Variant`], each time in a new process: [`worker`] is such a
//! process of this program, [`hotspot`] starts a JVM. [`ratios`] compares the ways of one run, and [`model`]
//! is fitted to predict other sizes.

mod available;
pub mod bench;
pub mod costs;
pub mod hotspot;
pub mod model;
pub mod prediction;
pub mod ratios;
pub mod worker;

use hugewise_linux::{hugepages::backing::Backing, reading::Reading, units::Bytes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Least share of huge pages at which a run counts as one on huge pages, 0 to 1.
pub const MIN_COVERAGE: f64 = 0.8;

/// The memory to populate, and the number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Case {
    /// Size of the memory, in bytes.
    pub bytes: Bytes,
    /// The backing.
    #[schemars(with = "String")]
    pub backing: Backing,
    /// Number of threads.
    pub threads: usize,
}

/// The implementation that populates the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Implementation {
    /// The engine of this project.
    Engine,
    /// A loop that writes one byte to each base page, with an equal share for each thread.
    Loop,
    /// One call of `MADV_POPULATE_WRITE` for each thread's equal share.
    Kernel,
    /// G1 of a JVM with `AlwaysPreTouch`; the value is the index into `jvms`.
    Jvm(usize),
}

/// An implementation with its chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Variant {
    /// The implementation.
    pub by: Implementation,
    /// The requested chunk, in bytes; null for the default of the implementation.
    #[serde(rename = "chunk_bytes")]
    pub chunk: Option<Bytes>,
}

/// The measurement of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    /// Index of the repetition, from 0.
    #[serde(default)]
    pub repetition: usize,
    /// Time to populate all of the memory, including the start of the threads, in seconds.
    pub seconds: f64,
    /// Time to release the memory, in seconds; for a JVM from SIGKILL to the end of the process.
    pub release_seconds: Reading<f64>,
    /// Share of the memory on huge pages, 0 to 1, read when all of it was populated.
    pub coverage: Reading<f64>,
    /// Huge-page faults that fell back to base pages during that time, on the whole machine
    /// (`thp_fault_fallback`).
    pub fallbacks: Reading<u64>,
    /// Stalls in compaction or reclaim during that time, on the whole machine (`compact_stall`,
    /// `allocstall_*`).
    pub stalls: Reading<u64>,
    /// Number of threads that were actually used.
    pub threads: usize,
    /// Chunk that was actually used, in bytes; null if unknown.
    #[serde(rename = "chunk_bytes")]
    pub chunk: Option<Bytes>,
}

/// All measurements of one case in one way.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PretouchRow {
    /// The memory and the number of threads.
    #[serde(flatten)]
    pub case: Case,
    /// The implementation and its chunk.
    #[serde(flatten)]
    pub way: Variant,
    /// Whether this size only checks the prediction and was not fitted.
    pub held_out: bool,
    /// One entry per process.
    pub samples: Vec<Sample>,
}

impl PretouchRow {
    /// The samples whose coverage matches the backing; an unknown coverage counts as a match.
    pub fn counted(&self) -> impl Iterator<Item = &Sample> {
        let huge = self.case.backing != Backing::Base;
        self.samples.iter().filter(move |sample| match sample.coverage {
            Reading::Known(share) if huge => share >= MIN_COVERAGE,
            Reading::Known(share) => share <= 1.0 - MIN_COVERAGE,
            Reading::Unknown { .. } => true,
        })
    }
}

/// A case that was not measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LeftOut {
    /// The memory and, if only some were left out, the implementations.
    pub what: String,
    /// Why it was not measured, and what would help.
    pub reason: String,
}
