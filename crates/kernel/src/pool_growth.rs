//! Making a hugetlb pool large enough for somebody, and finding out why it cannot be.

use std::fs;

use crate::{
    interrupt::Interrupt,
    journal::{Journal, JournalError},
    root::{ReadError, Root},
    settings::Setting,
    units::{Bytes, PageSize, Pages},
};

/// How much is asked of the kernel in one write, so that a signal is answered soon.
const STEP: Bytes = Bytes(512 << 20);
/// How often memory is compacted before a shortage is believed.
const COMPACTIONS: usize = 3;

/// Why a pool did not become large enough. It was put back.
#[derive(Debug, thiserror::Error)]
pub enum Shortage {
    /// Growing it would take the machine below the floor of available memory.
    #[error(
        "a pool of {needed} more pages of {page_size} would leave {left} of memory available, and the floor is \
         {floor}"
    )]
    Floor {
        /// Pages that are missing.
        needed: Pages,
        /// Their size.
        page_size: PageSize,
        /// What would remain available.
        left: Bytes,
        /// What must remain available.
        floor: Bytes,
    },
    /// The kernel found fewer pages, although memory would have sufficed.
    #[error(
        "only {got} of {needed} pages of {page_size} could be had: memory is free, but not contiguous, even \
         after compaction; reserve them at boot, or sooner after it"
    )]
    NotContiguous {
        /// Pages that the pool could be grown by.
        got: Pages,
        /// Pages that were missing.
        needed: Pages,
        /// Their size.
        page_size: PageSize,
    },
    /// A signal came.
    #[error("interrupted")]
    Interrupted,
    /// The state of the pool could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It could not be changed.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Makes sure that `wanted` pages of the pool are available to new mappings, growing it where they
/// are not; answers the pages it grew by.
///
/// Never takes `MemAvailable` below `floor`. Where the kernel finds too few pages, memory is
/// compacted and it is tried again; if it still falls short, what was gained is given back.
pub fn grow(
    root: &Root,
    journal: &mut Journal,
    page_size: PageSize,
    wanted: Pages,
    floor: Bytes,
    interrupt: &Interrupt,
) -> Result<Pages, Shortage> {
    let pool = Setting::Pool { page_size, node: None };
    let before = count(root, page_size, "nr_hugepages")?;
    let needed = wanted.saturating_sub(available(root, page_size)?);
    if needed == Pages(0) {
        return Ok(needed);
    }
    let left = memory_available(root)?.saturating_sub(needed * page_size);
    if left < floor {
        return Err(Shortage::Floor { needed, page_size, left, floor });
    }
    let target = before + needed;
    let step = STEP.pages_needed(page_size);
    let (mut now, mut compactions) = (before, 0);
    while now < target {
        if interrupt.signal().is_some() {
            return Err(Shortage::Interrupted);
        }
        let next = Pages((now + step).0.min(target.0));
        let got = journal.set(pool, &next.to_string())?;
        let got = Pages(got.parse().unwrap_or(now.0));
        if got < next {
            if compactions == COMPACTIONS {
                let gained = got.saturating_sub(before);
                journal.set(pool, &before.to_string())?;
                return Err(Shortage::NotContiguous { got: gained, needed, page_size });
            }
            compact(root);
            compactions += 1;
        }
        now = got;
    }
    Ok(needed)
}

/// Pages that a new mapping can have: free, and not promised to anybody.
pub fn available(root: &Root, page_size: PageSize) -> Result<Pages, ReadError> {
    Ok(count(root, page_size, "free_hugepages")?.saturating_sub(count(root, page_size, "resv_hugepages")?))
}

fn count(root: &Root, page_size: PageSize, file: &str) -> Result<Pages, ReadError> {
    let path = format!("sys/kernel/mm/hugepages/hugepages-{}/{file}", page_size.sysfs());
    root.value(path, "a number of pages").map(Pages)
}

/// Asks the kernel to make free memory contiguous. Whether it could is seen in the next attempt.
fn compact(root: &Root) {
    let _ = fs::write(root.path("proc/sys/vm/compact_memory"), "1");
}

/// `MemAvailable`: what can be had without swapping.
pub fn memory_available(root: &Root) -> Result<Bytes, ReadError> {
    let path = "proc/meminfo";
    let text = root.read(path)?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|value| value.parse().ok())
        .ok_or_else(|| root.content(path, 1, "MemAvailable with a size", line.unwrap_or_default()))
}
