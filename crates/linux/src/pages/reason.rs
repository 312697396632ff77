//! Why memory is not on huge pages: the reasons, and those of them that a mapping alone decides.

use std::ops::Range;

use schemars::JsonSchema;
use serde::Serialize;

use super::occupancy;
use crate::{
    proc::smaps::{Advice, Memory, Vma},
    units::PageSize,
};

/// Why memory is not on transparent huge pages, or is not to be collapsed into them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The THP mode is `madvise`, and the program did not advise (`MADV_HUGEPAGE`) here.
    NeverAdvised,
    /// The mapping is smaller than a huge page.
    TooSmall,
    /// No aligned huge page lies in the mapping, or these bytes lie before its first or behind its last one,
    /// or its offset in its file does not fit.
    NotAligned,
    /// The program advised against huge pages here (`MADV_NOHUGEPAGE`).
    OffHere,
    /// The machine's settings exclude memory of this kind.
    OffGlobally,
    /// The process, or a parent of it, switched THP off (`PR_SET_THP_DISABLE`).
    OffByPrctl,
    /// `THPeligible` is 0: the kernel would make no huge page here now, and does not report why.
    NotEligible,
    /// File-backed: large folios depend on the file system.
    File,
    /// A mapping of the kernel's own (`[vdso]` and the like).
    Kernel,
    /// Whole huge pages that base page table entries map.
    SplitSince,
    /// Part of it is swapped out: huge pages are split for that, and base pages come back.
    Swapped,
    /// A JVM was told to use pages of a pool, and this memory got none: most likely the pool was short when the
    /// JVM started.
    PoolShortAtStart,
    /// Its pages were there before the advice, or before a whole huge page fitted into the mapping.
    AdvisedAfterTouch,
    /// No huge page was free at its page faults.
    FragmentationThen,
    /// Huge pages are allowed now; the earlier cause is unknown.
    Eligible,
    /// The settings could not be read.
    NotTold,
    /// On pages of a hugetlb pool.
    Pool,
    /// The stack of the main thread, which grows by itself.
    Stack,
    /// Reserved addresses without access.
    NotAccessible,
}

/// The reason that no setting and no advice changes: the kind of the memory and its place. `pmd` is the PMD size.
#[must_use]
pub fn by_place(memory: Memory, addresses: &Range<u64>, offset: u64, pmd: PageSize) -> Option<Reason> {
    match memory {
        Memory::Kernel => return Some(Reason::Kernel),
        Memory::File => return Some(Reason::File),
        Memory::Anonymous | Memory::Shared | Memory::Pool => {}
    }
    let page = pmd.bytes().0;
    if addresses.end - addresses.start < page {
        return Some(Reason::TooSmall);
    }
    // A huge page of shared memory lies at a multiple of its size in the file, too.
    let misplaced = memory == Memory::Shared && addresses.start.wrapping_sub(offset) % page != 0;
    (misplaced || occupancy::whole(addresses, pmd).is_empty()).then_some(Reason::NotAligned)
}

/// The reason that the process or the program gave.
#[must_use]
pub fn by_request(process_off: bool, advice: Advice) -> Option<Reason> {
    match (process_off, advice) {
        (true, _) => Some(Reason::OffByPrctl),
        (false, Advice::NoHuge) => Some(Reason::OffHere),
        _ => None,
    }
}

/// The reason that holds for a whole mapping, of a process that has switched THP off or not.
#[must_use]
pub fn of_mapping(vma: &Vma, process_off: bool, pmd: PageSize) -> Option<Reason> {
    by_place(vma.memory(), &vma.addresses, vma.offset, pmd).or_else(|| by_request(process_off, vma.advice))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_decides_before_the_request() -> Result<(), Box<dyn std::error::Error>> {
        let pmd: PageSize = "2m".parse()?;
        let vma = |start, end| Vma { addresses: start..end, ..Vma::default() };
        assert_eq!(of_mapping(&vma(0x40_0000, 0x60_0000), false, pmd), None);
        assert_eq!(of_mapping(&vma(0x40_0000, 0x5f_f000), true, pmd), Some(Reason::TooSmall));
        // Larger than a huge page, with no aligned one in it.
        assert_eq!(of_mapping(&vma(0x30_0000, 0x5f_f000), false, pmd), Some(Reason::NotAligned));
        let refused = Vma { advice: Advice::NoHuge, ..vma(0x40_0000, 0x60_0000) };
        assert_eq!(of_mapping(&refused, false, pmd), Some(Reason::OffHere));
        assert_eq!(of_mapping(&refused, true, pmd), Some(Reason::OffByPrctl));
        let shared = by_place(Memory::Shared, &(0x40_0000..0x100_0000), 0x1000, pmd);
        assert_eq!(shared, Some(Reason::NotAligned));
        Ok(())
    }
}
