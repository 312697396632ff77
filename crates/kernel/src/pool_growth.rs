//! Making a hugetlb pool large enough for somebody, and finding out why it cannot be.

use std::fs;

use crate::{
    interrupt::Interrupt,
    journal::{Journal, JournalError},
    meminfo,
    pools::{self, Pool},
    reading::Reading,
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
    /// How much memory is available could not be told, and so the floor not be kept.
    #[error("how much memory is available could not be told: {0}")]
    Unknown(String),
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
    let setting = Setting::Pool { page_size, node: None };
    let pool = pool(root, page_size)?;
    let before = pool.total.saturating_sub(pool.surplus);
    let needed = wanted.saturating_sub(pool.available());
    if needed == Pages(0) {
        return Ok(needed);
    }
    let available = match meminfo::read(root).available {
        Reading::Known(available) => available,
        Reading::CouldNotTell { could_not_tell } => return Err(Shortage::Unknown(could_not_tell)),
    };
    let left = available.saturating_sub(needed * page_size);
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
        let got = journal.set(setting, &next.to_string())?;
        let got = Pages(got.parse().unwrap_or(now.0));
        if got < next {
            if compactions == COMPACTIONS {
                let gained = got.saturating_sub(before);
                journal.set(setting, &before.to_string())?;
                return Err(Shortage::NotContiguous { got: gained, needed, page_size });
            }
            compact(root);
            compactions += 1;
        }
        now = got;
    }
    Ok(needed)
}

/// The pool of one page size, over all nodes.
pub fn pool(root: &Root, page_size: PageSize) -> Result<Pool, ReadError> {
    let pools = pools::read(root)?;
    pools.into_iter().find(|pool| pool.page_size == page_size && pool.node.is_none()).ok_or_else(|| {
        ReadError::Io {
            path: root.path(pools::folder(page_size, None)),
            source: std::io::ErrorKind::NotFound.into(),
        }
    })
}

/// Asks the kernel to make free memory contiguous. Whether it could is seen in the next attempt.
fn compact(root: &Root) {
    let _ = fs::write(root.path("proc/sys/vm/compact_memory"), "1");
}
