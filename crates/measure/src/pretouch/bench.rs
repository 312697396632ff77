//! Runs the pretouch experiment over sizes, backings, threads and chunks, each run in a process of its own.

use std::{collections::BTreeMap, path::Path};

use hugewise_evidence::observation::{Observer, RegionOfInterest};
use hugewise_linux::{
    hugepages::{
        backing::Backing,
        contiguity::{self, Scan},
        page_sizes::PageSizes,
    },
    interrupt::Interrupt,
    proc::meminfo,
    reading::Reading,
    root::Root,
    units::{Bytes, PageSize},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    Case, Implementation, LeftOut, PretouchRow, Sample, Variant,
    available::{self, ConcurrentUse},
    host,
    hotspot::Jvm,
    worker,
};
use crate::{
    execution::{self, ExecutionError, Launch, last_lines},
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

/// A row to measure, with its samples or the reason why it was left out.
struct Cell {
    case: Case,
    way: Variant,
    held_out: bool,
    samples: Vec<Sample>,
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
        let scratch = machine.scratch().map_err(|error| failed("the scratch folder", error))?;
        let runner =
            Runner { context, jvms: &jvms, marked: machine.mark(Launch::default()), scratch: scratch.path() };
        let order = self.order(&cells);
        for (done, &(index, repetition)) in order.iter().enumerate() {
            let cell = &mut cells[index];
            progress.run(done, order.len(), &describe(&cell.case, &cell.way, &jvms));
            if cell.out.is_some() {
                continue;
            }
            match (runner.sample(&cell.case, &cell.way)?, repetition) {
                (Ok(sample), Some(repetition)) => cell.samples.push(Sample { repetition, ..sample }),
                (Ok(_), None) => {}
                (Err(reason), _) => cell.out = Some(reason),
            }
        }
        progress.run(order.len(), order.len(), "");
        let host_takes_back_free_memory = host::takes_back_free_memory(context.root);
        Ok(Table { host_takes_back_free_memory, ..self.table(cells, jvms) })
    }

    fn cells(&self, jvms: &[Jvm]) -> Vec<Cell> {
        let sizes = self.sizes.iter().map(|size| (*size, false));
        let sizes = sizes.chain(self.held_out.map(|size| (size, true)));
        let mut cells = Vec::new();
        for (bytes, held_out) in sizes {
            for &backing in &self.backings {
                for &threads in &self.threads {
                    let ways = if held_out { vec![self.fitted_variant()] } else { self.ways(jvms.len()) };
                    cells.extend(ways.into_iter().map(|way| Cell {
                        case: Case { bytes, backing, threads },
                        way,
                        held_out,
                        samples: Vec::new(),
                        out: None,
                    }));
                }
            }
        }
        cells
    }

    /// The way that the model is fitted to.
    #[must_use]
    pub fn fitted_variant(&self) -> Variant {
        let chunk = if self.chunks.contains(&None) { None } else { self.chunks.first().copied().flatten() };
        Variant { by: Implementation::Engine, chunk }
    }

    fn ways(&self, jvms: usize) -> Vec<Variant> {
        let with_chunks =
            |by: Implementation| self.chunks.iter().map(move |chunk| Variant { by, chunk: *chunk });
        let alone = |by: Implementation| Variant { by, chunk: None };
        let baselines = if self.baselines {
            vec![alone(Implementation::Loop), alone(Implementation::Kernel)]
        } else {
            Vec::new()
        };
        with_chunks(Implementation::Engine)
            .chain(baselines)
            .chain((0..jvms).map(Implementation::Jvm).flat_map(with_chunks))
            .collect()
    }

    /// A warm-up of the largest size in every way, then the repetitions. Each repetition runs all cases in
    /// random order; the ways of a case run consecutively in random order, so that compared runs are close in
    /// time.
    fn order(&self, cells: &[Cell]) -> Vec<(usize, Option<usize>)> {
        let mut random = fastrand::Rng::with_seed(self.seed);
        let possible = |index: &usize| cells[*index].out.is_none();
        let mut order: Vec<(usize, Option<usize>)> = Vec::new();
        let all = || (0..cells.len()).filter(possible);
        let largest = all().map(|index| cells[index].case.bytes).max();
        let most = all().map(|index| cells[index].case.threads).max();
        // A virtual machine gets memory from its host on first use, and the memory used last is reused first:
        // after a warm-up on the largest size, all other sizes run on memory that the guest already has.
        let chunk = self.fitted_variant().chunk;
        let warms = |cell: &Cell| {
            (Some(cell.case.bytes), Some(cell.case.threads), cell.way.chunk) == (largest, most, chunk)
        };
        order.extend(all().filter(|index| warms(&cells[*index])).map(|index| (index, None)));
        for repetition in 0..self.repetitions {
            let mut groups: Vec<Vec<usize>> = Vec::new();
            for index in all() {
                match groups.last_mut() {
                    Some(group) if cells[group[0]].case == cells[index].case => group.push(index),
                    _ => groups.push(vec![index]),
                }
            }
            random.shuffle(&mut groups);
            for mut group in groups {
                random.shuffle(&mut group);
                order.extend(group.into_iter().map(|index| (index, Some(repetition))));
            }
        }
        order
    }

    fn table(self, cells: Vec<Cell>, jvms: Vec<Jvm>) -> Table {
        let left_out = left_out(&cells, &jvms);
        let rows = cells.into_iter().filter(|cell| !cell.samples.is_empty());
        let rows = rows.map(|Cell { case, way, held_out, samples, .. }| PretouchRow {
            case,
            way,
            held_out,
            samples,
        });
        let rows = rows.collect();
        Table { rows, left_out, jvms, host_takes_back_free_memory: false, design: self }
    }
}

