//! Fills memory, breaks up the part for other programs, and holds the rest.

use std::{collections::HashMap, io, num::NonZeroUsize, ops::ControlFlow, path::Path, thread, time::Instant};

use hugewise_linux::{
    hugepages::{backing::Backing, headroom, page_sizes::PageSizes},
    pages::frames,
    proc::meminfo,
    reading::{Reading, Reason},
    root::Root,
    sys::{
        file, pagemap,
        parallel_range::{self, Span},
        unmovable::PinnedPages,
    },
    units::{Bytes, PageSize, Pages},
};
use hugewise_memory::{
    pretouch::{Pretouch, Stopped},
    region::{self, Region},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::plan::{Pieces, Plan};

/// Memory that a thread fills between two readings of `MemAvailable`.
const CHUNK: Bytes = Bytes(16 << 20);
/// Number of blocks that may stay free: each zone keeps some that only few allocations may use.
const FEW: u64 = 4;
/// Most passes over blocks that are still free.
const PASSES: usize = 8;
/// Number of blocks that a thread breaks up before it pins their pages.
const AT_ONCE: usize = 256;

/// Result of the fragmentation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FragmentationOutcome {
    /// The plan.
    pub plan: Plan,
    /// Memory that was filled, in bytes.
    #[serde(rename = "filled_bytes")]
    pub filled: Bytes,
    /// Part of `filled` that was allocated in whole blocks of the size of a huge page, in bytes.
    #[serde(rename = "in_blocks_bytes")]
    pub in_blocks: Bytes,
    /// Blocks that were broken up and hold an unmovable page.
    pub blocks: Pages,
    /// Memory that is free in pieces now, in bytes.
    #[serde(rename = "left_bytes")]
    pub left: Bytes,
    /// Part of `left` that was already in pieces, because too few whole blocks were free, in bytes.
    #[serde(rename = "scattered_bytes")]
    pub scattered: Bytes,
    /// Whether every block that held scattered pages now holds an unmovable page. The kernel reveals these
    /// blocks to root only; otherwise compaction may still find some.
    pub every_block_pinned: bool,
    /// Memory held until the process ends, in bytes.
    #[serde(rename = "held_bytes")]
    pub held: Bytes,
    /// Number of unmovable pages.
    pub pinned: Pages,
    /// Blocks of the size of a huge page that were still free at the end.
    pub blocks_left: Pages,
    /// `MemAvailable` at the end, in bytes.
    #[serde(rename = "available_bytes")]
    pub available: Bytes,
    /// Duration of the filling, in seconds.
    pub fill_seconds: f64,
    /// Total duration, in seconds.
    pub seconds: f64,
}

/// Fragmented memory; the drop releases it.
#[derive(Debug)]
pub struct Fragmented {
    pub outcome: FragmentationOutcome,
    _pins: Vec<PinnedPages>,
    _regions: Vec<Filled>,
}

