//! Runs the pretouch experiment over sizes, backings, threads and chunks, each run in a process of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use hugewise_evidence::observation::{Observer, RegionOfInterest};
use hugewise_linux::{
    hugepages::{
        backing::Backing,
        contiguity::{self, Scan},
        page_reporting,
        page_sizes::PageSizes,
    },
    interrupt::Interrupt,
    proc::meminfo,
    reading::{Reading, Reason},
    root::Root,
    units::{Bytes, PageSize},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    Case, Implementation, LeftOut, PretouchRow, Sample, Variant,
    available::{self, ConcurrentUse},
    hotspot::Jvm,
    worker,
};
use crate::{
    execution::{self, ExecutionError, Launch},
    experiment::{ExperimentError, Progress},
    machine::Machine,
};

/// The design of the experiment.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Design {
    /// Sizes to fit the model to, in bytes.
    #[serde(rename = "sizes_bytes")]
    pub sizes: Vec<Bytes>,
    /// A size that only checks the model, in bytes.
    #[serde(rename = "held_out_bytes")]
    pub held_out: Option<Bytes>,
    /// Backings to measure, as given on the command line.
    #[schemars(with = "Vec<String>")]
    pub backings: Vec<Backing>,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Chunks, in bytes; null for the default of each implementation.
    #[serde(rename = "chunks_bytes")]
    pub chunks: Vec<Option<Bytes>>,
    /// Whether a plain loop and `MADV_POPULATE_WRITE` are measured, too.
    pub baselines: bool,
    /// Processes per row.
    pub repetitions: usize,
    /// Seed of the order in which the processes run.
    pub seed: u64,
}

/// All measurements.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Table {
    /// The design of the experiment.
    pub design: Design,
    /// The measured JVMs.
    pub jvms: Vec<Jvm>,
    /// One row per case and way, ordered by size, backing, number of threads and way.
    pub rows: Vec<PretouchRow>,
    /// Cases that were not measured.
    pub left_out: Vec<LeftOut>,
    /// Whether this is a virtual machine whose host reclaims memory as soon as it is free.
    pub host_takes_back_free_memory: bool,
}

/// The environment of the experiment.
pub struct ExperimentContext<'a> {
    /// Path of this program.
    pub program: &'a Path,
    pub root: &'a Root,
    pub sizes: &'a PageSizes,
    /// Memory that must stay free.
    pub floor: Bytes,
    pub interrupt: &'a Interrupt,
}

/// A row to measure, and the reason if it was left out.
struct Cell {
    row: PretouchRow,
    out: Option<String>,
}

impl Design {
    /// Runs the experiment.
    pub fn run(
        self,
        jvms: Vec<Jvm>,
        context: &ExperimentContext<'_>,
        machine: &mut Machine,
        progress: &mut dyn Progress,
    ) -> Result<Table, ExperimentError> {
        let mut cells = self.cells(&jvms);
        leave_out_what_does_not_fit(&mut cells, context);
        provide(&mut cells, &jvms, context, machine)?;
        leave_out_what_is_scattered(&mut cells, context);
        let scratch = machine.scratch().map_err(|why| ExperimentError::run("the scratch folder", why))?;
        let runner =
            Runner { context, jvms: &jvms, marked: machine.mark(Launch::default()), scratch: scratch.path() };
        let order = self.order(&cells);
        for (done, &(index, repetition)) in order.iter().enumerate() {
            let cell = &mut cells[index];
            let PretouchRow { case, way, samples, .. } = &mut cell.row;
            let what = format!("{} on {} by {}", case.bytes, case.backing, by_in_words(case, way, &jvms));
            progress.run(done, order.len(), &what);
            if cell.out.is_some() {
                continue;
            }
            match (runner.sample(case, way), repetition) {
                (Ok(sample), Some(repetition)) => samples.push(Sample { repetition, ..sample }),
                (Ok(_), None) => {}
                (Err(ExecutionError::Interrupted), _) => return Err(ExperimentError::Interrupted),
                (Err(error), _) => cell.out = Some(error.to_string()),
            }
        }
        progress.run(order.len(), order.len(), "");
        Ok(Table {
            left_out: left_out(&cells, &jvms),
            rows: cells.into_iter().map(|cell| cell.row).filter(|row| !row.samples.is_empty()).collect(),
            jvms,
            host_takes_back_free_memory: page_reporting::takes_back_free_memory(context.root),
            design: self,
        })
    }

    fn cells(&self, jvms: &[Jvm]) -> Vec<Cell> {
        let sizes = self.sizes.iter().map(|size| (*size, false));
        let sizes = sizes.chain(self.held_out.map(|size| (size, true)));
        let mut cells = Vec::new();
        for (bytes, held_out) in sizes {
            for &backing in &self.backings {
                for &threads in &self.threads {
                    let ways = if held_out { vec![self.fitted_variant()] } else { self.ways(jvms.len()) };
                    let case = Case { bytes, backing, threads };
                    cells.extend(ways.into_iter().map(|way| Cell {
                        row: PretouchRow { case, way, held_out, samples: Vec::new() },
                        out: None,
                    }));
                }
            }
        }
        cells
    }

