//! Growing a hugetlb pool, and the reason if it stays too small.

use hugewise_linux::{
    hugepages::pools::{self, Pool},
    interrupt::Interrupt,
    proc::meminfo,
    reading::Reason,
    root::{ReadError, Root},
    settings::Setting,
    sys::file,
    units::{Bytes, PageSize, Pages},
};

use crate::journal::{Journal, JournalError};

/// Memory requested per write to the pool's file, small enough that a signal is handled soon.
const STEP: Bytes = Bytes(512 << 20);
/// Maximum number of compactions while a pool grows.
const MAX_COMPACTIONS: usize = 3;

#[derive(Debug, thiserror::Error)]
pub enum Shortage {
    /// A larger pool would leave less memory available than the floor.
    #[error(
        "{needed} more pages of {page_size} in the pool would leave {left} of memory available; the floor is \
         {floor}"
    )]
    Floor {
        /// Missing pages.
        needed: Pages,
        page_size: PageSize,
        /// Memory that would stay available.
        left: Bytes,
        /// Memory that must stay available.
        floor: Bytes,
    },
    /// The kernel found too few pages.
    #[error("got {got} of {needed} more pages of {page_size}: {cause}")]
    TooFew {
        /// Pages by which the pool grew.
        got: Pages,
        /// Pages that were missing.
        needed: Pages,
        page_size: PageSize,
        cause: Reason,
    },
    #[error("interrupted")]
    Interrupted,
    /// `MemAvailable` is unknown, so the floor cannot be checked.
    #[error("available memory is unknown: {0}")]
    Unknown(Reason),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Grows the pool until `wanted` pages are available to new mappings. Returns the number of added pages.
///
/// Never takes `MemAvailable` below `floor`. If the kernel finds too few pages, memory is compacted and the
/// write repeated; if pages are still missing, the pool gets its old size back.
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
    check_floor(root, needed, page_size, floor)?;
    let now = resize(root, journal, setting, before + needed, interrupt)?;
    let gained = now.saturating_sub(before);
    if gained < needed {
        let shortage = shortage(root, page_size, None, gained, needed);
        journal.set(setting, &before.to_string())?;
        return Err(shortage);
    }
    Ok(needed)
}

/// Fails if `needed` more pages would take `MemAvailable` below `floor`.
fn check_floor(root: &Root, needed: Pages, page_size: PageSize, floor: Bytes) -> Result<(), Shortage> {
    let available = meminfo::read(root).available.into_result().map_err(Shortage::Unknown)?;
    let left = available.saturating_sub(needed * page_size);
    if left < floor { Err(Shortage::Floor { needed, page_size, left, floor }) } else { Ok(()) }
}

/// Sets the pool `setting` to `target` pages, in steps, and compacts memory if the kernel finds too few.
/// Returns the new size. Pages gained before a failure stay in the pool.
pub fn resize(
    root: &Root,
    journal: &mut Journal,
    setting: Setting,
    target: Pages,
    interrupt: &Interrupt,
) -> Result<Pages, Shortage> {
    let Setting::Pool { page_size, .. } = setting else { return Ok(Pages(0)) };
    let pages = |text: String| Pages(text.parse().unwrap_or(0));
    let before = pages(setting.read(root)?);
    let step = STEP.pages_needed(page_size);
    let set = |next: Pages| {
        if interrupt.signal().is_some() {
            return Err(Shortage::Interrupted);
        }
        Ok(pages(journal.set(setting, &next.to_string())?))
    };
    let now = in_steps(before, target, step, set, || compact(root))?;
    // A signal also ends the kernel's allocation; that is not a shortage.
    if now < target && interrupt.signal().is_some() {
        return Err(Shortage::Interrupted);
    }
    Ok(now)
}

/// The steps of [`resize`]: `set` requests a pool size and returns the size reached.
fn in_steps<E>(
    before: Pages,
    target: Pages,
    step: Pages,
    mut set: impl FnMut(Pages) -> Result<Pages, E>,
    compact: impl Fn(),
) -> Result<Pages, E> {
    if target < before {
        return set(target);
    }
    let (mut now, mut compactions) = (before, 0);
    while now < target {
        let next = Pages((now + step).0.min(target.0));
        now = set(next)?;
        if now < next {
            if compactions == MAX_COMPACTIONS {
                break;
            }
            compact();
            compactions += 1;
        }
    }
    Ok(now)
}

