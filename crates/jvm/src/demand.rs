//! What a launch line asks of huge pages: by region, bytes and page size.
//!
//! It is asked of the very `java` that will run: started with the line's own options and
//! `-version`, as a rehearsal in which every request for explicit pages is seen and pools hold
//! what we say. So nothing is tabulated by version, vendor, collector or CPU count, and not one
//! page of the machine's pools is taken.

use hugewise_linux::units::{Bytes, PageSize, Pages};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What one JVM asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Demand {
    /// Which JVM.
    pub java: Java,
    /// The heap at its start and at its largest.
    pub heap: HeapSizes,
    /// The regions that huge pages matter for, in the order in which the JVM asks for them.
    pub regions: Vec<RegionDemand>,
    /// What direct buffers may take outside of the heap (`MaxDirectMemorySize`; where it is not set, the
    /// JVM takes the heap's largest size). No flag puts it on huge pages.
    pub direct_memory: Option<Bytes>,
}

/// A JVM, as it names itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Java {
    /// The program as the launch line has it.
    pub path: String,
    /// `17.0.15`.
    pub version: String,
    /// `G1`, `Parallel`, `Serial`, `ZGC`, `Shenandoah` or `Epsilon`.
    pub collector: String,
}

/// `InitialHeapSize` and `MaxHeapSize`, as the JVM finally set them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeapSizes {
    /// What it begins with.
    pub initial_bytes: Bytes,
    /// What it may grow to.
    pub max_bytes: Bytes,
}

/// What one region asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RegionDemand {
    /// Its purpose: `heap`, `code cache`, `card table` …
    pub name: String,
    /// The size of the pages it asks for: the base page size where it asks for no huge ones.
    pub page_size_bytes: PageSize,
    /// What it holds when the JVM has started.
    pub bytes_at_start: Bytes,
    /// What it may grow to: only the heap of ZGC takes pages from a pool as it grows.
    pub bytes: Bytes,
}

impl Demand {
    /// Pages of one size, at the start and at most, of one JVM.
    #[must_use]
    pub fn pages(&self, size: PageSize) -> (Pages, Pages) {
        let of = |bytes: fn(&RegionDemand) -> Bytes| {
            let regions = self.regions.iter().filter(|region| region.page_size_bytes == size);
            regions.map(|region| bytes(region).pages_needed(size)).sum()
        };
        (of(|region| region.bytes_at_start), of(|region| region.bytes))
    }
}
