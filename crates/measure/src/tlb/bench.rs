//! The measurement: every curve, all points in random order, pass after pass.

use std::time::Instant;

use hugewise_linux::{
    cgroup,
    cpu::tlb::{self, Tlb},
    hugepages::{backing::Backing, page_sizes::PageSizes},
    interrupt::Interrupt,
    proc::meminfo,
    reading::Reading,
    root::Root,
    units::{Bytes, PageSize, Pages},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    chase::{self, Layout},
    curve::{self, Point},
    memory::{self, Pool, Wish},
};
use crate::{
    experiment::{ExperimentError, Progress},
    machine::Machine,
};

/// Loads in one timed run, and never less than a lap: some tenths of a millisecond, so that most runs
/// end before anything disturbs them.
const STEPS: usize = 16_384;
/// Runs of a point in one pass; the quickest counts.
const RUNS: usize = 5;
/// The same for a point far out, whose laps are long.
const FAR_RUNS: usize = 2;
/// Only each so many passes visit the points far out.
const FAR_EVERY: usize = 4;

/// What to measure.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Design {
    /// The backings.
    #[schemars(with = "Vec<String>")]
    pub backings: Vec<Backing>,
    /// Pages to go up to.
    pub most: Pages,
    /// Passes over all points.
    pub passes: usize,
    /// The memory that the pages of one backing may take, at most half of what is available.
    pub memory: Bytes,
    /// Of the order of lines and points.
    pub seed: u64,
}

/// The curves of one page size.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Measured {
    /// How the pages were asked for.
    #[schemars(with = "String")]
    pub backing: Backing,
    /// Their size.
    pub page_size: PageSize,
    /// How many of them differ; the others are the same memory at other addresses.
    pub distinct: Pages,
    /// The share of all addresses on pages of this size, read when all was measured.
    pub coverage: Reading<f64>,
    /// One line on each page.
    pub paged: Vec<Point>,
    /// One line on each part of the size of a base page; nothing for base pages. Where one entry of the
    /// TLB holds a whole page, this costs hardly more than packed lines.
    pub strided: Option<Vec<Point>>,
    /// The same far out: one line on each part of the size of a base page, over more and more memory.
    pub far: Vec<Point>,
}

/// A backing without a curve.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LeftOut {
    /// Which.
    #[schemars(with = "String")]
    pub backing: Backing,
    /// Why.
    pub reason: String,
}

/// Everything that was measured.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Curves {
    /// The base page size.
    pub base: PageSize,
    /// Packed lines: what the caches do.
    pub packed: Vec<Point>,
    /// Packed lines, as many as were visited far out.
    pub packed_far: Vec<Point>,
    /// What they lay on.
    #[schemars(with = "String")]
    pub packed_on: Backing,
    /// A measurement for each backing that could be had.
    pub measured: Vec<Measured>,
    /// Those that could not.
    pub left_out: Vec<LeftOut>,
    /// What the CPU says of its TLB.
    pub cpuid: Reading<Vec<Tlb>>,
    /// How long it all took.
    pub seconds: f64,
}

/// A series of points.
struct Series<'a> {
    pool: &'a Pool,
    layout: Layout,
    /// Counts beyond have no place.
    most: usize,
    name: String,
    /// For each count of the grid, each pass.
    passes: Vec<Vec<f64>>,
}