    /// The way that the model is fitted to.
    pub fn fitted_variant(&self) -> Variant {
        let chunk = if self.chunks.contains(&None) { None } else { self.chunks.first().copied().flatten() };
        Variant { by: Implementation::Engine, chunk }
    }

    fn ways(&self, jvms: usize) -> Vec<Variant> {
        let with_chunks =
            |by: Implementation| self.chunks.iter().map(move |chunk| Variant { by, chunk: *chunk });
        let baselines = [Implementation::Loop, Implementation::Kernel].map(|by| Variant { by, chunk: None });
        with_chunks(Implementation::Engine)
            .chain(baselines.into_iter().filter(|_| self.baselines))
            .chain((0..jvms).map(Implementation::Jvm).flat_map(with_chunks))
            .collect()
    }

    /// A warm-up of the largest size in every way, then the repetitions. Each repetition runs all cases in
    /// random order; the ways of a case run consecutively in random order, so that compared runs are close in
    /// time.
    fn order(&self, cells: &[Cell]) -> Vec<(usize, Option<usize>)> {
        let mut random = fastrand::Rng::with_seed(self.seed);
        let all: Vec<usize> = (0..cells.len()).filter(|index| cells[*index].out.is_none()).collect();
        let case = |index: &usize| cells[*index].row.case;
        let largest = all.iter().map(|index| case(index).bytes).max();
        let most = all.iter().map(|index| case(index).threads).max();
        // A virtual machine gets memory from its host on first use, and the memory used last is reused first:
        // after a warm-up on the largest size, all other sizes run on memory that the guest already has.
        let chunk = self.fitted_variant().chunk;
        let warms = |index: &&usize| {
            let (case, of_cell) = (case(index), cells[**index].row.way.chunk);
            (Some(case.bytes), Some(case.threads), of_cell) == (largest, most, chunk)
        };
        let mut order: Vec<(usize, Option<usize>)> =
            all.iter().filter(warms).map(|index| (*index, None)).collect();
        for repetition in 0..self.repetitions {
            let mut groups: Vec<Vec<usize>> =
                all.chunk_by(|a, b| case(a) == case(b)).map(<[usize]>::to_vec).collect();
            random.shuffle(&mut groups);
            for mut group in groups {
                random.shuffle(&mut group);
                order.extend(group.into_iter().map(|index| (index, Some(repetition))));
            }
        }
        order
    }
}

/// The cases that were left out, grouped by size, backing and reason.
fn left_out(cells: &[Cell], jvms: &[Jvm]) -> Vec<LeftOut> {
    let memory_of = |cell: &Cell| (cell.row.case.bytes, cell.row.case.backing);
    let mut groups: Vec<((Bytes, Backing), &str, Vec<String>)> = Vec::new();
    for cell in cells {
        let Some(reason) = &cell.out else { continue };
        let who = by_in_words(&cell.row.case, &cell.row.way, jvms);
        match groups.iter_mut().find(|(memory, of, _)| *memory == memory_of(cell) && of == reason) {
            Some((.., all)) => all.push(who),
            None => groups.push((memory_of(cell), reason, vec![who])),
        }
    }
    let group = |(memory, reason, who): ((Bytes, Backing), &str, Vec<String>)| {
        let all = cells.iter().filter(|cell| memory_of(cell) == memory).count();
        let memory = format!("{} on {}", memory.0, memory.1);
        let what = if who.len() == all { memory } else { format!("{memory} by {}", who.join(", by ")) };
        LeftOut { what, reason: reason.to_owned() }
    };
    groups.into_iter().map(group).collect()
}

fn by_in_words(case: &Case, way: &Variant, jvms: &[Jvm]) -> String {
    let chunk = way.chunk.map(|chunk| format!(" in chunks of {chunk}")).unwrap_or_default();
    let threads = if case.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", case.threads) };
    format!("{threads} of {}{chunk}", name(way.by, jvms))
}

/// Name of an implementation, for people.
pub fn name(by: Implementation, jvms: &[Jvm]) -> &str {
    match by {
        Implementation::Engine => "hugewise",
        Implementation::Loop => "touch loop",
        Implementation::Kernel => "kernel",
        Implementation::Jvm(index) => &jvms[index].name,
    }
}

/// The page size of the pool that a backing uses; `None` if it uses none.
fn pool(backing: Backing, sizes: &PageSizes) -> Option<PageSize> {
    sizes.huge_page_of(backing).filter(|_| backing.is_explicit())
}

