//! Finding about fragmented memory.

use hugewise_linux::{
    facts::Facts,
    hugepages::contiguity::{AvailablePages, BUDDYINFO},
    proc::meminfo::MEMINFO,
    units::Pages,
};

use super::{Finding, Severity, evidence, write};

/// Memory is fragmented if compaction could yield more than this many times the huge pages that are free.
const MIN_GAIN_OF_COMPACTION: u64 = 4;
/// Least free memory, in huge pages, that can count as fragmented.
const MIN_PAGES: u64 = 16;

/// Huge pages free now and after compaction, if free memory is fragmented; `None` if it is not, or if that is
/// unknown.
pub fn scattered(facts: &Facts) -> Option<(&AvailablePages, Pages, Pages)> {
    let pmd_size = facts.thp.pmd_size.known().or(facts.meminfo.default_size.known())?;
    let sizes = &facts.contiguity.sizes;
    let pages = sizes.iter().find(|pages| &pages.page_size == pmd_size && pages.blocks.is_none())?;
    let (at_once, at_most) = (*pages.at_once.known()?, *pages.at_most.known()?);
    // Memory in no free list may contain large blocks.
    let unlisted = facts.contiguity.unlisted.known()?.whole_pages(*pmd_size);
    let few = at_once.0.saturating_add(unlisted.0).saturating_mul(MIN_GAIN_OF_COMPACTION) < at_most.0;
    (few && at_most.0 >= MIN_PAGES).then_some((pages, at_once, at_most))
}

/// Whether much memory is free, and little of it in blocks of a huge page.
pub fn finding(facts: &Facts) -> Option<Finding> {
    let (pages, at_once, at_most) = scattered(facts)?;
    Some(Finding {
        id: "memory-fragmented",
        severity: Severity::Warning,
        evidence: vec![
            evidence(format!("{at_once} pages of {} free", pages.page_size), BUDDYINFO),
            evidence(format!("free memory for {at_most} pages"), MEMINFO),
        ],
        detail: format!(
            "Free memory is fragmented: a pool of {} pages can end up smaller than requested, and \
             allocations of transparent huge pages fall back to base pages or wait for compaction.",
            pages.page_size
        ),
        actions: write("Compact free memory", 1, "proc/sys/vm/compact_memory"),
    })
}
