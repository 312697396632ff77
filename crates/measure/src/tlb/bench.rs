//! Measures the curves: all points in random order, in several passes.

use std::{fmt::Display, time::Instant};

use hugewise_linux::{
    cpu::tlb::{self, Tlb},
    hugepages::{backing::Backing, page_sizes::PageSizes},
    interrupt::Interrupt,
    reading::Reading,
    root::Root,
    units::{Bytes, PageSize, Pages},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    chase::{self, Layout},
    curve::{self, Point},
    memory::{self, MappedPages, PagesRequest},
};
use crate::{
    experiment::{ExperimentError, Progress},
    machine::{Machine, available_memory},
};

/// Loads in one timed run, at least one lap: some tenths of a millisecond, so that most runs are undisturbed.
const MIN_LOADS_PER_RUN: usize = 16_384;
/// Runs of a point in one pass; the fastest counts.
const RUNS: usize = 5;
/// Runs of a point beyond [`Design::most`], whose laps are long.
const FAR_RUNS: usize = 2;
/// Points beyond [`Design::most`] are measured in one of this many passes.
const FAR_EVERY: usize = 4;

/// The design of the measurement.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Design {
    /// Backings to measure, as given on the command line.
    #[schemars(with = "Vec<String>")]
    pub backings: Vec<Backing>,
    /// Largest number of pages to visit in one lap.
    #[serde(rename = "max_pages")]
    pub most: Pages,
    /// Number of passes over all points.
    pub passes: usize,
    /// Largest memory for the pages of one backing, in bytes; at most half of the available memory is used.
    #[serde(rename = "memory_bytes")]
    pub memory: Bytes,
    /// Seed of the random order of lines and points.
    pub seed: u64,
}

/// The curves of one page size.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PageSizeCurves {
    /// The backing.
    #[schemars(with = "String")]
    pub backing: Backing,
    /// The page size, in bytes.
    #[serde(rename = "page_size_bytes")]
    pub page_size: PageSize,
    /// Number of pages with memory of their own; the others map the same memory at other addresses.
    pub distinct: Pages,
    /// Share of all addresses on pages of this size, 0 to 1, read after the measurement.
    pub coverage: Reading<f64>,
    /// Loads of one line on each page.
    pub paged: Vec<Point>,
    /// Loads of one line in each part of the size of a base page; null for base pages. They cost little more
    /// than packed lines if one TLB entry covers a whole page.
    pub strided: Option<Vec<Point>>,
    /// Loads of one line in each part of the size of a base page, over increasing memory beyond `most`.
    pub far: Vec<Point>,
}

/// A backing that was not measured.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SkippedBacking {
    /// The backing.
    #[schemars(with = "String")]
    pub backing: Backing,
    /// Why it was not measured.
    pub reason: String,
}

/// All measurements.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Curves {
    /// Base page size, in bytes.
    #[serde(rename = "base_page_size_bytes")]
    pub base: PageSize,
    /// Loads of packed lines, which show the effect of the caches alone.
    pub packed: Vec<Point>,
    /// Loads of as many packed lines as the `far` curves visit.
    pub packed_far: Vec<Point>,
    /// Backing of the packed lines.
    #[schemars(with = "String")]
    pub packed_on: Backing,
    /// One entry per measured backing.
    pub measured: Vec<PageSizeCurves>,
    /// Backings that were not measured.
    pub left_out: Vec<SkippedBacking>,
    /// The TLB as CPUID describes it.
    pub cpuid: Reading<Vec<Tlb>>,
    /// Duration of the measurement, in seconds.
    pub seconds: f64,
}

/// One curve while it is measured.
struct Series<'a> {
    pool: &'a MappedPages,
    layout: Layout,
    /// Largest count that the pool has pages or lines for.
    most: usize,
    /// For each count of the grid, the time of a load in each pass, in nanoseconds.
    passes: Vec<Vec<f64>>,
}