/// Fragments memory according to `plan`. `progress` receives the bytes filled so far. On an error, all memory
/// has been released.
pub fn fragment(
    root: &Root,
    plan: &Plan,
    sizes: &PageSizes,
    progress: &mut dyn FnMut(Bytes),
) -> Result<Fragmented, Reason> {
    if !parallel_range::can_populate() {
        return Reason::err(
            "Linux 5.14 or later is needed to fragment memory: an older kernel kills the process when memory runs out",
        );
    }
    let Some(thp) = sizes.thp else { return Reason::err("this kernel has no THP") };
    let pieces = Pieces::of(sizes.base, thp);
    let at_once = || headroom::read(root, sizes.base, thp).map(|room| room.at_once);
    let begin = Instant::now();
    // Whole free blocks are allocated quickly. The rest is taken page by page: assembling whole blocks for it
    // would be the very stall under study, and may take minutes.
    let wholes = (at_once()? * thp).min(plan.taken);
    let mut whole = Filled::fill(root, wholes, plan.reserve, Backing::Thp, sizes, thp, progress)?;
    let rest = plan.taken.saturating_sub(whole.filled).whole_pages(thp) * thp;
    let before = whole.filled;
    let more = &mut |filled| progress(before + filled);
    let mut rest = Filled::fill(root, rest, plan.reserve, Backing::Base, sizes, thp, more)?;
    let fill_seconds = begin.elapsed().as_secs_f64();
    let filled = whole.filled + rest.filled;
    let wanted = plan.blocks(sizes.base, thp);
    if filled.whole_pages(thp).0 < wanted {
        return Reason::err(format!(
            "only {filled} could be filled before MemAvailable fell to the reserve of {}, and {} are needed: \
             other programs allocated memory during that time; ask for less",
            plan.reserve,
            Pages(wanted) * thp
        ));
    }
    let mut in_blocks = Bytes::ZERO;
    for (number, state) in whole.block_states.iter_mut().filter(|s| **s == BlockState::Whole).enumerate() {
        in_blocks += thp.bytes();
        // More blocks than wanted stay huge pages.
        if number as u64 >= wanted {
            *state = BlockState::Held;
        }
    }
    // Compaction could migrate scattered pages together and so make room for huge pages.
    let (scattered_pins, every_block_pinned) = pin_scattered(&[&whole, &rest], pieces)?;
    let (mut blocks, mut pins) = break_up(&mut whole, pieces)?;
    pins.push(scattered_pins);
    // Where whole blocks were too few, pinned scattered memory is released in their place.
    let lacking = Bytes(wanted.saturating_sub(blocks) * pieces.free().0);
    let mut scattered = rest.give_back(lacking, thp)?;
    scattered += whole.give_back(lacking.saturating_sub(scattered), thp)?;
    let held = filled.saturating_sub(Pages(blocks) * thp).saturating_sub(scattered);
    let mut regions = vec![whole, rest];
    for _ in 0..if plan.everything { PASSES } else { 0 } {
        let rest = at_once()?;
        if rest.0 <= FEW {
            break;
        }
        // Half of the reserve is never used.
        let floor = Bytes(plan.left.0 + plan.reserve.0 / 2);
        let mut region = Filled::fill(root, rest * thp, floor, Backing::Thp, sizes, thp, &mut |_| {})?;
        let (more, more_pins) = break_up(&mut region, pieces)?;
        region.give_back(rest * thp, thp)?;
        regions.push(region);
        pins.extend(more_pins);
        blocks += more;
        if more == 0 {
            break;
        }
    }
    let outcome = FragmentationOutcome {
        plan: *plan,
        filled,
        in_blocks,
        blocks: Pages(blocks),
        left: Bytes(blocks * pieces.free().0) + scattered,
        scattered,
        every_block_pinned,
        held,
        pinned: Pages(pins.iter().map(|pins| pins.len() as u64).sum()),
        blocks_left: at_once()?,
        available: available(root)?,
        fill_seconds,
        seconds: begin.elapsed().as_secs_f64(),
    };
    Ok(Fragmented { outcome, _pins: pins, _regions: regions })
}

fn breaking_up_failed(error: io::Error) -> Reason {
    Reason::new(format!("breaking up huge pages: {error}"))
}

fn available(root: &Root) -> Result<Bytes, Reason> {
    match meminfo::read(root).available {
        Reading::Known(available) => Ok(available),
        Reading::Unknown { unknown } => Reason::err(unknown),
    }
}

/// Populated memory.
#[derive(Debug)]
struct Filled {
    region: Region,
    filled: Bytes,
    /// State of each block.
    block_states: Vec<BlockState>,
}

impl Filled {
    /// Populates up to `bytes`, as long as `MemAvailable` stays above `floor`.
    fn fill(
        root: &Root,
        bytes: Bytes,
        floor: Bytes,
        backing: Backing,
        sizes: &PageSizes,
        thp: PageSize,
        progress: &mut dyn FnMut(Bytes),
    ) -> Result<Filled, Reason> {
        // An empty region cannot be mapped.
        let mut region = region::reserve(bytes.max(thp.bytes()), &[backing], sizes)?;
        if bytes == Bytes::ZERO {
            return Ok(Filled { region, filled: Bytes::ZERO, block_states: Vec::new() });
        }
        let how = Pretouch { chunk: Some(CHUNK), ..Pretouch::default() };
        let mut unknown = None;
        let done = region.pretouch(&how, &mut |so_far| {
            progress(so_far.done);
            match available(root) {
                Ok(available) if available > floor => ControlFlow::Continue(()),
                Ok(_) => ControlFlow::Break(()),
                Err(error) => {
                    unknown = Some(error);
                    ControlFlow::Break(())
                }
            }
        });
        match (unknown, done.stopped) {
            (Some(error), _) => Err(error),
            (None, None | Some(Stopped::Cancelled)) => {
                let block_states = BlockState::read(&region, thp, backing);
                Ok(Filled { region, filled: done.done, block_states })
            }
            (None, Some(refused)) => {
                Reason::err(format!("filling memory stopped at {}: {refused}", done.done))
            }
        }
    }

    /// The blocks of `size` bytes that are in this state.
    fn blocks(&mut self, size: usize, state: BlockState) -> impl Iterator<Item = &mut [u8]> {
        let blocks = self.region.bytes_mut().chunks_exact_mut(size).zip(&self.block_states);
        blocks.filter(move |(_, of_block)| **of_block == state).map(|(block, _)| block)
    }

    /// Releases scattered blocks, at least `bytes` if there are enough; returns the bytes released.
    fn give_back(&mut self, bytes: Bytes, thp: PageSize) -> Result<Bytes, Reason> {
        let mut given = Bytes::ZERO;
        for block in self.blocks(thp.bytes().0 as usize, BlockState::Scattered) {
            if given >= bytes {
                break;
            }
            let span = Span::new(block);
            span.discard(span.addresses()).map_err(breaking_up_failed)?;
            given += thp.bytes();
        }
        Ok(given)
    }
}

