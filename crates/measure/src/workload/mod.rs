//! Workloads: how each is started on a backing, and the figures that it reports.

mod java;
pub mod metric;
pub mod native;
mod off_heap;
mod other;
mod postgres;
mod prometheus;
pub(crate) mod servers;
mod unit;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use hugewise_databases::postgres::line::PostgresLine;
use hugewise_evidence::observation::{Observer, RegionOfInterest};
use hugewise_jvm::{flags::FinalFlags, launch::LaunchLine};
use hugewise_launch::{launcher::Launcher, proof::PassedOptions};
use hugewise_linux::{
    c_library::Allocator,
    hugepages::page_sizes::PageSizes,
    pages::coverage::Coverage,
    reading::{Reading, Reason},
    units::{Bytes, PageSize},
};

use crate::{
    comparison::{Better, Figure, ProgramBacking},
    execution::{Execution, Launch},
    serving::Session,
    touch::Touch,
    workload::metric::Metric,
};

pub use self::unit::UnitProgram;

/// A program that can run on different backings.
#[derive(Debug)]
pub struct Workload {
    /// Short name: `native`, `java 17.0.15`, or the name of the program.
    pub name: String,
    /// Size of the buffer that it reads in turns; `None` for a program that runs from its start to its end.
    pub turns: Option<Bytes>,
    own: OwnFigures,
    kind: WorkloadKind,
}

/// Figures that the user chose; the first decides the verdict.
#[derive(Clone, Debug, Default)]
pub struct OwnFigures {
    /// Figures of its output, or of the process.
    pub metrics: Vec<Metric>,
    /// The number of operations in the output, for the CPU time of each.
    pub operations: Option<Metric>,
    /// Result file written by JMH; the names of its scores are known only after a run.
    pub jmh: Option<PathBuf>,
}

#[derive(Debug)]
enum WorkloadKind {
    Native { program: PathBuf, touch: Touch },
    Java { line: LaunchLine, flags: FinalFlags },
    Postgres { command: Vec<String>, line: PostgresLine },
    Unit(UnitProgram),
    Other { command: Vec<String>, launcher: Option<Launcher>, allocator: Option<Allocator> },
}

/// A workload prepared for a backing.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub launch: Launch,
    /// Region whose coverage is checked.
    pub region: RegionOfInterest,
    /// Demand on the hugetlb pools, by page size.
    pub pools: BTreeMap<PageSize, Bytes>,
    /// Whether the Java heap lies in shared memory, so that THP depends on `shmem_enabled`.
    pub shared_memory: bool,
    /// Options that were passed for the JVMs that it starts; `None` if its JVM is started by its own command line.
    pub passed: Option<PassedOptions>,
    /// Changes of its options, for people.
    pub notes: Vec<String>,
}

/// The machine and the files for the preparation of workloads.
#[derive(Clone, Copy, Debug)]
pub struct Conditions<'a> {
    pub sizes: &'a PageSizes,
    /// A private directory for logs and programs.
    pub scratch: &'a Path,
    /// Memory of the workload on base pages, for which a pool must have room; `None` before its first run.
    pub memory_on_base: Option<Bytes>,
    /// The run of a server; `None` for other programs.
    pub session: Option<&'a Session<'a>>,
}

/// Results of one run.
#[derive(Debug)]
pub struct Results {
    /// Figures by name.
    pub figures: BTreeMap<String, f64>,
    /// The figures whose names are known only after the run, in their order.
    pub named_by_run: Vec<Figure>,
    /// Coverage of the checked region.
    pub coverage: Reading<Coverage>,
    /// Coverage of the memory outside the Java heap.
    pub off_heap_coverage: Reading<Coverage>,
}

impl Workload {
    /// Prepares the workload for its backing in an arm; the error says why that is not possible.
    pub fn prepare(&self, backing: ProgramBacking, conditions: &Conditions) -> Result<Prepared, Reason> {
        let ProgramBacking { backing, off_heap } = backing;
        if let Some(missing) = conditions.sizes.missing(backing) {
            return Reason::err(missing);
        }
        match &self.kind {
            WorkloadKind::Native { program, touch } => {
                let mut prepared = native::prepare(program, touch, backing, conditions);
                prepared.launch.command.extend(self.turns.map(|_| "--turns".into()));
                Ok(prepared)
            }
            WorkloadKind::Java { line, flags } => {
                let mut prepared = java::prepare(line, flags, backing, conditions)?;
                if let Some(off_heap) = off_heap {
                    off_heap::prepare(&mut prepared, off_heap, conditions)?;
                }
                Ok(prepared)
            }
            WorkloadKind::Postgres { command, line } => postgres::prepare(command, line, backing, conditions),
            WorkloadKind::Unit(program) => unit::prepare(program, backing, conditions),
            WorkloadKind::Other { command, launcher, allocator } => {
                other::prepare(command, launcher.as_ref(), *allocator, backing, conditions)
            }
        }
    }

    /// The figures of this workload; the first decides the verdict.
    pub fn figures(&self) -> Vec<Figure> {
        let mut figures: Vec<Figure> = self.own.metrics.iter().map(Metric::figure).collect();
        figures.extend(self.own.operations.iter().map(|_| figure(CPU_PER_OPERATION)));
        if matches!(self.kind, WorkloadKind::Native { .. }) {
            figures.extend(native::FIGURES.map(figure));
        }
        let chosen: Vec<String> = figures.iter().map(|figure| figure.name.clone()).collect();
        figures.extend(PROCESS_FIGURES.map(figure).into_iter().filter(|f| !chosen.contains(&f.name)));
        if matches!(self.kind, WorkloadKind::Java { .. }) {
            figures.extend(java::FIGURES.map(figure));
        }
        figures
    }

