//! Huge-page demand of a launch line: bytes and page size of each region.
//!
//! The demand comes from the
//! `java` that will run: a rehearsal starts it with the line's own options and `-version`, records every
//! request for explicit huge pages, and answers it from simulated pools. Nothing is tabulated by version,
//! vendor, collector or CPU count, and no page of the machine's pools is taken.

use hugewise_linux::units::{Bytes, PageSize, Pages};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Demand of one JVM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Demand {
    /// The JVM that was rehearsed.
    pub java: Java,
    /// Initial and maximum heap size.
    pub heap: HeapSizes,
    /// Regions that can be on huge pages; those that take pages from pools come first, in the order of their
    /// requests.
    pub regions: Vec<RegionDemand>,
    /// Limit of direct buffers, in bytes: `MaxDirectMemorySize`, or the maximum heap size if that is not set.
    /// No JVM flag puts direct buffers on huge pages. `null` if the JVM does not have the flag.
    pub direct_memory: Option<Bytes>,
}

/// Identity of a JVM, as it reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Java {
    /// `java` as written in the launch line.
    pub path: String,
    /// Version, such as `17.0.15`.
    pub version: String,
    /// `G1`, `Parallel`, `Serial`, `ZGC`, `Shenandoah`, `Epsilon`, `CMS` or `unknown`.
    pub collector: String,
}

/// Final values of `InitialHeapSize` and `MaxHeapSize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeapSizes {
    /// Initial heap size, in bytes.
    pub initial_bytes: Bytes,
    /// Maximum heap size, in bytes.
    pub max_bytes: Bytes,
}

/// Demand of one region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RegionDemand {
    /// Purpose: `heap`, `code cache`, `card table` …
    pub name: String,
    /// Page size that the region requests, in bytes; the base page size if it requests no huge pages.
    pub page_size_bytes: PageSize,
    /// Size once the JVM has started, in bytes: the mapping of a region on pool pages, whose pages the kernel
    /// reserves, and the committed part of any other region.
    #[serde(rename = "at_start_bytes")]
    pub bytes_at_start: Bytes,
    /// Maximum size, in bytes. Of the regions on pool pages only the heap of ZGC grows after the start.
    pub bytes: Bytes,
}

impl Demand {
    /// Pages of `size` that one JVM takes once it has started, and at its maximum size.
    pub fn pages(&self, size: PageSize) -> (Pages, Pages) {
        pages(&self.regions, size)
    }
}

/// Pages of `size` that regions take after the start, and at their maximum sizes.
pub fn pages(regions: &[RegionDemand], size: PageSize) -> (Pages, Pages) {
    let of = |bytes: fn(&RegionDemand) -> Bytes| {
        let regions = regions.iter().filter(|region| region.page_size_bytes == size);
        regions.map(|region| bytes(region).pages_needed(size)).sum()
    };
    (of(|region| region.bytes_at_start), of(|region| region.bytes))
}
