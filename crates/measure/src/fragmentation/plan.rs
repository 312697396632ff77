//! How much to fragment, and whether there is enough.

use std::path::PathBuf;

use hugewise_linux::{
    cgroup,
    hugepages::{page_sizes::PageSizes, thp},
    proc::meminfo,
    reading::Reading,
    root::Root,
    units::{Bytes, PageSize},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is left to the program where nobody says how much.
pub const USUAL: Bytes = Bytes(6 << 30);
/// Less is no experiment.
pub const LEAST: Bytes = Bytes(256 << 20);
/// Never less than this, and never less than a twentieth of the machine's memory, stays available.
const SMALLEST_RESERVE: Bytes = Bytes(512 << 20);
/// Of so many base pages in a row one stays.
const PIECE: u64 = 64;

/// How much of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// Memory in bytes that is free in pieces afterwards, for whoever wants it.
    pub left: Bytes,
    /// Memory in bytes that is filled at first.
    pub taken: Bytes,
    /// While it is filled, `MemAvailable` does not go below this, in bytes.
    pub reserve: Bytes,
    /// Is what is free in whole blocks after that broken up, too? If not, others find huge pages there.
    pub everything: bool,
}

/// What a plan depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// The page sizes.
    pub base: PageSize,
    /// The size of a whole THP.
    pub thp: PageSize,
    /// `MemTotal`.
    pub total: Bytes,
    /// `MemAvailable`.
    pub available: Bytes,
    /// What the smallest limit of the control groups leaves, and where it stands; nothing without one.
    pub group: Option<(Bytes, PathBuf)>,
    /// The file that says `never` about transparent huge pages, where one does.
    pub never: Option<PathBuf>,
}

/// Why memory is not fragmented, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Something that must be known is not.
    #[error("memory is not fragmented without knowing {0}")]
    CouldNotTell(String),
    /// Nobody gets huge pages anyway.
    #[error(
        "/{} is never: programs get no transparent huge pages, and so do not wait for them. To see how they \
         would, switch it on: sudo hugewise apply --thp-enabled madvise",
        .0.display()
    )]
    Never(PathBuf),
    /// Not enough memory.
    #[error(
        "{asked} of fragmented memory are too much: {available} are available, of which {reserve} stay in reserve, \
         so that it can be {most} at most{}. Ask for less, or end programs that hold memory",
        if *.most < LEAST { format!(", and below {LEAST} it shows nothing") } else { String::new() }
    )]
    TooLittle {
        /// What was asked for.
        asked: Bytes,
        /// What is available.
        available: Bytes,
        /// What stays.
        reserve: Bytes,
        /// What could be.
        most: Bytes,
    },
    /// Too little was asked for.
    #[error("{0} of fragmented memory show nothing: ask for {LEAST} at least")]
    TooSmall(Bytes),
    /// A control group does not let us.
    #[error(
        "{taken} must be filled, or the program gets whole huge pages from them, and the limit of the control group \
         (/{}) leaves {room}: run it outside of that group",
        .file.display()
    )]
    Group {
        /// What must be filled.
        taken: Bytes,
        /// What the limit leaves.
        room: Bytes,
        /// Where it stands.
        file: PathBuf,
    },
}