    /// Names of the figures of the output.
    pub(crate) fn printed_figures(&self) -> Vec<String> {
        let printed = self.own.metrics.iter().filter(|metric| metric.is_printed());
        printed.map(|metric| metric.figure().name).collect()
    }

    /// Whether the backing of the observed memory is set through malloc, because the program has no option for it.
    pub fn is_asked_through_malloc(&self, observer: &Observer) -> bool {
        match self.kind {
            WorkloadKind::Unit(UnitProgram { is_jvm, .. }) => !is_jvm,
            WorkloadKind::Other { ref launcher, .. } => {
                !launcher.as_ref().is_some_and(Launcher::names_java) && !observer.has_heap()
            }
            _ => false,
        }
    }

    /// Reads the figures and the coverage of a successful run.
    pub fn results(
        &self,
        prepared: &Prepared,
        execution: &Execution,
        observer: &Observer,
    ) -> Result<Results, Reason> {
        let mut figures = process_figures(execution, observer);
        for metric in &self.own.metrics {
            let read = metric.read(execution)?;
            figures.extend(read.map(|value| (metric.figure().name, value)));
        }
        if let Some(count) =
            self.own.operations.as_ref().map(|metric| metric.read(execution)).transpose()?.flatten()
        {
            if count <= 0.0 {
                return Reason::err(format!(
                    "the driver reports {count} operations: CPU time for each is undefined; check the driver, and --operations"
                ));
            }
            figures.insert(CPU_PER_OPERATION.0.to_owned(), figures["cpu"] / count);
        }
        let mut named_by_run = Vec::new();
        if let Some(file) = &self.own.jmh {
            for (figure, score) in metric::jmh_scores(file, execution)? {
                figures.insert(figure.name.clone(), score);
                named_by_run.push(figure);
            }
        }
        let unknown = "the program ended before its first sample, or its smaps could not be read";
        let at_peak = |sampled| match not_sampled_at_peak(observer.peak_memory, execution.ended.max_rss) {
            Some(why) => Err(why),
            None => Ok(sampled),
        };
        let of = |sampled: &Option<Coverage>| Reading::from(sampled.clone().ok_or(unknown)).and_then(at_peak);
        let mut coverage = of(&observer.coverage);
        let off_heap_coverage = of(&observer.off_heap_coverage);
        match (&self.kind, &prepared.region) {
            (WorkloadKind::Native { .. }, _) => {
                let touched = native::touched(execution)?;
                figures.extend(native::figures(&touched)?);
                coverage = touched.coverage;
            }
            (_, RegionOfInterest::JavaHeap(log)) => {
                figures.extend(java::figures(log, execution.started_ns));
            }
            _ => {}
        }
        Ok(Results { figures, named_by_run, coverage, off_heap_coverage })
    }
}

const CPU_PER_OPERATION: (&str, &str) = ("cpu_per_operation", "s");
const PROCESS_FIGURES: [(&str, &str); 7] = [
    ("wall", "s"),
    ("user", "s"),
    ("sys", "s"),
    ("cpu_wait", "s"),
    ("peak_memory", "bytes"),
    ("minor_faults", ""),
    ("major_faults", ""),
];

/// Why the coverage that was sampled is not that of the program's memory at its peak. `sampled` is the most
/// memory that was seen, `peak` the kernel's maximum.
fn not_sampled_at_peak(sampled: Bytes, peak: Option<Bytes>) -> Option<String> {
    let peak = peak.filter(|peak| sampled < Bytes(peak.0 / 2))?;
    Some(format!("the program had {peak} at its peak, and {sampled} when it was sampled"))
}

fn process_figures(execution: &Execution, observer: &Observer) -> BTreeMap<String, f64> {
    let ended = &execution.ended;
    // The kernel's maximum includes peaks between two samples, but no hugetlb pages.
    let peak = observer.peak_memory.max(ended.max_rss.unwrap_or_default());
    let values = [
        execution.wall.as_secs_f64(),
        ended.user.as_secs_f64(),
        ended.sys.as_secs_f64(),
        observer.cpu_wait.as_secs_f64(),
        peak.0 as f64,
        ended.minor_faults as f64,
        ended.major_faults as f64,
    ];
    let figures = PROCESS_FIGURES.iter().zip(values).map(|((name, _), value)| ((*name).to_owned(), value));
    let cpu = ("cpu".to_owned(), (ended.user + ended.sys).as_secs_f64());
    figures.chain([cpu]).collect()
}

/// Whether the figure is about pauses or the progress of a JVM, which a stop of the process prolongs.
pub(crate) fn is_of_pauses(figure: &str) -> bool {
    java::FIGURES.iter().any(|(name, _)| *name == figure)
}

fn figure((name, unit): (&str, &str)) -> Figure {
    Figure { name: name.to_owned(), unit: unit.to_owned(), better: Better::Lower }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lull_does_not_speak_for_the_peak() {
        let mib = |n: u64| Bytes(n << 20);
        assert_eq!(not_sampled_at_peak(mib(590), Some(mib(600))), None);
        let missed = not_sampled_at_peak(mib(17), Some(mib(600)));
        let why = "the program had 600MiB at its peak, and 17MiB when it was sampled";
        assert_eq!(missed.as_deref(), Some(why));
        // The kernel's maximum excludes hugetlb pages.
        assert_eq!(not_sampled_at_peak(mib(600), Some(mib(17))), None);
        assert_eq!(not_sampled_at_peak(mib(1), None), None);
    }
}