/// State of the memory of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockState {
    /// Physically contiguous: a huge page.
    Whole,
    /// Scattered base pages.
    Scattered,
    /// Not resident.
    Absent,
    /// Kept as a huge page.
    Held,
}

impl BlockState {
    /// The state of each block of a region.
    fn read(region: &Region, thp: PageSize, backing: Backing) -> Vec<BlockState> {
        let start = region.bytes().as_ptr().addr() as u64;
        let count = region.bytes().len() as u64 / thp.bytes().0;
        let end = start + count * thp.bytes().0;
        let mapped =
            file::open(Path::new("/proc/self/pagemap")).and_then(|file| pagemap::present(&file, start..end));
        let of = |huge: bool| if huge { BlockState::Whole } else { BlockState::Scattered };
        let Ok(mapped) = mapped else {
            // Before Linux 6.7 the kernel does not report it: assume that the backing was granted.
            return vec![of(backing == Backing::Thp); count as usize];
        };
        let mut block_states = vec![BlockState::Absent; count as usize];
        for part in mapped {
            let first = (part.addresses.start.max(start) - start) / thp.bytes().0;
            let last = (part.addresses.end.min(end) - start).div_ceil(thp.bytes().0);
            block_states[first as usize..last as usize].fill(of(part.huge));
        }
        block_states
    }
}

/// Breaks up all whole blocks with several threads; returns their number and the unmovable pages.
fn break_up(whole: &mut Filled, pieces: Pieces) -> Result<(u64, Vec<PinnedPages>), Reason> {
    let mut blocks: Vec<&mut [u8]> = whole.blocks(pieces.pages * pieces.page, BlockState::Whole).collect();
    let count = blocks.len();
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get).min(count.max(1));
    let share = count.div_ceil(threads).max(1);
    let done: io::Result<Vec<PinnedPages>> = thread::scope(|scope| {
        let shares = blocks.chunks_mut(share);
        let workers: Vec<_> =
            shares.map(|share| scope.spawn(move || break_up_share(share, pieces))).collect();
        let joined = workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|_| Err(io::Error::other("a thread ended early"))));
        joined.collect()
    });
    Ok((count as u64, done.map_err(breaking_up_failed)?))
}

fn break_up_share(blocks: &mut [&mut [u8]], pieces: Pieces) -> io::Result<PinnedPages> {
    let page = pieces.page as u64;
    let mut pins = PinnedPages::default();
    for group in blocks.chunks_mut(AT_ONCE) {
        let mut last_pages = Vec::with_capacity(group.len());
        for block in group {
            for at in pieces.kept() {
                // The kernel would replace pages of zeros by the shared zero page.
                block[at * pieces.page] = 1;
            }
            let span = Span::new(block);
            let start = span.addresses().start;
            let mut from = 1;
            for at in pieces.kept().skip(1) {
                if from < at as u64 {
                    span.discard(start + from * page..start + at as u64 * page)?;
                }
                from = at as u64 + 1;
            }
            let last = span.addresses().end - page;
            span.split(last..last + page)?;
            last_pages.push(last);
        }
        pins.pin(&last_pages, pieces.page)?;
    }
    Ok(pins)
}

/// Pins the last page that scattered memory has in each block of the machine, or one page in each piece if
/// the kernel does not reveal page frames. Returns the pins, and whether all frames were known.
fn pin_scattered(all: &[&Filled], pieces: Pieces) -> Result<(PinnedPages, bool), Reason> {
    let base = PageSize::new(Bytes(pieces.page as u64))?;
    let block = pieces.pages * pieces.page;
    let pagemap = file::open(Path::new("/proc/self/pagemap"))?;
    // By block, or by piece: the last frame or page number, and its address.
    let mut last: HashMap<(bool, u64), (u64, u64)> = HashMap::new();
    for filled in all {
        let blocks = filled.region.bytes().chunks_exact(block).zip(&filled.block_states);
        for (block, _) in blocks.filter(|(_, block_state)| **block_state == BlockState::Scattered) {
            let start = block.as_ptr().addr() as u64;
            frames::visit(&pagemap, start..start + block.len() as u64, base, |page| {
                let place = page.frame.unwrap_or(page.address / pieces.page as u64);
                let of = if page.frame.is_some() { pieces.pages } else { pieces.piece } as u64;
                let known = last.entry((page.frame.is_some(), place / of)).or_default();
                *known = (*known).max((place, page.address));
            })?;
        }
    }
    let reported = last.keys().all(|(by_frame, _)| *by_frame);
    let pages: Vec<u64> = last.into_values().map(|(_, address)| address).collect();
    let mut pins = PinnedPages::default();
    pins.pin(&pages, pieces.page).map_err(breaking_up_failed)?;
    Ok((pins, reported))
}
