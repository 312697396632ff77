//! The pretouch experiment: how long it takes to make memory present, and to give it back.
//!
//! [`mod@bench`] runs each [`Case`] in every [`Way`], every time in a process of its own: [`worker`] is
//! such a process of this program, [`hotspot`] starts a JVM. [`ratios`] compares the ways in one run,
//! and [`model`] says from all of it how long other sizes will take.

mod available;
pub mod bench;
pub mod costs;
pub mod host;
pub mod hotspot;
pub mod model;
pub mod prediction;
pub mod ratios;
pub mod worker;

use hugewise_linux::{hugepages::backing::Backing, reading::Reading, units::Bytes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The smallest share of huge pages with which a run counts as one on huge pages, 0 to 1.
pub const LEAST_COVERAGE: f64 = 0.8;

/// The memory that is made present, and by how many threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Case {
    /// How much.
    pub bytes: Bytes,
    /// On what.
    #[schemars(with = "String")]
    pub backing: Backing,
    /// By how many threads.
    pub threads: usize,
}

/// Who makes it present.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// The engine of this project.
    Engine,
    /// A loop that writes one byte to each base page, over an equal share for each thread.
    Loop,
    /// One call of the kernel's own for each thread's equal share (`MADV_POPULATE_WRITE`).
    Kernel,
    /// G1 of a JVM with `AlwaysPreTouch`; the index into the JVMs of the table.
    Jvm(usize),
}

/// Who makes the memory present, and in what portions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Way {
    /// Who.
    pub by: By,
    /// The chunk that was asked for; nothing where whoever does it decides.
    pub chunk: Option<Bytes>,
}

/// What one process told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    /// The repetition, from 0.
    #[serde(default)]
    pub repetition: usize,
    /// Time to make all of it present, in seconds, the start of the threads included.
    pub seconds: f64,
    /// Time to give it back, in seconds. Of a JVM: from SIGKILL until its process was gone.
    pub release_seconds: Reading<f64>,
    /// Share of it on huge pages, 0 to 1, as the kernel told when all of it was present.
    pub coverage: Reading<f64>,
    /// How often the kernel could not make a huge page meanwhile, on the whole machine.
    pub fallbacks: Reading<u64>,
    /// How often a thread waited for the kernel to make memory free or whole meanwhile, on the whole
    /// machine (`compact_stall`, `allocstall_*`).
    pub stalls: Reading<u64>,
    /// Threads that really did it.
    pub threads: usize,
    /// The chunk that was really used.
    pub chunk: Option<Bytes>,
}

/// Everything that was measured of one case in one way.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Row {
    /// The memory.
    #[serde(flatten)]
    pub case: Case,
    /// Who, and in what portions.
    #[serde(flatten)]
    pub way: Way,
    /// Is this a size that was measured to check the prediction, and kept out of it?
    pub held_out: bool,
    /// A sample for each process.
    pub samples: Vec<Sample>,
}

impl Row {
    /// The samples that had the pages they were to have.
    pub fn counted(&self) -> impl Iterator<Item = &Sample> {
        let huge = self.case.backing != Backing::Base;
        self.samples.iter().filter(move |sample| match sample.coverage {
            Reading::Known(share) if huge => share >= LEAST_COVERAGE,
            Reading::Known(share) => share <= 1.0 - LEAST_COVERAGE,
            Reading::CouldNotTell { .. } => true,
        })
    }
}

/// What could not be measured, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LeftOut {
    /// The memory, and who was to make it present.
    pub what: String,
    /// Why it was not measured, and what would help.
    pub reason: String,
}
