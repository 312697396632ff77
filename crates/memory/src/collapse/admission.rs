//! Whether a collapse may begin: by default it must not make the machine reclaim or compact memory.

use hugewise_linux::{
    cgroup::{self, Limit},
    hugepages::headroom::Headroom,
    proc::meminfo,
    reading::Reading,
    root::Root,
    units::{Bytes, PageSize, Pages},
};

use super::{RESERVED_HUGE_PAGES, candidates::Sum};

/// Why a collapse must not begin.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AdmissionError {
    /// No huge page is available without reclaim or compaction.
    #[error("{}", no_room(.room))]
    NoRoom {
        /// The free memory.
        room: Headroom,
    },
    /// Filling the holes needs more memory than is free without reclaim.
    #[error(
        "holes in sparse ranges need {grows} more, and {} are free above the kernel's watermarks: other \
         memory would be reclaimed",
        .room.above_watermarks
    )]
    Grows {
        /// Bytes that the holes need.
        grows: Bytes,
        /// The free memory.
        room: Headroom,
    },
    /// The memory limit of its control group leaves less than the huge pages need, and nothing can be swapped out.
    #[error(
        "the memory limit of the process's control group ({}, /{}) leaves {left}, and {needed} are needed: a huge page is \
         charged before its base pages are freed, and holes become resident",
        .limit.bytes, .limit.file.display()
    )]
    GroupLimit {
        /// The limit.
        limit: Box<Limit>,
        /// Bytes that it leaves.
        left: Bytes,
        /// Bytes that the collapse needs at once.
        needed: Bytes,
    },
    /// The free memory could not be read.
    #[error(
        "the number of free huge pages is unknown ({reason}), and so is whether memory would be reclaimed or \
         compacted"
    )]
    Unknown {
        /// The error of the reading.
        reason: String,
    },
}

fn no_room(room: &Headroom) -> String {
    format!(
        "memory would be reclaimed or compacted: {} of memory are free above the kernel's watermarks, and {} \
         free blocks have the size of a huge page; {} huge pages are available at once, and {RESERVED_HUGE_PAGES} stay free \
         for other programs",
        room.above_watermarks, room.blocks, room.at_once
    )
}

/// Decides whether collapsing `wanted` into huge pages of `size` may begin. `room` is free memory before the
/// first collapse.
///
/// The limit of the process's control group counts first, because reclaim within the group makes the process itself
/// wait. One free huge page above [`RESERVED_HUGE_PAGES`] suffices: each collapse frees base pages, which the
/// kernel merges to blocks if they are adjacent. The engine reads the free memory again during the work.
pub fn admit(
    wanted: Sum,
    size: PageSize,
    room: &Reading<Headroom>,
    group: &GroupRoom,
    allow_reclaim: bool,
) -> Result<(), AdmissionError> {
    if wanted.pages == Pages(0) {
        return Ok(());
    }
    group.admit(wanted, size, allow_reclaim)?;
    if allow_reclaim {
        return Ok(());
    }
    let room = match room {
        Reading::Known(room) => *room,
        Reading::Unknown { unknown } => {
            return Err(AdmissionError::Unknown { reason: unknown.clone() });
        }
    };
    let grows = wanted.holes(size);
    if room.at_once.0 <= RESERVED_HUGE_PAGES {
        Err(AdmissionError::NoRoom { room })
    } else if grows > room.above_watermarks {
        Err(AdmissionError::Grows { grows, room })
    } else {
        Ok(())
    }
}

/// What the control group of a process leaves it.
#[derive(Clone, Debug, Default)]
pub struct GroupRoom {
    /// The limit with the fewest bytes left; `None` if there is none, or if it is unknown.
    pub limit: Option<Limit>,
    /// Whether memory of the group could be swapped out to make room.
    pub can_swap: bool,
}