/// The cases that were left out, grouped by size, backing and reason.
fn left_out(cells: &[Cell], jvms: &[Jvm]) -> Vec<LeftOut> {
    let mut groups: Vec<(&Cell, &str, Vec<String>)> = Vec::new();
    for cell in cells {
        let Some(reason) = &cell.out else { continue };
        let who = by_in_words(&cell.case, &cell.way, jvms);
        let (bytes, backing) = (cell.case.bytes, cell.case.backing);
        let same = |(first, of, _): &&mut (&Cell, &str, Vec<String>)| {
            (first.case.bytes, first.case.backing, *of) == (bytes, backing, reason.as_str())
        };
        match groups.iter_mut().find(same) {
            Some((.., all)) => all.push(who),
            None => groups.push((cell, reason, vec![who])),
        }
    }
    let all_of = |cell: &Cell| {
        cells
            .iter()
            .filter(|c| c.case.bytes == cell.case.bytes && c.case.backing == cell.case.backing)
            .count()
    };
    let group = |(cell, reason, who): (&Cell, &str, Vec<String>)| {
        let memory = format!("{} on {}", cell.case.bytes, cell.case.backing);
        let what =
            if who.len() == all_of(cell) { memory } else { format!("{memory} by {}", who.join(", by ")) };
        LeftOut { what, reason: reason.to_owned() }
    };
    groups.into_iter().map(group).collect()
}

fn describe(case: &Case, way: &Variant, jvms: &[Jvm]) -> String {
    format!("{} on {} by {}", case.bytes, case.backing, by_in_words(case, way, jvms))
}

fn by_in_words(case: &Case, way: &Variant, jvms: &[Jvm]) -> String {
    let chunk = way.chunk.map(|chunk| format!(" in chunks of {chunk}")).unwrap_or_default();
    let threads = if case.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", case.threads) };
    format!("{threads} of {}{chunk}", name(way.by, jvms))
}

/// Name of an implementation, for people.
#[must_use]
pub fn name(by: Implementation, jvms: &[Jvm]) -> &str {
    match by {
        Implementation::Engine => "hugewise",
        Implementation::Loop => "touch loop",
        Implementation::Kernel => "kernel",
        Implementation::Jvm(index) => jvms.get(index).map_or("java", |jvm| &jvm.name),
    }
}

fn failed(what: &str, reason: impl ToString) -> ExperimentError {
    ExperimentError::Run { what: what.to_owned(), reason: reason.to_string() }
}

/// The page size of the pool that a backing uses; `None` if it uses none.
fn pool(backing: Backing, sizes: &PageSizes) -> Option<PageSize> {
    sizes.huge_page_of(backing).filter(|_| backing.is_explicit())
}

