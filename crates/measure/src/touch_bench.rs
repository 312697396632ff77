//! Runs the touch experiment over sizes and backings, each run in a process of its own.

use std::{collections::BTreeMap, path::PathBuf};

use hugewise_evidence::observation::{Observer, RegionOfInterest};
use hugewise_linux::{
    hugepages::{backing::Backing, page_sizes::PageSizes},
    interrupt::Interrupt,
    root::Root,
    units::Bytes,
};
use serde::Serialize;

use crate::{
    comparison::LeftOut,
    execution::{self, ExecutionError, last_lines},
    experiment::{ExperimentError, Progress},
    machine::Machine,
    touch::{Touch, TouchResult},
    workload::native::{touched, worker},
};

#[derive(Clone, Debug)]
pub struct TouchBench {
    pub sizes: Vec<Bytes>,
    pub backings: Vec<Backing>,
    /// Processes per size and backing.
    pub forks: usize,
    /// Counted iterations per process.
    pub iterations: usize,
    /// Warm-up iterations per process, which are not counted.
    pub warm_up: usize,
    /// Reads per iteration.
    pub reads: u64,
    /// Seed of the order in which the processes run.
    pub seed: u64,
}

/// The runs of one size on one backing.
#[derive(Debug, Serialize)]
pub struct TouchRow {
    pub bytes: Bytes,
    pub backing: Backing,
    /// One report per process.
    pub forks: Vec<TouchResult>,
}

/// All measurements, ordered by size, then backing.
#[derive(Debug)]
pub struct TouchTable {
    pub bench: TouchBench,
    /// One row per size and backing that was measured.
    pub rows: Vec<TouchRow>,
    /// Backings that were not measured: [`LeftOut::case`] is the index of the size, [`LeftOut::arm`] of the
    /// backing.
    pub left_out: Vec<LeftOut>,
}

impl TouchBench {
    /// Runs the experiment; `program` is the path of this program.
    pub fn run(
        self,
        program: &PathBuf,
        root: &Root,
        machine: &mut Machine,
        interrupt: &Interrupt,
        progress: &mut dyn Progress,
    ) -> Result<TouchTable, ExperimentError> {
        let failed = |what: &str, reason: String| ExperimentError::Run { what: what.to_owned(), reason };
        let sizes = PageSizes::read(root).map_err(|reason| failed("page sizes", reason))?;
        let scratch = machine.scratch().map_err(|error| failed("the scratch folder", error.to_string()))?;
        let mut rows: BTreeMap<(usize, usize), Vec<TouchResult>> = BTreeMap::new();
        let mut left_out: Vec<LeftOut> = Vec::new();
        let mut random = fastrand::Rng::with_seed(self.seed);
        let cells =
            (0..self.sizes.len()).flat_map(|size| (0..self.backings.len()).map(move |arm| (size, arm)));
        let mut cells: Vec<(usize, usize)> = cells.collect();
        let total = cells.len() * self.forks;
        let mut done = 0;
        for _ in 0..self.forks {
            random.shuffle(&mut cells);
            for &(case, arm) in &cells {
                let touch = self.touch(case, arm);
                let what = format!("{} on {}", touch.bytes, touch.backing);
                progress.run(done, total, &what);
                done += 1;
                if left_out.iter().any(|out| (out.case, out.arm) == (case, arm)) {
                    continue;
                }
                if let Err(reason) = provide(&touch, &sizes, machine, interrupt) {
                    left_out.push(LeftOut { case, arm, reason });
                    continue;
                }
                let mut observer = Observer::new(root, RegionOfInterest::Reported, sizes.thp);
                let launch = machine.mark(worker(program, &touch));
                let execution = execution::run(&launch, &mut observer, scratch.path(), None, interrupt)
                    .map_err(|source| match source {
                        ExecutionError::Interrupted => ExperimentError::Interrupted,
                        source => ExperimentError::Execution { what: what.clone(), source },
                    })?;
                if !execution.ended.status.success() {
                    let reason = format!("{}{}", execution.ended.status, last_lines(&execution.output));
                    left_out.push(LeftOut { case, arm, reason });
                    continue;
                }
                let report = touched(&execution).map_err(|reason| failed(&what, reason))?;
                rows.entry((case, arm)).or_default().push(report);
            }
        }
        progress.run(total, total, "");
        left_out.sort_by_key(|out| (out.case, out.arm));
        let rows = rows.into_iter().map(|((case, arm), forks)| TouchRow {
            bytes: self.sizes[case],
            backing: self.backings[arm],
            forks,
        });
        Ok(TouchTable { rows: rows.collect(), left_out, bench: self })
    }

    fn touch(&self, case: usize, arm: usize) -> Touch {
        Touch {
            bytes: self.sizes[case],
            backing: self.backings[arm],
            reads: self.reads,
            iterations: self.iterations,
            warm_up: self.warm_up,
        }
    }
}

fn provide(
    touch: &Touch,
    sizes: &PageSizes,
    machine: &mut Machine,
    interrupt: &Interrupt,
) -> Result<(), String> {
    if let Some(missing) = sizes.missing(touch.backing) {
        return Err(missing);
    }
    match (touch.backing, sizes.huge_page_of(touch.backing)) {
        (Backing::Thp, _) => machine.provide_thp(false),
        (Backing::Hugetlb(_) | Backing::Shm(_), Some(size)) => {
            let needed = touch.bytes.align_up(size).ok_or("more than this machine could ever address")?;
            machine.provide_pools(&BTreeMap::from([(size, needed)]), interrupt)
        }
        _ => Ok(()),
    }
}
