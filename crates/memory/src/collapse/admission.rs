//! May a conversion begin? It must not make the machine reclaim or compact memory unless it is told to.

use hugewise_linux::{
    hugepages::headroom::Room,
    reading::Reading,
    units::{Bytes, PageSize, Pages},
};

use super::{KEPT, candidates::Sum};

/// Why a conversion should not begin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No huge page can be had without reclaim or compaction.
    #[error("{}", no_room(.room))]
    NoRoom {
        /// What there is.
        room: Room,
    },
    /// Holes would take more memory than there is without reclaim.
    #[error(
        "holes in sparse ranges would take {grows} more, and {} are free above the kernel's watermarks: \
         other memory would have to give way",
        .room.above_watermarks
    )]
    Grows {
        /// What the holes take.
        grows: Bytes,
        /// What there is.
        room: Room,
    },
    /// How much room there is could not be told.
    #[error(
        "how many huge pages are free could not be told ({reason}), and so not whether memory would have to be reclaimed or compacted for them"
    )]
    NotTold {
        /// Why.
        reason: String,
    },
}

fn no_room(room: &Room) -> String {
    format!(
        "memory would have to be reclaimed or compacted: of free memory, {} lie above the kernel's watermarks, \
         and {} free blocks are as large as a huge page; {} huge pages can be taken at once, and {KEPT} are \
         left to others",
        room.above_watermarks, room.blocks, room.at_once
    )
}

/// Decides for huge pages of `size`; the room that is counted on, where it may begin.
///
/// One free huge page is enough to go on with: each conversion gives its base pages back, which join to
/// blocks again as far as they lie side by side. Whether they do is looked at on the way.
pub fn admit(wanted: Sum, size: PageSize, room: &Reading<Room>, allow_reclaim: bool) -> Result<(), Refused> {
    if allow_reclaim || wanted.pages == Pages(0) {
        return Ok(());
    }
    let room = match room {
        Reading::Known(room) => *room,
        Reading::CouldNotTell { could_not_tell } => {
            return Err(Refused::NotTold { reason: could_not_tell.clone() });
        }
    };
    let grows = wanted.holes(size);
    if room.at_once.0 <= KEPT {
        Err(Refused::NoRoom { room })
    } else if grows > room.above_watermarks {
        Err(Refused::Grows { grows, room })
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn a_conversion_begins_where_it_takes_nothing_from_others() -> Result<(), Box<dyn Error>> {
        let size: PageSize = "2m".parse()?;
        let room = |at_once, free: u64| {
            Reading::Known(Room {
                blocks: Pages(100),
                above_watermarks: Bytes(free << 20),
                at_once: Pages(at_once),
            })
        };
        let dense = Sum { pages: Pages(1000), present_bytes: Pages(1000) * size };
        let sparse = Sum { present_bytes: Bytes(1000 << 20), ..dense };
        assert_eq!(admit(dense, size, &room(KEPT + 1, 1), false), Ok(()));
        assert!(matches!(admit(dense, size, &room(KEPT, 4096), false), Err(Refused::NoRoom { .. })));
        assert_eq!(admit(dense, size, &room(0, 0), true), Ok(()));
        assert!(matches!(admit(sparse, size, &room(100, 999), false), Err(Refused::Grows { .. })));
        assert_eq!(admit(sparse, size, &room(100, 1000), false), Ok(()));
        assert!(matches!(
            admit(dense, size, &Reading::unknown("no file"), false),
            Err(Refused::NotTold { .. })
        ));
        assert_eq!(admit(Sum::default(), size, &room(0, 0), false), Ok(()));
        Ok(())
    }
}
