//! What must change on a machine for a demand to be met, and what happens if nothing changes.

use hugewise_jvm::demand::{HeapSizes, Java, RegionDemand};
use hugewise_linux::{
    hugepages::backing::Backing,
    settings::Setting,
    units::{Bytes, PageSize, Pages},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A plan: what a launch line needs on this machine, schema `hugewise.plan/1`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// `hugewise.plan/1`.
    pub schema: String,
    /// The launch line.
    pub command: Vec<String>,
    /// The backing that is planned for.
    #[schemars(with = "String")]
    pub backing: Backing,
    /// The options that give the JVM this backing; those of the line that they replace are named in `notes`.
    pub options: Vec<String>,
    /// How many such JVMs run at once.
    pub instances: u32,
    /// Which JVM.
    pub java: Java,
    /// Its heap.
    pub heap: HeapSizes,
    /// What direct buffers may take outside of the heap, which no flag puts on huge pages.
    pub direct_memory_bytes: Option<Bytes>,
    /// What each region of one JVM asks for.
    pub regions: Vec<RegionDemand>,
    /// Memory outside of the heap that is to be on huge pages too, of one JVM.
    pub off_heap: Option<OffHeap>,
    /// The pools it needs, of every page size, for all instances together.
    pub pools: Vec<PoolPlan>,
    /// The machine's default huge page size: the one that `vm.nr_hugepages` counts.
    pub default_page_size_bytes: Option<PageSize>,
    /// Other settings of the machine that must change.
    pub settings: Vec<SettingPlan>,
    /// What the pools take from everyone else; nothing where the machine's memory is not known.
    pub memory: Option<MemoryShare>,
    /// What happens if it is started as things stand.
    pub verdict: Verdict,
    /// What else is worth knowing.
    pub notes: Vec<String>,
}

/// Memory outside of the heap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OffHeap {
    /// How much.
    pub bytes: Bytes,
    /// On which pages.
    pub page_size_bytes: PageSize,
    /// Where the amount stands: `--off-heap` or `MaxDirectMemorySize`.
    pub source: String,
}

/// A pool that is needed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolPlan {
    /// Size of its pages.
    pub page_size_bytes: PageSize,
    /// The NUMA node they must be on; nothing where every node will do.
    pub node: Option<u32>,
    /// Pages that all instances take when they have grown to their largest.
    pub pages_needed: Pages,
    /// Pages that all instances take when they have started.
    pub pages_at_start: Pages,
    /// Pages in the pool that nobody has, now: free and not reserved.
    pub pages_available: Pages,
    /// Pages in the pool, now.
    pub pages_in_pool: Pages,
    /// Pages that must be added.
    pub pages_to_add: Pages,
    /// Can they be had now?
    pub obtainable: Obtainable,
    /// Why.
    pub why: String,
}

/// Can pages be had now?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Obtainable {
    /// Yes, or they are there already.
    Yes,
    /// There is not so much free memory.
    NotEnoughMemory,
    /// There is, but not in one piece: compaction may help, a boot surely does.
    NotContiguous,
    /// It could not be told.
    CouldNotTell,
}

/// A setting that must change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SettingPlan {
    /// Which.
    pub setting: Setting,
    /// What it is.
    pub from: String,
    /// What it must be.
    pub to: String,
    /// Why.
    pub why: String,
}

/// What the pools take from everyone else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryShare {
    /// Memory of the machine.
    pub total_bytes: Bytes,
    /// What could be had without swapping, now.
    pub available_bytes: Bytes,
    /// What the pages to be added take.
    pub taken_bytes: Bytes,
    /// What remains for everyone else.
    pub remaining_bytes: Bytes,
}

/// What happens if the line is started as things stand, word for word as it was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// In one word.
    pub outcome: Outcome,
    /// In one sentence.
    pub summary: String,
    /// What each region would get.
    pub regions: Vec<RegionOutcome>,
    /// What the JVM itself says about it.
    pub messages: Vec<String>,
}

/// What would happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every region gets the huge pages it asks for.
    GetsHugePages,
    /// Some regions fall back to base pages, silently.
    FallsBack,
    /// The JVM exits at its start.
    Exits,
    /// It starts, and dies of SIGBUS when it touches pages that its control group does not allow.
    DiesOfSigbus,
    /// The line does not ask for huge pages.
    DoesNotAsk,
    /// The kernel decides page by page when memory is touched (transparent huge pages).
    DecidedAtTouch,
    /// It could not be told.
    CouldNotTell,
}

/// What a region would get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RegionOutcome {
    /// The region.
    pub name: String,
    /// Its bytes at the start.
    pub bytes: Bytes,
    /// The largest page size it would have.
    pub page_size_bytes: PageSize,
    /// As much of it would be on huge pages.
    pub huge_bytes: Bytes,
}