impl Design {
    /// Measures all curves in this process.
    pub fn run(
        &self,
        root: &Root,
        machine: &mut Machine,
        interrupt: &Interrupt,
        progress: &mut dyn Progress,
    ) -> Result<Curves, ExperimentError> {
        let begin = Instant::now();
        let failed = |reason: &dyn Display| ExperimentError::run("the TLB's curves", reason);
        let sizes = PageSizes::read(root).map_err(|reason| failed(&reason))?;
        let line = cache_line(root);
        let available = available_memory(root).into_result().map_err(|reason| failed(&reason))?;
        let request = PagesRequest { most: self.most, memory: self.memory.min(Bytes(available.0 / 2)), line };
        let (mut pools, mut left_out) = (Vec::new(), Vec::new());
        for &backing in &self.backings {
            // Base pages use all of the memory: the cost of their misses depends on it.
            let far = request.memory.whole_pages(sizes.base).0.max(self.most.0);
            let request =
                if backing == Backing::Base { PagesRequest { most: Pages(far), ..request } } else { request };
            match memory::prepare(backing, request, &sizes, machine, interrupt) {
                Ok(pool) => pools.push(pool),
                Err(reason) => left_out.push(SkippedBacking { backing, reason: reason.into() }),
            }
            stop(interrupt)?;
        }
        let Some(packed_on) = pools.iter().max_by_key(|pool| pool.page_size) else {
            let reasons: Vec<String> =
                left_out.iter().map(|out| format!("{}: {}", out.backing, out.reason)).collect();
            return Err(failed(&reasons.join("; ")));
        };
        let mut grid = curve::grid(self.most.0 as usize);
        let near = grid.len();
        let far = request.memory.whole_pages(sizes.base).0 as usize;
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
            // If the kernel split huge pages during the measurement, the curve is not one of this page size.
            match pool.proven() {
                Ok(()) => measured.push(PageSizeCurves {
                    backing: pool.backing,
                    page_size: pool.page_size,
                    distinct: pool.distinct,
                    coverage: pool.share(),
                    paged,
                    strided,
                    far,
                }),
                Err(reason) => left_out.push(SkippedBacking { backing: pool.backing, reason: reason.into() }),
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
                    progress.run(pass, self.passes, &format!("{} pages", series.pool.page_size));
                }
                let (words, count) = (series.pool.mapping.words(), grid[at]);
                // A new random order for each point, so that no result depends on a favourable one.
                chase::lay(words, series.layout, count, &mut random);
                let (loads, runs) = (MIN_LOADS_PER_RUN.max(count), if is_far { FAR_RUNS } else { RUNS });
                series.passes[at].push(chase::time(words, series.layout, count, loads, runs));
            }
        }
        progress.run(self.passes, self.passes, "");
        Ok(())
    }
}

impl<'a> Series<'a> {
    fn new(pool: &'a MappedPages, layout: Layout, most: usize, grid: &[usize]) -> Series<'a> {
        Series { pool, layout, most, passes: vec![Vec::new(); grid.len()] }
    }

    /// The points of the grid up to index `near`, and those after it.
    fn points(&self, grid: &[usize], near: usize) -> (Vec<Point>, Vec<Point>) {
        let points = |from: usize, to: usize| {
            let counts = grid.iter().zip(&self.passes).take(to).skip(from);
            counts.filter_map(|(count, passes)| curve::point(*count, passes)).collect()
        };
        (points(0, near), points(near, grid.len()))
    }
}

/// Length of a cache line in bytes; the usual 64 if the kernel does not report it.
fn cache_line(root: &Root) -> usize {
    const USUAL: usize = 64;
    let line = root.value::<usize>("sys/devices/system/cpu/cpu0/cache/index0/coherency_line_size", "a size");
    line.ok().filter(|line| line.is_power_of_two() && (16..=1024).contains(line)).unwrap_or(USUAL)
}

fn stop(interrupt: &Interrupt) -> Result<(), ExperimentError> {
    if interrupt.signal().is_some() { Err(ExperimentError::Interrupted) } else { Ok(()) }
}
