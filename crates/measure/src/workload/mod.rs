//! Workloads: what is run, how a backing is put on it, and which figures it gives.

mod java;
pub mod metric;
pub mod native;
mod other;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use hugewise_evidence::observation::{Observer, RegionOfInterest};
use hugewise_jvm::{flags::FinalFlags, launch::LaunchLine};
use hugewise_linux::{
    hugepages::{backing::Backing, page_sizes::PageSizes},
    pages::coverage::Coverage,
    units::{Bytes, PageSize},
};

use crate::{
    comparison::{Better, Figure},
    execution::{Execution, Launch},
    workload::{metric::Metric, native::NativeTouch},
};

/// Something that can be run on different backings.
#[derive(Debug)]
pub struct Workload {
    /// A short name: `native`, `java 17.0.15`, or the program's.
    pub name: String,
    own: OwnFigures,
    kind: Kind,
}

/// The figures that a workload gives itself; the first of them decides the verdict.
#[derive(Clone, Debug, Default)]
pub struct OwnFigures {
    /// Found in its output.
    pub metrics: Vec<Metric>,
    /// The result file that it lets JMH write; which scores it holds is known after a run.
    pub jmh: Option<PathBuf>,
}

#[derive(Debug)]
enum Kind {
    Native(NativeTouch),
    Java { line: LaunchLine, flags: FinalFlags },
    Other { command: Vec<String> },
}

/// A workload with a backing put on it.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// How to start it.
    pub launch: Launch,
    /// Whose coverage proves what it got.
    pub region: RegionOfInterest,
    /// What it takes from the hugetlb pools, by their page size.
    pub pools: BTreeMap<PageSize, Bytes>,
    /// Its Java heap lies in shared memory, so that THP needs `shmem_enabled`.
    pub shared_memory: bool,
    /// What was done to its options, for people.
    pub notes: Vec<String>,
}

/// The machine and the files that workloads are prepared with.
#[derive(Clone, Copy, Debug)]
pub struct Conditions<'a> {
    /// Page sizes of the machine.
    pub sizes: &'a PageSizes,
    /// A private folder for logs and programs.
    pub scratch: &'a Path,
    /// The most memory that the workload was seen to use on base pages, once it has been run.
    pub peak_on_base: Option<Bytes>,
}

/// What one run gave.
#[derive(Debug)]
pub struct Results {
    /// Figures by name.
    pub figures: BTreeMap<String, f64>,
    /// Those of them that no other than the run could name, in their order.
    pub named_by_run: Vec<Figure>,
    /// Coverage of the region that matters; the reason where it could not be told.
    pub coverage: Result<Coverage, String>,
}

impl Workload {
    /// Puts `backing` on it, or says why that cannot be done.
    pub fn prepare(&self, backing: Backing, conditions: &Conditions) -> Result<Prepared, String> {
        if let Some(missing) = conditions.sizes.missing(backing) {
            return Err(missing);
        }
        match &self.kind {
            Kind::Native(touch) => touch.prepare(backing, conditions),
            Kind::Java { line, flags } => java::prepare(line, flags, backing, conditions),
            Kind::Other { command } => other::prepare(command, backing, conditions),
        }
    }

    /// The figures of this workload, the one that the verdict is drawn from first.
    #[must_use]
    pub fn figures(&self) -> Vec<Figure> {
        let mut figures: Vec<Figure> = self.own.metrics.iter().map(Metric::figure).collect();
        if matches!(self.kind, Kind::Native(_)) {
            figures.extend(native::FIGURES.map(figure));
        }
        figures.extend(PROCESS_FIGURES.map(figure));
        if matches!(self.kind, Kind::Java { .. }) {
            figures.extend(java::FIGURES.map(figure));
        }
        figures
    }

    /// Is a backing put on it through its C library, because it has no options for that?
    #[must_use]
    pub fn is_asked_through_malloc(&self) -> bool {
        matches!(self.kind, Kind::Other { .. })
    }

    /// Reads the figures and the coverage of a run that ended well.
    pub fn results(
        &self,
        prepared: &Prepared,
        execution: &Execution,
        observer: &Observer,
    ) -> Result<Results, String> {
        let mut figures = process_figures(execution, observer);
        for metric in &self.own.metrics {
            figures.insert(metric.figure().name, metric.read(execution)?);
        }
        let mut named_by_run = Vec::new();
        if let Some(file) = &self.own.jmh {
            for (figure, score) in metric::jmh_scores(file, execution)? {
                figures.insert(figure.name.clone(), score);
                named_by_run.push(figure);
            }
        }
        let mut coverage = observer.coverage.clone().ok_or_else(|| {
            "its coverage could not be read: it ended before it was looked at, or we may not read its smaps"
                .to_owned()
        });
        match (&self.kind, &prepared.region) {
            (Kind::Native(_), _) => {
                let (more, reported) = native::results(execution)?;
                figures.extend(more);
                coverage = reported;
            }
            (_, RegionOfInterest::JavaHeap(log)) => {
                figures.extend(java::figures(log, execution.started_ns));
            }
            _ => {}
        }
        Ok(Results { figures, named_by_run, coverage })
    }
}

const PROCESS_FIGURES: [(&str, &str); 6] = [
    ("wall", "s"),
    ("user", "s"),
    ("sys", "s"),
    ("peak_memory", "bytes"),
    ("minor_faults", ""),
    ("major_faults", ""),
];

fn process_figures(execution: &Execution, observer: &Observer) -> BTreeMap<String, f64> {
    let ended = &execution.ended;
    // The kernel's own maximum sees what lies between two looks, but no hugetlb pages.
    let peak = observer.peak_memory.max(ended.max_rss);
    let values = [
        execution.wall.as_secs_f64(),
        ended.user.as_secs_f64(),
        ended.sys.as_secs_f64(),
        peak.0 as f64,
        ended.minor_faults as f64,
        ended.major_faults as f64,
    ];
    PROCESS_FIGURES.iter().zip(values).map(|((name, _), value)| ((*name).to_owned(), value)).collect()
}

fn figure((name, unit): (&str, &str)) -> Figure {
    Figure { name: name.to_owned(), unit: unit.to_owned(), better: Better::Lower }
}
