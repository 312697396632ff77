//! Reasons why memory is not on huge pages, and those that follow from the mapping alone.

use std::ops::Range;

use schemars::JsonSchema;
use serde::Serialize;

use super::occupancy;
use crate::{
    proc::smaps::{Memory, ThpAdvice, Vma},
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
    /// The mapping contains no aligned huge page, or these bytes are before its first or after its last one,
    /// or its file offset is not aligned like its address.
    NotAligned,
    /// The program advised against huge pages here (`MADV_NOHUGEPAGE`).
    OffHere,
    /// The stack of a thread: since Linux 6.7 the kernel excludes mappings with `MAP_STACK` by itself.
    ThreadStack,
    /// The machine's settings exclude memory of this kind.
    OffGlobally,
    /// The tmpfs of the file is mounted with `huge=never`, the default.
    OffByMount,
    /// The process or a parent disabled THP (`PR_SET_THP_DISABLE`).
    OffByPrctl,
    /// `THPeligible` is 0 without advice although the THP mode is `always`, as after
    /// `PR_THP_DISABLE_EXCEPT_ADVISED` of the process or a parent.
    OffUnlessAdvised,
    /// `THPeligible` is 0; the kernel does not report why.
    NotEligible,
    /// A file that is on no tmpfs: large folios depend on the file system.
    File,
    /// A mapping of the kernel, such as `[vdso]`.
    Kernel,
    /// Aligned ranges that lack pages: never touched, or purged by an allocator (`MADV_DONTNEED`).
    Holes,
    /// Whole huge pages that base page table entries map.
    SplitSince,
    /// Part of it is swapped out: swap-out may split huge pages, and swap-in mostly brings back base pages.
    Swapped,
    /// A JVM's flags request pages of a pool, and this memory has none: most likely the pool was too small
    /// when the JVM started.
    PoolShortAtStart,
    /// Its pages were touched before the `MADV_HUGEPAGE` call, or before the mapping was large enough for a
    /// huge page.
    AdvisedAfterTouch,
    /// Huge-page allocations failed at its page faults.
    FragmentationThen,
    /// Huge pages are allowed now; the earlier cause is unknown.
    Eligible,
    /// The settings could not be read.
    Unknown,
    /// On pages of a hugetlb pool.
    Pool,
    /// The stack of the main thread, which grows by itself.
    Stack,
    /// Reserved addresses without access.
    NotAccessible,
}

impl Reason {
    /// Whether the memory cannot be on transparent huge pages whatever the settings are: too small, not aligned, a file,
    /// a stack, or memory of the kernel.
    pub fn is_of_place(self) -> bool {
        use Reason::{File, Kernel, NotAccessible, NotAligned, Stack, ThreadStack, TooSmall};
        matches!(self, File | Kernel | NotAccessible | NotAligned | Stack | ThreadStack | TooSmall)
    }
}

/// The reason that follows from the kind and the addresses of the memory, whatever settings and advice are.
/// `pmd` is the PMD size.
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
    // The file offset of a huge page of shared memory is also a multiple of its size.
    let misplaced = memory == Memory::Shared && addresses.start.wrapping_sub(offset) % page != 0;
    (misplaced || occupancy::whole(addresses, pmd).is_empty()).then_some(Reason::NotAligned)
}

/// The reason that follows from `prctl` or `madvise` calls of the program.
pub fn by_request(process_off: bool, advice: ThpAdvice) -> Option<Reason> {
    match (process_off, advice) {
        (true, _) => Some(Reason::OffByPrctl),
        (false, ThpAdvice::NoHuge) => Some(Reason::OffHere),
        _ => None,
    }
}

/// The reason for a whole mapping.
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
        // Larger than a huge page, without an aligned one.
        assert_eq!(of_mapping(&vma(0x30_0000, 0x5f_f000), false, pmd), Some(Reason::NotAligned));
        let refused = Vma { advice: ThpAdvice::NoHuge, ..vma(0x40_0000, 0x60_0000) };
        assert_eq!(of_mapping(&refused, false, pmd), Some(Reason::OffHere));
        assert_eq!(of_mapping(&refused, true, pmd), Some(Reason::OffByPrctl));
        let shared = by_place(Memory::Shared, &(0x40_0000..0x100_0000), 0x1000, pmd);
        assert_eq!(shared, Some(Reason::NotAligned));
        Ok(())
    }
}
