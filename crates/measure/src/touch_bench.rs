//! Runs the touch experiment over sizes and backings, each run in a process of its own.

use std::{collections::BTreeMap, path::Path};

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
    execution,
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
        program: &Path,
        root: &Root,
        machine: &mut Machine,
        interrupt: &Interrupt,
        progress: &mut dyn Progress,
    ) -> Result<TouchTable, ExperimentError> {
        let sizes = PageSizes::read(root).map_err(|why| ExperimentError::run("page sizes", why))?;
        let scratch = machine.scratch().map_err(|why| ExperimentError::run("the scratch folder", why))?;
        let mut rows: BTreeMap<(usize, usize), Vec<TouchResult>> = BTreeMap::new();
        let mut left_out: BTreeMap<(usize, usize), String> = BTreeMap::new();
        let mut random = fastrand::Rng::with_seed(self.seed);
        let cells =
            (0..self.sizes.len()).flat_map(|size| (0..self.backings.len()).map(move |arm| (size, arm)));
        let mut cells: Vec<(usize, usize)> = cells.collect();
        let total = cells.len() * self.forks;
        let mut done = 0;
        for _ in 0..self.forks {
            random.shuffle(&mut cells);
            for &(case, arm) in &cells {
                let touch = Touch {
                    bytes: self.sizes[case],
                    backing: self.backings[arm],
                    reads: self.reads,
                    iterations: self.iterations,
                    warm_up: self.warm_up,
                };
                let what = format!("{} on {}", touch.bytes, touch.backing);
                progress.run(done, total, &what);
                done += 1;
                if left_out.contains_key(&(case, arm)) {
                    continue;
                }
                if let Err(reason) = machine.provide(touch.backing, touch.bytes, &sizes, interrupt) {
                    left_out.insert((case, arm), reason.into());
                    continue;
                }
                let mut observer = Observer::new(root, RegionOfInterest::Reported, sizes.thp);
                let launch = machine.mark(worker(program, &touch));
                let execution = execution::run(&launch, &mut observer, scratch.path(), None, interrupt)
                    .map_err(|source| ExperimentError::execution(&what, source))?;
                if let Some(reason) = execution.failure() {
                    left_out.insert((case, arm), reason);
                    continue;
                }
                let report = touched(&execution).map_err(|why| ExperimentError::run(&what, why))?;
                rows.entry((case, arm)).or_default().push(report);
            }
        }
        progress.run(total, total, "");
        let left_out =
            left_out.into_iter().map(|((case, arm), reason)| LeftOut { case, arm, reason }).collect();
        let rows = rows.into_iter().map(|((case, arm), forks)| TouchRow {
            bytes: self.sizes[case],
            backing: self.backings[arm],
            forks,
        });
        Ok(TouchTable { rows: rows.collect(), left_out, bench: self })
    }
}
