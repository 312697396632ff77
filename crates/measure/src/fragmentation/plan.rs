//! Sizes of the fragmentation, and whether memory suffices.

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

/// Default size of fragmented memory.
pub const DEFAULT_BYTES: Bytes = Bytes(6 << 30);
/// Smallest size of fragmented memory that affects a program.
pub const MIN_BYTES: Bytes = Bytes(256 << 20);
/// Smallest reserve; the reserve is at least a twentieth of the machine's memory, too.
const MIN_RESERVE: Bytes = Bytes(512 << 20);
/// Base pages per piece, the last of which stays.
const PIECE: u64 = 64;

/// Sizes of the fragmentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// Memory that is free in pieces afterwards, for other programs, in bytes.
    #[serde(rename = "left_bytes")]
    pub left: Bytes,
    /// Memory to fill first, in bytes.
    #[serde(rename = "taken_bytes")]
    pub taken: Bytes,
    /// Lower limit of `MemAvailable` while memory is filled, in bytes.
    #[serde(rename = "reserve_bytes")]
    pub reserve: Bytes,
    /// Whether the remaining free blocks are broken up, too; otherwise other programs get huge pages from
    /// them.
    pub everything: bool,
}

/// State of the machine that a plan depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    pub base: PageSize,
    /// Size of a PMD-sized THP.
    pub thp: PageSize,
    pub total: Bytes,
    pub available: Bytes,
    /// Remaining memory under the tightest cgroup limit, and the file of that limit; `None` without a limit.
    pub group: Option<(Bytes, PathBuf)>,
    /// The THP setting that is `never`, if any.
    pub never: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("memory cannot be fragmented, because this is unknown: {0}")]
    Unknown(String),
    #[error(
        "/{} is never: no program gets transparent huge pages or waits for them. To measure their effect, run: \
         sudo hugewise apply --thp-enabled madvise",
        .0.display()
    )]
    Never(PathBuf),
    #[error(
        "{asked} of fragmented memory are too much: at most {most} are possible{}. {available} are \
         available, {reserve} of them stay in reserve, and some pages stay filled. Ask for less, or end \
         programs that hold memory",
        if *.most < MIN_BYTES { format!(", and less than {MIN_BYTES} has no effect") } else { String::new() }
    )]
    TooLittle {
        asked: Bytes,
        available: Bytes,
        reserve: Bytes,
        /// The largest possible size.
        most: Bytes,
    },
    #[error("{0} of fragmented memory have no effect: ask for {MIN_BYTES} at least")]
    TooSmall(Bytes),
    #[error(
        "{taken} must be filled so that the program gets no whole huge pages, and the limit of the cgroup (/{}) \
         leaves {room}: run it outside of that cgroup",
        .file.display()
    )]
    Group {
        taken: Bytes,
        /// Remaining memory under the limit.
        room: Bytes,
        /// File of the limit.
        file: PathBuf,
    },
}

impl State {
    pub fn read(root: &Root, sizes: &PageSizes) -> Result<State, Refusal> {
        let memory = meminfo::read(root);
        let known = |reading: &Reading<Bytes>, what: &str| match reading {
            Reading::Known(bytes) => Ok(*bytes),
            Reading::Unknown { unknown } => Err(Refusal::Unknown(format!("{what}: {unknown}"))),
        };
        let thp = sizes.thp.ok_or_else(|| {
            Refusal::Unknown("the size of a THP: this kernel has no transparent huge pages".to_owned())
        })?;
        let group = match cgroup::read(root, &[]).memory {
            Reading::Known(Some(limit)) => {
                let used = known(&limit.used, "memory use of the cgroup")?;
                Some((limit.bytes.saturating_sub(used), limit.file))
            }
            // Without a controller there is no limit; a limit that cannot be read ends the filling early.
            Reading::Known(None) | Reading::Unknown { .. } => None,
        };
        let modes = thp::read(root);
        Ok(State {
            base: sizes.base,
            thp,
            total: known(&memory.total, "total memory")?,
            available: known(&memory.available, "available memory")?,
            group,
            never: modes.pmd_enabled().filter(|(mode, _)| *mode == "never").map(|(_, path)| path),
        })
    }
}

impl Plan {
    /// The plan for `asked` bytes, or for the default size, on a machine in this state.
    pub fn of(asked: Option<Bytes>, state: &State) -> Result<Plan, Refusal> {
        if let Some(path) = &state.never {
            return Err(Refusal::Never(path.clone()));
        }
        let reserve = MIN_RESERVE.max(Bytes(state.total.0 / 20));
        let taken = state.available.saturating_sub(reserve).whole_pages(state.thp) * state.thp;
        let blocks = taken.whole_pages(state.thp).0;
        let most = Bytes(blocks.saturating_mul(Pieces::of(state.base, state.thp).free().0));
        let left = asked.unwrap_or(DEFAULT_BYTES.min(most));
        if asked.is_some_and(|asked| asked < MIN_BYTES) {
            return Err(Refusal::TooSmall(left));
        }
        if left > most || most < MIN_BYTES {
            let asked = left.max(MIN_BYTES);
            return Err(Refusal::TooLittle { asked, available: state.available, reserve, most });
        }
        match &state.group {
            Some((room, file)) if *room < taken => {
                Err(Refusal::Group { taken, room: *room, file: file.clone() })
            }
            _ => Ok(Plan { left, taken, reserve, everything: true }),
        }
    }

    /// A plan that fragments `left` bytes only and leaves other free blocks whole.
    pub fn of_a_share(left: Bytes, state: &State) -> Plan {
        let plan = Plan { left, taken: Bytes::ZERO, reserve: MIN_RESERVE, everything: false };
        Plan { taken: Bytes(plan.blocks(state.base, state.thp) * state.thp.bytes().0), ..plan }
    }

    /// Number of blocks to break up.
    pub fn blocks(&self, base: PageSize, thp: PageSize) -> u64 {
        self.left.0.div_ceil(Pieces::of(base, thp).free().0.max(1))
    }
}

/// How a block is broken up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// Size of a base page, in bytes.
    pub page: usize,
    /// Base pages per block.
    pub pages: usize,
    /// Base pages per piece, the last of which stays.
    pub piece: usize,
}

impl Pieces {
    /// The pieces of a block of the size `thp`.
    pub fn of(base: PageSize, thp: PageSize) -> Pieces {
        let pages = (thp.bytes().0 / base.bytes().0).max(1);
        Pieces {
            page: base.bytes().0 as usize,
            pages: pages as usize,
            piece: PIECE.min(pages / 2).max(1) as usize,
        }
    }

    /// Indices of the pages that stay, ascending. The first stays because kernels before 6.8 split a huge
    /// page only if its first page is mapped. The last is pinned because compaction has moved all pages
    /// before it by the time that it reaches a pinned one.
    pub fn kept(self) -> impl Iterator<Item = usize> {
        let last_of_each = (self.piece..=self.pages).step_by(self.piece).map(|end| end - 1);
        std::iter::once(0).chain(last_of_each.filter(|at| *at > 0))
    }

    /// Memory that one broken block frees.
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
        assert!(plan.as_ref().is_ok_and(|plan| plan.left == DEFAULT_BYTES && plan.reserve == reserve));
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
        let reported = refused(Some(30), 20 << 10).map(|refusal| refusal.to_string()).unwrap_or_default();
        for word in ["30GiB", "20GiB are available", "1.2GiB of them stay", "are possible", "Ask for less"] {
            assert!(reported.contains(word), "{word}: {reported}");
        }
        assert!(refused(None, 1400).is_some_and(|refusal| refusal.to_string().contains("has no effect")));
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
