//! The header of a recording: process, machine and evidence.

use std::{collections::BTreeMap, fmt};

use hugewise_linux::{
    hugepages::{pools::Pool, thp::Thp},
    proc::meminfo::Meminfo,
    reading::Reading,
    units::PageSize,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Header of a recording: process, machine and evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Header {
    /// `hugewise.recording/2`.
    pub schema: String,
    /// Version of hugewise.
    pub hugewise: String,
    /// Start of the recording, in nanoseconds of CLOCK_MONOTONIC.
    pub began_ns: u64,
    /// Start of the recording, in nanoseconds since 1970-01-01 UTC.
    pub began_unix_ns: u64,
    /// PID of the recorded process.
    pub pid: u32,
    /// Whether the recorder started the process, so that the recording is complete.
    pub started: bool,
    /// Command line of the recorded process.
    pub command: Vec<String>,
    /// The machine at the start.
    pub machine: Facts,
    /// Available evidence by kind, with its source, or why it is missing.
    pub evidence: BTreeMap<Evidence, Reading<String>>,
    /// Names of the recorded kernel events.
    pub events: Vec<String>,
    /// Cost of first touch, measured by the recorder before the start.
    #[serde(default = "not_measured")]
    pub first_touch: Reading<FirstTouch>,
}

fn not_measured() -> Reading<FirstTouch> {
    Reading::unknown("not measured by this recorder")
}

/// Cost of the first touch of a page, in CPU time of the touching thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FirstTouch {
    /// Cost of a base page.
    pub base: PageCost,
    /// Cost of a THP of the PMD size; null if too few were available without waiting.
    pub huge: Option<PageCost>,
}

/// Cost of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PageCost {
    /// Mean over all touched pages, in nanoseconds.
    pub mean_ns: u64,
    /// Mean in the most expensive block of the PMD size, in nanoseconds. On a virtual machine a page can cost
    /// many times as much if its host has to provide the memory first.
    pub most_ns: u64,
    /// Mean in the cheapest block, in nanoseconds; null in recordings that lack it.
    #[serde(default)]
    pub least_ns: Option<u64>,
}

/// The machine at the start of a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Facts {
    /// Kernel release.
    pub kernel: Reading<String>,
    /// Online CPUs, as a list such as `0-3`.
    pub cpus: Reading<String>,
    /// Base page size, in bytes.
    #[serde(rename = "base_page_size_bytes")]
    pub base_page: Reading<PageSize>,
    /// Memory, from /proc/meminfo.
    pub meminfo: Meminfo,
    /// The hugetlb pools.
    pub pools: Reading<Vec<Pool>>,
    /// Settings of transparent huge pages.
    pub thp: Thp,
}

/// Kind of evidence, strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// Kernel events: waits by thread, with begin and end.
    Events,
    /// Delay accounting: total waits by thread.
    Delays,
    /// Reports of exiting threads.
    Ends,
    /// The log of a JVM.
    JvmLog,
    /// Machine-wide counters: number of waits.
    Counters,
    /// Memory pressure: machine-wide time in which a task waited.
    Pressure,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Evidence::Events => "kernel events",
            Evidence::Delays => "delay accounting",
            Evidence::Ends => "thread exit reports",
            Evidence::JvmLog => "the JVM's log",
            Evidence::Counters => "machine-wide counters",
            Evidence::Pressure => "memory pressure",
        })
    }
}
