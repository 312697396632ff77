//! Whether a collapse may begin: by default it must not make the machine reclaim or compact memory.

use hugewise_linux::{
    hugepages::headroom::Headroom,
    reading::Reading,
    units::{Bytes, PageSize, Pages},
};

use super::{RESERVED_HUGE_PAGES, candidates::Sum};

/// Why a collapse must not begin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
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
/// One free huge page above [`RESERVED_HUGE_PAGES`] suffices: each collapse frees base pages, which the
/// kernel merges to blocks if they are adjacent. The engine reads the free memory again during the work.
pub fn admit(
    wanted: Sum,
    size: PageSize,
    room: &Reading<Headroom>,
    allow_reclaim: bool,
) -> Result<(), AdmissionError> {
    if allow_reclaim || wanted.pages == Pages(0) {
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
        assert_eq!(admit(dense, size, &room(RESERVED_HUGE_PAGES + 1, 1), false), Ok(()));
        assert!(matches!(
            admit(dense, size, &room(RESERVED_HUGE_PAGES, 4096), false),
            Err(AdmissionError::NoRoom { .. })
        ));
        assert_eq!(admit(dense, size, &room(0, 0), true), Ok(()));
        assert!(matches!(admit(sparse, size, &room(100, 999), false), Err(AdmissionError::Grows { .. })));
        assert_eq!(admit(sparse, size, &room(100, 1000), false), Ok(()));
        assert!(matches!(
            admit(dense, size, &Reading::unknown("no file"), false),
            Err(AdmissionError::Unknown { .. })
        ));
        assert_eq!(admit(Sum::default(), size, &room(0, 0), false), Ok(()));
        Ok(())
    }
}