impl Design {
    /// Measures it, in this process.
    pub fn run(
        &self,
        root: &Root,
        machine: &mut Machine,
        interrupt: &Interrupt,
        progress: &mut dyn Progress,
    ) -> Result<Curves, ExperimentError> {
        let begin = Instant::now();
        let failed = |reason| ExperimentError::Run { what: "the TLB's curves".to_owned(), reason };
        let sizes = PageSizes::read(root).map_err(failed)?;
        let line = cache_line(root);
        let wish = Wish { most: self.most, memory: self.memory.min(half_of_available(root)), line };
        let (mut pools, mut left_out) = (Vec::new(), Vec::new());
        for &backing in &self.backings {
            // Base pages go as far as the memory does: what missing them costs depends on it.
            let far = wish.memory.whole_pages(sizes.base).0.max(self.most.0);
            let wish = if backing == Backing::Base { Wish { most: Pages(far), ..wish } } else { wish };
            match memory::prepare(backing, wish, &sizes, machine, interrupt) {
                Ok(pool) => pools.push(pool),
                Err(reason) => left_out.push(LeftOut { backing, reason }),
            }
            stop(interrupt)?;
        }
        let Some(packed_on) = pools.iter().max_by_key(|pool| pool.page_size) else {
            let reasons: Vec<String> =
                left_out.iter().map(|out| format!("{}: {}", out.backing, out.reason)).collect();
            return Err(failed(reasons.join("; ")));
        };
        let mut grid = curve::grid(self.most.0 as usize);
        let near = grid.len();
        let far = wish.memory.whole_pages(sizes.base).0 as usize;
        grid.extend(curve::octaves(self.most.0 as usize, far));
        let layout = |page: Option<PageSize>| Layout { page: page.map(|size| size.bytes().0 as usize), line };
        let mut series = vec![Series::new(packed_on, layout(None), packed_on.lines(), &grid)];
        for pool in &pools {
            let most = if pool.page_size > sizes.base { pool.most.min(self.most) } else { pool.most };
            series.push(Series::new(pool, layout(Some(pool.page_size)), most.0 as usize, &grid));
            if pool.page_size > sizes.base {
                let most = pool.distinct_base_pages();
                series.push(Series::new(pool, layout(Some(sizes.base)), most, &grid));
            }
        }
        self.measure(&mut series, &grid, near, interrupt, progress)?;

        let mut curves = series.iter().map(|series| series.points(&grid, near));
        let (packed, packed_far) = curves.next().unwrap_or_default();
        let mut measured = Vec::new();
        for pool in &pools {
            let (paged, beyond) = curves.next().unwrap_or_default();
            let strided = if pool.page_size > sizes.base { curves.next() } else { None };
            let (strided, far) = strided.map_or((None, beyond), |(near, far)| (Some(near), far));
            // What the kernel took apart meanwhile is no curve of these pages.
            match pool.proven() {
                Ok(()) => measured.push(Measured {
                    backing: pool.backing,
                    page_size: pool.page_size,
                    distinct: pool.distinct,
                    coverage: pool.share(),
                    paged,
                    strided,
                    far,
                }),
                Err(reason) => left_out.push(LeftOut { backing: pool.backing, reason }),
            }
        }
        Ok(Curves {
            base: sizes.base,
            packed,
            packed_far,
            packed_on: packed_on.backing,
            measured,
            left_out,
            cpuid: tlb::read(),
            seconds: begin.elapsed().as_secs_f64(),
        })
    }

    fn measure(
        &self,
        series: &mut [Series],
        grid: &[usize],
        near: usize,
        interrupt: &Interrupt,
        progress: &mut dyn Progress,
    ) -> Result<(), ExperimentError> {
        let mut random = fastrand::Rng::with_seed(self.seed);
        let mut cells: Vec<(usize, usize)> = Vec::new();
        for (which, series) in series.iter().enumerate() {
            let counts = grid.iter().enumerate().filter(|(_, count)| **count <= series.most);
            cells.extend(counts.map(|(at, _)| (which, at)));
        }
        for pass in 0..self.passes {
            random.shuffle(&mut cells);
            for &(which, at) in &cells {
                let is_far = at >= near;
                if is_far && pass % FAR_EVERY != 0 {
                    continue;
                }
                stop(interrupt)?;
                let series = &mut series[which];
                if at == 0 {
                    progress.run(pass, self.passes, &series.name);
                }
                let (words, count) = (series.pool.mapping.words(), grid[at]);
                // An order of its own each time: no finding hangs on a lucky one.
                chase::lay(words, series.layout, count, &mut random);
                let runs = if is_far { FAR_RUNS } else { RUNS };
                series.passes[at].push(chase::time(words, series.layout, count, STEPS.max(count), runs));
            }
        }
        progress.run(self.passes, self.passes, "");
        Ok(())
    }
}

impl<'a> Series<'a> {
    fn new(pool: &'a Pool, layout: Layout, most: usize, grid: &[usize]) -> Series<'a> {
        let name = format!("{} pages", pool.page_size);
        Series { pool, layout, most, name, passes: vec![Vec::new(); grid.len()] }
    }

    /// The points of the grid up to `near`, and those behind.
    fn points(&self, grid: &[usize], near: usize) -> (Vec<Point>, Vec<Point>) {
        let points = |from: usize, to: usize| {
            let counts = grid.iter().zip(&self.passes).take(to).skip(from);
            counts.filter_map(|(count, passes)| curve::point(*count, passes)).collect()
        };
        (points(0, near), points(near, grid.len()))
    }
}

/// Half of what may be taken: of the machine's memory, and of what the caller's control group has left.
fn half_of_available(root: &Root) -> Bytes {
    let available = meminfo::read(root).available.known().copied().unwrap_or_default();
    let left = match cgroup::read(root, &[]).memory {
        Reading::Known(Some(limit)) => {
            limit.bytes.saturating_sub(limit.used.known().copied().unwrap_or_default())
        }
        _ => available,
    };
    Bytes(available.min(left).0 / 2)
}

/// The length of a cache line; where it cannot be told, what nearly every CPU has.
fn cache_line(root: &Root) -> usize {
    const USUAL: usize = 64;
    let line = root.value::<usize>("sys/devices/system/cpu/cpu0/cache/index0/coherency_line_size", "a size");
    line.ok().filter(|line| line.is_power_of_two() && (16..=1024).contains(line)).unwrap_or(USUAL)
}

fn stop(interrupt: &Interrupt) -> Result<(), ExperimentError> {
    if interrupt.signal().is_some() { Err(ExperimentError::Interrupted) } else { Ok(()) }
}