/// Why the kernel added `got` instead of `needed` pages.
pub fn shortage(root: &Root, page_size: PageSize, node: Option<u32>, got: Pages, needed: Pages) -> Shortage {
    // Of a node `MemFree`, of the machine `MemAvailable`.
    let free = match node {
        Some(node) => free_on(root, node),
        None => meminfo::read(root).available.known().copied(),
    };
    let cause = match free {
        Some(free) if free < needed.saturating_sub(got) * page_size => {
            let place = node.map_or_else(|| "the machine".to_owned(), |node| format!("node {node}"));
            Reason::new(format!(
                "{place} had {free} of memory left for the rest; free memory, or request fewer pages"
            ))
        }
        Some(_) => Reason::new(
            "memory is free, but not contiguous, even after compaction; reserve the pages at boot or soon \
             after it",
        ),
        None => Reason::new("the cause is unknown"),
    };
    Shortage::TooFew { got, needed, page_size, cause }
}

fn free_on(root: &Root, node: u32) -> Option<Bytes> {
    let text = root.read(format!("{}/node{node}/meminfo", pools::NODES)).ok()?;
    let mut words = text.lines().find(|line| line.contains(" MemFree:"))?.split_whitespace().rev();
    (words.next()? == "kB").then_some(())?;
    words.next()?.parse().ok().map(Bytes::from_kib)
}

/// The pool of one page size, over all nodes.
pub fn pool(root: &Root, page_size: PageSize) -> Result<Pool, ReadError> {
    pools::find(root, page_size, None)
}

/// Compacts free memory. The effect shows in the next write to the pool.
fn compact(root: &Root) {
    let _ = file::set(&root.path("proc/sys/vm/compact_memory"), "1");
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use hugewise_linux::testing::tree;

    use super::*;

    /// Grows a pool on a kernel with `free` contiguous pages, to which each compaction adds `more`.
    fn reach(free: u64, more: u64, target: u64) -> (Pages, usize) {
        let (free, compacted) = (Cell::new(free), Cell::new(0));
        let set = |next: Pages| Ok::<_, ()>(Pages(next.0.min(free.get())));
        let compact = || {
            free.set(free.get() + more);
            compacted.set(compacted.get() + 1);
        };
        (in_steps(Pages(100), Pages(target), Pages(256), set, compact).unwrap_or_default(), compacted.get())
    }

    #[test]
    fn a_pool_gets_as_far_as_the_kernel_finds_pages() {
        assert_eq!(reach(5000, 0, 1000), (Pages(1000), 0));
        assert_eq!(reach(812, 0, 1000), (Pages(812), MAX_COMPACTIONS));
        assert_eq!(reach(812, 150, 1000), (Pages(1000), 2), "compaction helps");
        assert_eq!(reach(812, 0, 40), (Pages(40), 0), "shrinking is one step");
        assert_eq!(reach(812, 0, 100), (Pages(100), 0));
    }

    #[test]
    fn too_little_memory_is_distinguished_from_scattered_memory() -> Result<(), Box<dyn std::error::Error>> {
        let size = PageSize::new(Bytes(2 << 20))?;
        let (_dir, root) = tree(&[
            ("proc/meminfo", "MemAvailable: 1048576 kB\n"),
            (
                "sys/devices/system/node/node1/meminfo",
                "Node 1 MemTotal: 9999999 kB\nNode 1 MemFree:   4096 kB\n",
            ),
        ]);
        let why = |node, needed| shortage(&root, size, node, Pages(10), Pages(needed)).to_string();
        for (node, needed, said) in [
            (None, 1000, "the machine had 1GiB of memory left"),
            (None, 500, "memory is free, but not contiguous"),
            (Some(1), 13, "node 1 had 4MiB of memory left"),
            (Some(1), 12, "not contiguous"),
            (Some(2), 1000, "the cause is unknown"),
        ] {
            assert!(why(node, needed).contains(said), "{}", why(node, needed));
        }
        Ok(())
    }
}
