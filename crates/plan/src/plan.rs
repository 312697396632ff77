//! Plan of the changes that a machine needs for a demand, with the result of starting without them.

use hugewise_jvm::demand::{HeapSizes, Java, RegionDemand};
use hugewise_linux::{
    action::Action,
    hugepages::backing::Backing,
    reading::Reading,
    settings::Setting,
    units::{Bytes, PageSize, Pages},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::target::Target;

/// Needs of a launch line on this machine, schema `hugewise.plan/2`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// `hugewise.plan/2`.
    pub schema: String,
    /// Words of the launch line.
    pub command: Vec<String>,
    /// Backing of the plan.
    #[schemars(with = "String")]
    pub backing: Backing,
    /// Options of the program that select the backing; `notes` names the options of the line that they replace.
    pub options: Vec<String>,
    /// Number of such programs that run at the same time.
    pub instances: u32,
    /// The JVM that was rehearsed; `null` if the program is not a JVM.
    pub java: Option<Java>,
    /// Initial and maximum heap size of one JVM; `null` if the program is not a JVM.
    pub heap: Option<HeapSizes>,
    /// The database server that was queried or rehearsed; `null` if the program is not one.
    #[serde(default)]
    pub database: Option<Database>,
    /// Limit of direct buffers of one JVM, in bytes; no JVM flag puts them on huge pages. `null` if the program
    /// does not report it.
    pub direct_memory_bytes: Option<Bytes>,
    /// Demand of each region of one program.
    #[serde(rename = "demand")]
    pub regions: Vec<RegionDemand>,
    /// Memory outside the heap of one JVM that the plan puts on huge pages; `null` if there is none.
    pub off_heap: Option<OffHeap>,
    /// Pools that all instances need together, one for each page size.
    pub pools: Vec<PoolPlan>,
    /// Default huge page size of the machine, in bytes, which `vm.nr_hugepages` counts; `null` if unknown.
    pub default_page_size_bytes: Option<PageSize>,
    /// Other settings of the machine that must change.
    pub settings: Vec<SettingPlan>,
    /// Memory that the pools take; `null` if the machine's memory is unknown.
    pub memory: Option<MemoryShare>,
    /// What the plan was made for; `null` in plans of older versions.
    #[serde(default)]
    pub target: Option<Target>,
    /// Predicted result of starting the line now.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Changes that give the program its huge pages, in their order.
    pub actions: Vec<Action>,
    /// Further notes for the user.
    pub notes: Vec<String>,
}

impl Plan {
    /// Whether there is too little memory for a pool.
    pub fn lacks_memory(&self) -> bool {
        self.pools.iter().any(|pool| pool.obtainable == PoolAvailability::NotEnoughMemory)
    }
}

/// A database server, as it reports itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Database {
    /// `PostgreSQL` or `MariaDB`.
    pub name: String,
    /// Version, such as `15.18`.
    pub version: String,
    /// Setting that selects huge pages on the unchanged command line: `try`, `on` or `off`.
    pub huge_pages: String,
    /// Maximum number of connections.
    pub max_connections: u32,
    /// Maximum number of processes with page tables of their own: one for each connection of PostgreSQL, 1 for
    /// MariaDB. 0 in plans of older versions.
    #[serde(default)]
    pub processes: u32,
    /// Page tables of one process that has touched all shared memory, on base pages, in bytes.
    pub page_tables_on_base_bytes: Bytes,
    /// The same on the pages of the plan, in bytes.
    pub page_tables_on_huge_bytes: Bytes,
}

/// Memory outside the heap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OffHeap {
    /// Amount, in bytes.
    pub bytes: Bytes,
    /// Page size, in bytes.
    pub page_size_bytes: PageSize,
    /// Source of the amount: `--off-heap` or `MaxDirectMemorySize`.
    pub source: String,
}

/// Need of one pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolPlan {
    /// Page size of the pool, in bytes.
    pub page_size_bytes: PageSize,
    /// NUMA node of the pages; `null` for any node.
    pub node: Option<u32>,
    /// Pages that all instances take at their maximum size.
    pub pages_needed: Pages,
    /// Pages that all instances take once they have started.
    pub pages_at_start: Pages,
    /// Pages now available in the pool: free and not reserved.
    pub pages_available: Pages,
    /// Pages now in the pool, without surplus pages.
    pub pages_in_pool: Pages,
    /// Pages to add to the pool.
    pub pages_to_add: Pages,
    /// Whether the pages to add are available now.
    pub obtainable: PoolAvailability,
    /// Reason for `obtainable`.
    pub why: String,
}

/// Whether pages can be added now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PoolAvailability {
    /// The pages can be added, or none are missing.
    Yes,
    /// The pages need more than the available memory.
    NotEnoughMemory,
    /// The memory is available, but not contiguous: compaction may help, a reservation at boot does.
    NotContiguous,
    /// Unknown.
    Unknown,
}

/// A setting that must change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SettingPlan {
    /// The setting.
    pub setting: Setting,
    /// Present value.
    pub from: String,
    /// Required value.
    pub to: String,
    /// Reason for the change.
    pub why: String,
}

/// Memory that the pages to add take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryShare {
    /// Memory of the machine, in bytes.
    pub total_bytes: Bytes,
    /// Memory available now without swapping, in bytes: on the machine, and within the limits of this process's
    /// control groups, which do not count pool pages.
    pub available_bytes: Reading<Bytes>,
    /// Memory of the pages to add, in bytes.
    pub taken_bytes: Bytes,
    /// Available memory of the machine that remains for other programs, in bytes.
    pub remaining_bytes: Bytes,
}

/// Predicted result of starting the line now, exactly as given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    #[serde(rename = "verdict")]
    pub outcome: StartOutcome,
    /// Result in one sentence.
    #[serde(rename = "detail")]
    pub summary: String,
    /// Predicted pages of each region.
    #[serde(rename = "predicted_regions")]
    pub regions: Vec<RegionOutcome>,
    /// Warnings and errors that the program prints.
    #[serde(rename = "jvm_messages")]
    pub messages: Vec<String>,
}

/// Predicted result of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StartOutcome {
    /// Every region gets the huge pages that it requests.
    GetsHugePages,
    /// Some regions fall back to smaller pages, without an error.
    FallsBack,
    /// The program exits at its start.
    Exits,
    /// It starts, and SIGBUS kills it when it touches more pages than its control group allows.
    DiesOfSigbus,
    /// It starts, and the kernel kills it when it touches more memory than its control group allows.
    DiesOutOfMemory,
    /// The line does not request huge pages.
    DoesNotAsk,
    /// The kernel decides at the first touch of each page (transparent huge pages).
    DecidedAtTouch,
    /// Unknown.
    Unknown,
}

/// Predicted pages of a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RegionOutcome {
    /// Name of the region.
    pub name: String,
    /// Size once the program has started, in bytes.
    pub bytes: Bytes,
    /// Largest page size in the region, in bytes.
    pub page_size_bytes: PageSize,
    /// Bytes on huge pages once the program has started.
    pub huge_bytes: Bytes,
}