impl GroupRoom {
    /// That of process `pid`.
    pub fn read(root: &Root, pid: u32) -> GroupRoom {
        let group = cgroup::read(&root.clone().in_place_of_this(pid), &[]).memory;
        let can_swap = meminfo::read(root).swap_free.known().is_none_or(|free| *free > Bytes::ZERO);
        GroupRoom { limit: group.known().cloned().flatten(), can_swap }
    }

    fn admit(&self, wanted: Sum, size: PageSize, allow_reclaim: bool) -> Result<(), AdmissionError> {
        let Some(limit) = self.limit.as_ref().filter(|_| !(allow_reclaim && self.can_swap)) else {
            return Ok(());
        };
        let needed = wanted.holes(size) + size.bytes();
        match limit.left.known() {
            Some(left) if *left < needed => {
                Err(AdmissionError::GroupLimit { limit: Box::new(limit.clone()), left: *left, needed })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn a_collapse_begins_only_without_reclaim_and_compaction() -> Result<(), Box<dyn Error>> {
        let size: PageSize = "2m".parse()?;
        let room = |at_once, free: u64| {
            Reading::Known(Headroom {
                blocks: Pages(100),
                above_watermarks: Bytes(free << 20),
                at_once: Pages(at_once),
            })
        };
        let dense = Sum { pages: Pages(1000), present_bytes: Pages(1000) * size };
        let sparse = Sum { present_bytes: Bytes(1000 << 20), ..dense };
        assert_eq!(
            admit(dense, size, &room(RESERVED_HUGE_PAGES + 1, 1), &GroupRoom::default(), false),
            Ok(())
        );
        assert!(matches!(
            admit(dense, size, &room(RESERVED_HUGE_PAGES, 4096), &GroupRoom::default(), false),
            Err(AdmissionError::NoRoom { .. })
        ));
        assert_eq!(admit(dense, size, &room(0, 0), &GroupRoom::default(), true), Ok(()));
        assert!(matches!(
            admit(sparse, size, &room(100, 999), &GroupRoom::default(), false),
            Err(AdmissionError::Grows { .. })
        ));
        assert_eq!(admit(sparse, size, &room(100, 1000), &GroupRoom::default(), false), Ok(()));
        assert!(matches!(
            admit(dense, size, &Reading::unknown("no file"), &GroupRoom::default(), false),
            Err(AdmissionError::Unknown { .. })
        ));
        assert_eq!(admit(Sum::default(), size, &room(0, 0), &GroupRoom::default(), false), Ok(()));
        Ok(())
    }

    #[test]
    fn a_limit_of_the_group_leaves_room_for_a_huge_page_and_the_holes() -> Result<(), Box<dyn Error>> {
        let size: PageSize = "2m".parse()?;
        let room = Reading::Known(Headroom {
            blocks: Pages(100),
            above_watermarks: Bytes(1 << 30),
            at_once: Pages(100),
        });
        let sum = |holes: u64| Sum { pages: Pages(10), present_bytes: Bytes((20 - holes) << 20) };
        let refused = |left: u64, holes, can_swap, allow_reclaim| {
            let limit = Limit {
                bytes: Bytes(1 << 30),
                used: Reading::Known(Bytes((1 << 30) - (left << 20))),
                left: Reading::Known(Bytes(left << 20)),
                file: "sys/fs/cgroup/memory/a/memory.limit_in_bytes".into(),
            };
            let group = GroupRoom { limit: Some(limit), can_swap };
            admit(sum(holes), size, &room, &group, allow_reclaim).err().map(|error| error.to_string())
        };
        assert!(
            refused(1, 0, false, false)
                .is_some_and(|words| words.contains("/memory.limit_in_bytes) leaves 1MiB, and 2MiB"))
        );
        assert!(refused(2, 0, false, false).is_none());
        assert!(refused(5, 4, false, false).is_some() && refused(6, 4, false, false).is_none());
        // Without swap, reclaim does not help.
        assert!(refused(1, 0, false, true).is_some() && refused(1, 0, true, true).is_none());
        assert!(refused(1, 0, true, false).is_some());
        Ok(())
    }
}
