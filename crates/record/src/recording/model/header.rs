//! Of what a recording is, and by what means it was made.

use std::{collections::BTreeMap, fmt};

use hugewise_linux::{
    hugepages::{pools::Pool, thp::Thp},
    proc::meminfo::Meminfo,
    reading::Reading,
    units::PageSize,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Of what, and by what means.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Header {
    /// `hugewise.recording/1`.
    pub schema: String,
    /// The version of hugewise.
    pub hugewise: String,
    /// When it began.
    pub began_ns: u64,
    /// The same moment in milliseconds since 1970.
    pub began_unix_ms: u64,
    /// The process that was named, or started.
    pub pid: u32,
    /// Was it started by the recorder, so that nothing of it is missing?
    pub started: bool,
    /// The command line that was recorded.
    pub command: Vec<String>,
    /// The machine.
    pub machine: Facts,
    /// What the recording rests on, by the name of the evidence; or why it is missing.
    pub evidence: BTreeMap<Evidence, Reading<String>>,
    /// The kernel's events that were recorded.
    pub events: Vec<String>,
    /// What first touch cost the recorder, before it began.
    #[serde(default = "not_measured")]
    pub first_touch: Reading<FirstTouch>,
}

fn not_measured() -> Reading<FirstTouch> {
    Reading::unknown("the recorder did not measure it")
}

/// What the first touch of a page costs, in CPU time of the thread that touches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FirstTouch {
    /// Of a base page.
    pub base: PageCost,
    /// Of a THP of the PMD size; nothing where too few were to be had without waiting.
    pub huge: Option<PageCost>,
}

/// In nanoseconds for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PageCost {
    /// Of all that were touched.
    pub mean_ns: u64,
    /// In the dearest block of the PMD size. On a virtual machine a page may cost many times as much
    /// where its host has to provide the memory first.
    pub most_ns: u64,
}

/// A machine as it was when the recording began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Facts {
    /// The release of the kernel.
    pub kernel: Reading<String>,
    /// CPUs that are online, as `0-3`.
    pub cpus: Reading<String>,
    /// The size of a base page.
    pub base_page: Reading<PageSize>,
    /// Memory as a whole.
    pub meminfo: Meminfo,
    /// The hugetlb pools.
    pub pools: Reading<Vec<Pool>>,
    /// Transparent huge pages.
    pub thp: Thp,
}

/// A kind of evidence, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// Events of the kernel: who waited, from when to when.
    Events,
    /// Delay accounting: who waited, how long in all.
    Delays,
    /// Notice of threads that end.
    Ends,
    /// The log of a JVM.
    JvmLog,
    /// Counters of the machine: that somebody waited.
    Counters,
    /// Pressure: for how long somebody waited.
    Pressure,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Evidence::Events => "kernel events",
            Evidence::Delays => "delay accounting",
            Evidence::Ends => "threads that end",
            Evidence::JvmLog => "the JVM's log",
            Evidence::Counters => "counters of the machine",
            Evidence::Pressure => "memory pressure",
        })
    }
}