/// Leaves out sizes that need reclaim, which would be measured, too.
fn leave_out_what_does_not_fit(cells: &mut [Cell], context: &ExperimentContext<'_>) {
    let pools: BTreeSet<PageSize> =
        cells.iter().filter_map(|cell| pool(cell.row.case.backing, context.sizes)).collect();
    let memory = meminfo::read(context.root);
    let beside = ConcurrentUse {
        pools: pools.len() as u64,
        others: cells.iter().any(|cell| !cell.row.case.backing.is_explicit()),
        jvm: cells.iter().any(|cell| matches!(cell.row.way.by, Implementation::Jvm(_))),
    };
    for cell in cells {
        cell.out = available::missing(cell.row.case.bytes, &beside, &memory, context.floor);
    }
}

/// Leaves out THP that needs compaction, which would be measured, too. The pools have their memory by then.
fn leave_out_what_is_scattered(cells: &mut [Cell], context: &ExperimentContext<'_>) {
    let Some(thp) = context.sizes.thp else { return };
    let memory = meminfo::read(context.root);
    let base = Reading::Known(context.sizes.base);
    let seen = contiguity::read(context.root, &base, &[thp], &memory.total, &memory.free, Scan::IfQuick);
    let Some(Reading::Known(ready)) = seen.sizes.first().map(|of_size| &of_size.at_once) else { return };
    for cell in cells.iter_mut().filter(|cell| cell.out.is_none() && cell.row.case.backing == Backing::Thp) {
        cell.out = available::scattered(cell.row.case.bytes, *ready * thp, thp);
    }
}

/// Grows pools and changes settings for the cells, largest first; cells whose needs cannot be met are left
/// out.
fn provide(
    cells: &mut [Cell],
    jvms: &[Jvm],
    context: &ExperimentContext<'_>,
    machine: &mut Machine,
) -> Result<(), ExperimentError> {
    // The number of threads does not matter here, and starting a JVM to read its flags takes 0.1 s.
    let mut provided: Vec<(Case, Variant, Option<String>)> = Vec::new();
    for cell in cells.iter_mut().rev().filter(|cell| cell.out.is_none()) {
        if context.interrupt.signal().is_some() {
            return Err(ExperimentError::Interrupted);
        }
        let PretouchRow { case, way, .. } = cell.row;
        let of_any = Case { threads: 1, ..case };
        let known = provided.iter().find(|(other, by, _)| (*other, *by) == (of_any, way));
        cell.out = match known {
            Some((.., out)) => out.clone(),
            None => {
                let out = provide_one(&case, &way, jvms, context, machine).err().map(String::from);
                provided.push((of_any, way, out.clone()));
                out
            }
        };
    }
    Ok(())
}

fn provide_one(
    case: &Case,
    way: &Variant,
    jvms: &[Jvm],
    context: &ExperimentContext<'_>,
    machine: &mut Machine,
) -> Result<(), Reason> {
    let sizes = context.sizes;
    let Implementation::Jvm(index) = way.by else {
        return machine.provide(case.backing, case.bytes, sizes, context.interrupt);
    };
    if let Some(missing) = sizes.missing(case.backing) {
        return Reason::err(missing);
    }
    let (heap, others) = jvms[index].accepts(case, way.chunk)?;
    let mut pools: BTreeMap<PageSize, Bytes> = BTreeMap::new();
    if let Some(size) = pool(case.backing, sizes) {
        pools.insert(size, heap.align_up(size).unwrap_or(heap));
        *pools.entry(sizes.default_hugetlb.unwrap_or(size)).or_default() += others;
    }
    if case.backing == Backing::Thp {
        machine.provide_thp(false)?;
    }
    machine.provide_pools(&pools, context.interrupt)
}

struct Runner<'a> {
    context: &'a ExperimentContext<'a>,
    jvms: &'a [Jvm],
    /// The environment of all started processes.
    marked: Launch,
    scratch: &'a Path,
}

impl Runner<'_> {
    /// Runs one process; an error other than an interruption says why this way cannot be measured here.
    fn sample(&self, case: &Case, way: &Variant) -> Result<Sample, ExecutionError> {
        let ExperimentContext { program, root, sizes, interrupt, .. } = *self.context;
        if let Implementation::Jvm(index) = way.by {
            return self.jvms[index].measure(case, way.chunk, &self.marked, self.scratch, interrupt);
        }
        let mut launch = worker::launch(program, case, way);
        launch.environment.clone_from(&self.marked.environment);
        let mut observer = Observer::new(root, RegionOfInterest::Reported, sizes.thp).with_longest_interval();
        let execution = execution::run(&launch, &mut observer, self.scratch, None, interrupt)?;
        if let Some(failure) = execution.failure() {
            return Err(ExecutionError::Failed(failure));
        }
        serde_json::from_str(&execution.output)
            .map_err(|error| ExecutionError::Failed(format!("the pretouch worker's report: {error}")))
    }
}