impl State {
    /// Reads it.
    pub fn read(root: &Root, sizes: &PageSizes) -> Result<State, Refusal> {
        let memory = meminfo::read(root);
        let known = |reading: &Reading<Bytes>, what: &str| match reading {
            Reading::Known(bytes) => Ok(*bytes),
            Reading::CouldNotTell { could_not_tell } => {
                Err(Refusal::CouldNotTell(format!("{what}: {could_not_tell}")))
            }
        };
        let thp = sizes.thp.ok_or_else(|| {
            Refusal::CouldNotTell(
                "the size of huge pages: this kernel has no transparent huge pages".to_owned(),
            )
        })?;
        let group = match cgroup::read(root, &[]).memory {
            Reading::Known(None) => None,
            Reading::Known(Some(limit)) => match limit.used {
                Reading::Known(used) => Some((limit.bytes.saturating_sub(used), limit.file)),
                Reading::CouldNotTell { could_not_tell } => {
                    return Err(Refusal::CouldNotTell(format!(
                        "what the control group uses: {could_not_tell}"
                    )));
                }
            },
            // Without a controller there is no limit, and without rights to see one it shows while filling.
            Reading::CouldNotTell { .. } => None,
        };
        let modes = thp::read(root);
        Ok(State {
            base: sizes.base,
            thp,
            total: known(&memory.total, "how much memory there is")?,
            available: known(&memory.available, "how much memory is available")?,
            group,
            never: modes.pmd_enabled().filter(|(mode, _)| *mode == "never").map(|(_, path)| path),
        })
    }
}

impl Plan {
    /// For a machine in this state; `asked` is what is to be left, or what is usual.
    pub fn of(asked: Option<Bytes>, state: &State) -> Result<Plan, Refusal> {
        if let Some(path) = &state.never {
            return Err(Refusal::Never(path.clone()));
        }
        let reserve = SMALLEST_RESERVE.max(Bytes(state.total.0 / 20));
        let taken = state.available.saturating_sub(reserve).whole_pages(state.thp) * state.thp;
        let blocks = taken.whole_pages(state.thp).0;
        let most = Bytes(blocks.saturating_mul(Pieces::of(state.base, state.thp).free().0));
        let left = asked.unwrap_or(USUAL.min(most));
        if asked.is_some_and(|asked| asked < LEAST) {
            return Err(Refusal::TooSmall(left));
        }
        if left > most || most < LEAST {
            let asked = left.max(LEAST);
            return Err(Refusal::TooLittle { asked, available: state.available, reserve, most });
        }
        match &state.group {
            Some((room, file)) if *room < taken => {
                Err(Refusal::Group { taken, room: *room, file: file.clone() })
            }
            _ => Ok(Plan { left, taken, reserve, everything: true }),
        }
    }

    /// Of the machine's memory only so much, and whatever else is free stays as it is.
    #[must_use]
    pub fn of_a_share(left: Bytes, state: &State) -> Plan {
        let plan = Plan { left, taken: Bytes::ZERO, reserve: SMALLEST_RESERVE, everything: false };
        Plan { taken: Bytes(plan.blocks(state.base, state.thp) * state.thp.bytes().0), ..plan }
    }

    /// Blocks to be broken up.
    #[must_use]
    pub fn blocks(&self, base: PageSize, thp: PageSize) -> u64 {
        self.left.0.div_ceil(Pieces::of(base, thp).free().0.max(1))
    }
}

/// What becomes of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// The size of a base page.
    pub page: usize,
    /// Base pages in a block.
    pub pages: usize,
    /// Of so many of them the last stays.
    pub piece: usize,
}

impl Pieces {
    /// Blocks of the size `thp`.
    #[must_use]
    pub fn of(base: PageSize, thp: PageSize) -> Pieces {
        let pages = (thp.bytes().0 / base.bytes().0).max(1);
        Pieces {
            page: base.bytes().0 as usize,
            pages: pages as usize,
            piece: PIECE.min(pages / 2).max(1) as usize,
        }
    }

    /// The pages that stay, in their order. The first is among them: kernels before 6.8 break up a huge
    /// page only where that is mapped. The last is the one that is pinned: compaction has moved all that
    /// lies before by the time that it comes there.
    pub fn kept(self) -> impl Iterator<Item = usize> {
        let last_of_each = (self.piece..=self.pages).step_by(self.piece).map(|end| end - 1);
        std::iter::once(0).chain(last_of_each.filter(|at| *at > 0))
    }