/// Leaves out sizes that need reclaim, which would be measured, too.
fn leave_out_what_does_not_fit(cells: &mut [Cell], context: &ExperimentContext<'_>) {
    let mut pools: Vec<PageSize> = cells.iter().filter_map(|c| pool(c.case.backing, context.sizes)).collect();
    pools.sort_unstable();
    pools.dedup();
    let memory = meminfo::read(context.root);
    let beside = ConcurrentUse {
        pools: pools.len() as u64,
        others: cells.iter().any(|cell| !cell.case.backing.is_explicit()),
        jvm: cells.iter().any(|cell| matches!(cell.way.by, Implementation::Jvm(_))),
    };
    for cell in cells {
        cell.out = available::missing(cell.case.bytes, &beside, &memory, context.floor);
    }
}

/// Leaves out THP that needs compaction, which would be measured, too. The pools have their memory by then.
fn leave_out_what_is_scattered(cells: &mut [Cell], context: &ExperimentContext<'_>) {
    let Some(thp) = context.sizes.thp else { return };
    let memory = meminfo::read(context.root);
    let base = Reading::Known(context.sizes.base);
    let seen = contiguity::read(context.root, &base, &[thp], &memory.total, &memory.free, Scan::IfQuick);
    let Some(Reading::Known(ready)) = seen.sizes.first().map(|of_size| &of_size.at_once) else { return };
    for cell in cells.iter_mut().filter(|cell| cell.out.is_none() && cell.case.backing == Backing::Thp) {
        cell.out = available::scattered(cell.case.bytes, *ready * thp, thp);
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
        let case = Case { threads: 1, ..cell.case };
        let known = provided.iter().find(|(of, way, _)| *of == case && *way == cell.way);
        cell.out = match known {
            Some((.., out)) => out.clone(),
            None => {
                let out = provide_one(&cell.case, &cell.way, jvms, context, machine).err();
                provided.push((case, cell.way, out.clone()));
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
) -> Result<(), String> {
    if let Some(missing) = context.sizes.missing(case.backing) {
        return Err(missing);
    }
    let mut pools: BTreeMap<PageSize, Bytes> = BTreeMap::new();
    if let Some(size) = pool(case.backing, context.sizes) {
        pools.insert(size, case.bytes.align_up(size).ok_or("more than this machine could ever address")?);
    }
    if let Implementation::Jvm(index) = way.by {
        let (heap, others) = jvms.get(index).ok_or("no such JVM")?.accepts(case, way.chunk)?;
        if let (Some(size), Some(default)) =
            (pool(case.backing, context.sizes), context.sizes.default_hugetlb)
        {
            pools.insert(size, heap.align_up(size).unwrap_or(heap));
            *pools.entry(default).or_default() += others;
        }
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
    /// Runs one process; the inner error says why this way cannot be measured here.
    fn sample(&self, case: &Case, way: &Variant) -> Result<Result<Sample, String>, ExperimentError> {
        let sampled = match way.by {
            Implementation::Jvm(index) => match self.jvms.get(index) {
                Some(jvm) => jvm.measure(case, way.chunk, &self.marked, self.scratch, self.context.interrupt),
                None => return Ok(Err("no such JVM".to_owned())),
            },
            Implementation::Engine | Implementation::Loop | Implementation::Kernel => {
                match self.work(case, way) {
                    Ok(reported) => return Ok(reported),
                    Err(error) => Err(error),
                }
            }
        };
        match sampled {
            Ok(sample) => Ok(Ok(sample)),
            Err(ExecutionError::Interrupted) => Err(ExperimentError::Interrupted),
            Err(error) => Ok(Err(error.to_string())),
        }
    }

    fn work(&self, case: &Case, way: &Variant) -> Result<Result<Sample, String>, ExecutionError> {
        let mut launch = worker::launch(self.context.program, case, way);
        launch.environment.clone_from(&self.marked.environment);
        let observer = Observer::new(self.context.root, RegionOfInterest::Reported, self.context.sizes.thp);
        let mut observer = observer.with_longest_interval();
        let execution = execution::run(&launch, &mut observer, self.scratch, None, self.context.interrupt)?;
        if !execution.ended.status.success() {
            return Ok(Err(format!("{}{}", execution.ended.status, last_lines(&execution.output))));
        }
        let sample = serde_json::from_str(&execution.output);
        Ok(sample.map_err(|error| format!("the pretouch worker's report: {error}")))
    }
}