    /// What one block gives back.
    #[must_use]
    pub fn free(self) -> Bytes {
        Bytes(((self.pages - self.kept().count().min(self.pages)) * self.page) as u64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn state(available_mib: u64) -> Option<State> {
        Some(State {
            base: "4k".parse().ok()?,
            thp: "2m".parse().ok()?,
            total: Bytes(24 << 30),
            available: Bytes(available_mib << 20),
            group: None,
            never: None,
        })
    }

    #[test]
    fn all_that_is_available_is_taken_but_for_a_reserve() {
        let Some(state) = state(20 << 10) else { unreachable!() };
        let plan = Plan::of(None, &state);
        let reserve = Bytes((24 << 30) / 20);
        assert!(plan.as_ref().is_ok_and(|plan| plan.left == USUAL && plan.reserve == reserve));
        let taken = plan.map_or(0, |plan| plan.taken.0);
        assert!(
            taken % (2 << 20) == 0
                && taken + reserve.0 <= 20 << 30
                && taken + reserve.0 > (20 << 30) - (2 << 20)
        );
    }

    #[test]
    fn too_little_is_refused_with_figures() {
        let refused = |asked: Option<u64>, mib| {
            state(mib).and_then(|state| Plan::of(asked.map(|gib| Bytes(gib << 30)), &state).err())
        };
        let told = refused(Some(30), 20 << 10).map(|refusal| refusal.to_string()).unwrap_or_default();
        for word in ["30GiB", "20GiB are available", "1.2GiB stay", "at most", "Ask for less"] {
            assert!(told.contains(word), "{word}: {told}");
        }
        assert!(refused(None, 1400).is_some_and(|refusal| refusal.to_string().contains("shows nothing")));
        assert!(refused(None, 1600).is_none() && refused(None, 100).is_some());
        let small = state(20 << 10).and_then(|state| Plan::of(Some(Bytes(1 << 20)), &state).err());
        assert_eq!(small, Some(Refusal::TooSmall(Bytes(1 << 20))));
    }

    #[test]
    fn a_limit_and_a_mode_that_forbid_it_are_refused() {
        let Some(free) = state(20 << 10) else { unreachable!() };
        let file = PathBuf::from("sys/fs/cgroup/a/memory.max");
        let limited = State { group: Some((Bytes(8 << 30), file.clone())), ..free.clone() };
        let refused = Plan::of(None, &limited);
        assert!(
            refused.is_err_and(|refusal| refusal
                .to_string()
                .contains("(/sys/fs/cgroup/a/memory.max) leaves 8GiB"))
        );
        let wide = State { group: Some((Bytes(20 << 30), file.clone())), ..free.clone() };
        assert!(Plan::of(None, &wide).is_ok());
        assert_eq!(Plan::of(None, &State { never: Some(file.clone()), ..free }), Err(Refusal::Never(file)));
    }

    #[test]
    fn a_block_keeps_its_first_page_and_the_last_of_each_piece() {
        let Some(state) = state(1) else { unreachable!() };
        let pieces = Pieces::of(state.base, state.thp);
        let kept: Vec<usize> = pieces.kept().collect();
        assert_eq!(kept, [0, 63, 127, 191, 255, 319, 383, 447, 511]);
        assert_eq!(pieces.free(), Bytes((512 - 9) << 12));
    }

    proptest! {
        #[test]
        fn a_plan_never_takes_what_is_not_there(available in 0u64..1 << 45, total in 0u64..1 << 45, asked in prop::option::of(0u64..1 << 46), room in prop::option::of(0u64..1 << 45)) {
            let Some(state) = state(0) else { unreachable!() };
            let group = room.map(|room| (Bytes(room), PathBuf::new()));
            let state = State { available: Bytes(available), total: Bytes(total), group, ..state };
            if let Ok(plan) = Plan::of(asked.map(Bytes), &state) {
                prop_assert!(plan.taken + plan.reserve <= state.available);
                prop_assert!(plan.blocks(state.base, state.thp) * state.thp.bytes().0 <= plan.taken.0);
                prop_assert!(asked.is_none_or(|asked| plan.left == Bytes(asked)));
                prop_assert!(room.is_none_or(|room| plan.taken.0 <= room));
            }
        }
    }
}
