//! The experiment: every case on every backing, in blocks, with a check of each run's coverage.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use hugewise_evidence::{
    observation::{Observer, RegionOfInterest},
    proof::{self, Evidence},
};
use hugewise_linux::{
    hugepages::{backing::Backing, page_sizes::PageSizes},
    interrupt::Interrupt,
    pages::coverage::Coverage,
    proc::{meminfo, vmstat::VmStat},
    root::Root,
    units::Bytes,
};

use crate::{
    analysis,
    comparison::{self, Case, Comparison, Design, Figure, LeftOut, Round},
    execution::{self, ExecutionError},
    fragmentation::{Fragmenter, Free, Held, HostError},
    machine::Machine,
    rounds::{Blocks, MAX_BLOCKS, MIN_BLOCKS},
    schedule::{self, Slot},
    verdict,
    workload::{Conditions, Prepared, Results, Workload},
};

/// A workload with one set of parameter values.
#[derive(Debug)]
pub struct CaseToRun {
    pub workload: Workload,
    /// The command line as given, with parameters by name; empty for the native workload.
    pub command: Vec<String>,
    /// Values from `--parameter-list`, by name.
    pub parameters: BTreeMap<String, String>,
}

/// Rules of the experiment beyond the design.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub blocks: Blocks,
    /// Time limit of a run; a longer run is terminated, and the experiment with it.
    pub timeout: Option<Duration>,
    /// Least share of huge pages at which a run counts, 0 to 1.
    pub least_coverage: f64,
}

/// Receives the progress of the experiment.
pub trait Progress {
    /// Called at the start of a run, after `done` of `total` runs.
    fn run(&mut self, done: usize, total: usize, what: &str);
}

#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    #[error("{what}: {source}")]
    Execution { what: String, source: ExecutionError },
    /// A run ended with an error status, or reported no figures.
    #[error("{what}: {reason}")]
    Run { what: String, reason: String },
    #[error("interrupted")]
    Interrupted,
}

impl ExperimentError {
    pub(crate) fn run(what: &str, reason: impl ToString) -> ExperimentError {
        ExperimentError::Run { what: what.to_owned(), reason: reason.to_string() }
    }

    pub(crate) fn execution(what: &str, source: ExecutionError) -> ExperimentError {
        match source {
            ExecutionError::Interrupted => ExperimentError::Interrupted,
            source => ExperimentError::Execution { what: what.to_owned(), source },
        }
    }
}

/// The parameters of the experiment.
pub struct Experiment<'a> {
    pub root: &'a Root,
    pub sizes: &'a PageSizes,
    pub cases: &'a [CaseToRun],
    pub design: &'a Design,
    pub rules: Rules,
    /// A private directory.
    pub scratch: &'a Path,
    pub interrupt: &'a Interrupt,
    /// Fragments memory before each run; `None` to leave it as it is.
    pub fragmenter: Option<&'a Fragmenter>,
}

impl Experiment<'_> {
    /// Runs the experiment; settings of the machine stay changed until `machine` is closed.
    pub fn conduct(
        &self,
        machine: &mut Machine,
        progress: &mut dyn Progress,
    ) -> Result<Comparison, ExperimentError> {
        let mut result = self.empty_comparison();
        let free =
            self.fragmenter.and_then(|fragmenter| Free::read(&fragmenter.root, &fragmenter.sizes).ok());
        let begin = Instant::now();
        let (cases, arms) = (self.cases.len(), self.design.arms.len());
        let runs_of_a_block = cases * arms;
        let mut peaks: Vec<Option<Bytes>> = vec![None; cases];
        let mut arms_ready = BTreeSet::new();
        let warm_ups = schedule::warm_ups(cases, arms, self.design.warm_up);
        let (fewest, most) = match self.rules.blocks {
            Blocks::Exactly(blocks) => (blocks, blocks),
            Blocks::UntilPrecise(_) => (MIN_BLOCKS, MAX_BLOCKS),
        };
        let blocks = schedule::blocks(cases, arms, most, self.design.seed);
        let mut total = runs_of_a_block * (self.design.warm_up + fewest);
        for (done, slot) in warm_ups.into_iter().chain(blocks).enumerate() {
            let blocks_over = (done / runs_of_a_block).saturating_sub(self.design.warm_up);
            if done % runs_of_a_block == 0 {
                if self.suffices(blocks_over, begin.elapsed(), &result) {
                    break;
                }
                total = total.max(done + runs_of_a_block);
            }
            let peak = peaks[slot.case];
            let Some(prepared) = self.prepare(slot, peak, machine, &mut arms_ready, &mut result) else {
                continue;
            };
            progress.run(done, total, &self.describe(slot));
            let (round, named_by_run) = match self.run(slot, &prepared, machine) {
                // The workload runs on the reference but not on this backing: that is a result.
                Err(ExperimentError::Run { reason, .. }) if slot.block.is_none() && slot.arm > 0 => {
                    result.left_out.push(LeftOut { case: slot.case, arm: slot.arm, reason });
                    continue;
                }
                run => run?,
            };
            name_figures(&mut result.cases[slot.case], named_by_run);
            if self.design.arms[slot.arm] == Backing::Base {
                let peak = round.figures.get("peak_memory").map(|bytes| Bytes(*bytes as u64));
                peaks[slot.case] = peak.max(peaks[slot.case]);
            }
            result.rounds.push(round);
        }
        progress.run(total, total, "");
        if let Some((fragmenter, free)) = self.fragmenter.zip(free) {
            match fragmenter.restore(free, self.interrupt) {
                Ok(returned) if returned.is_as_it_was() => {}
                Ok(returned) => result.notes.push(format!(
                    "{} huge-page-sized blocks are free after the runs, {} were free before: other programs \
                     allocated memory during that time",
                    returned.blocks_after, returned.blocks_before
                )),
                Err(error) => result.notes.push(error.to_string()),
            }
        }
        result.design.rounds =
            result.rounds.iter().filter_map(|round| round.block).max().map_or(0, |last| last + 1);
        result.changes = machine.changes().to_vec();
        Ok(result)
    }

    /// Whether `blocks` blocks are enough.
    fn suffices(&self, blocks: usize, elapsed: Duration, so_far: &Comparison) -> bool {
        let Blocks::UntilPrecise(limit) = self.rules.blocks else { return false };
        let precise = || {
            (0..self.cases.len())
                .all(|case| analysis::blocks_to_detect(so_far, case, verdict::TARGET_DIFFERENCE) == 0)
        };
        blocks >= MIN_BLOCKS && (elapsed >= limit || precise())
    }

    /// Prepares a run and the machine for it; `None` if that arm is left out. `ready`: the cases and arms that
    /// were prepared before, so that their notes are printed once.
    fn prepare(
        &self,
        slot: Slot,
        peak_on_base: Option<Bytes>,
        machine: &mut Machine,
        ready: &mut BTreeSet<(usize, usize)>,
        result: &mut Comparison,
    ) -> Option<Prepared> {
        if result.left_out.iter().any(|out| (out.case, out.arm) == (slot.case, slot.arm)) {
            return None;
        }
        let backing = self.design.arms[slot.arm];
        let case = &self.cases[slot.case];
        let conditions = Conditions { sizes: self.sizes, scratch: self.scratch, peak_on_base };
        let prepared = case.workload.prepare(backing, &conditions).and_then(|prepared| {
            if backing == Backing::Thp {
                machine.provide_thp(prepared.shared_memory)?;
            }
            machine.provide_pools(&prepared.pools, self.interrupt)?;
            Ok(prepared)
        });
        match prepared {
            Ok(prepared) => {
                if ready.insert((slot.case, slot.arm)) && !prepared.notes.is_empty() {
                    result.notes.push(format!("{}: {}", self.describe(slot), prepared.notes.join("; ")));
                }
                Some(prepared)
            }
            Err(reason) => {
                result.left_out.push(LeftOut { case: slot.case, arm: slot.arm, reason: reason.into() });
                None
            }
        }
    }

    fn run(
        &self,
        slot: Slot,
        prepared: &Prepared,
        machine: &Machine,
    ) -> Result<(Round, Vec<Figure>), ExperimentError> {
        let what = self.describe(slot);
        let launch = machine.mark(prepared.launch.clone());
        if let RegionOfInterest::JavaHeap(log) = &prepared.region {
            // The log of the previous run contains the addresses of another heap.
            let _ = fs::remove_file(log);
        }
        // Before each run, because a run that allocates and frees memory makes free memory contiguous.
        let mut held = self.fragment(slot)?;
        let mut observer = Observer::new(self.root, prepared.region.clone(), self.sizes.thp);
        let before = VmStat::read(self.root).ok();
        let execution =
            execution::run(&launch, &mut observer, self.scratch, self.rules.timeout, self.interrupt)
                .map_err(|source| ExperimentError::execution(&what, source))?;
        let given_up = held.as_mut().is_some_and(|held| !held.is_held());
        let huge_pages_left = held.as_ref().map(|held| held.outcome.blocks_left.0);
        drop(held);
        // A program that Ctrl-C ended has not failed.
        if self.interrupt.signal().is_some() {
            return Err(ExperimentError::Interrupted);
        }
        if let Some(failure) = execution.failure() {
            return Err(ExperimentError::run(&what, format!("the program ended with {failure}")));
        }
        let workload = &self.cases[slot.case].workload;
        let Results { figures, named_by_run, coverage } = workload
            .results(prepared, &execution, &observer)
            .map_err(|why| ExperimentError::run(&what, why))?;
        let after = VmStat::read(self.root).ok();
        let evidence = Evidence {
            coverage: coverage.known().ok_or_else(|| coverage.reason().unwrap_or_default()),
            output: &execution.output,
            thp_fallbacks: before.zip(after).and_then(|(b, a)| a.growth(&b, "thp_fault_fallback")),
            through_malloc: workload.is_asked_through_malloc(),
        };
        let arm = self.design.arms[slot.arm];
        // On fragmented memory the cost of missing huge pages is the question.
        let least = match (arm, self.fragmenter) {
            (Backing::Thp, Some(_)) => 0.0,
            _ => self.rules.least_coverage,
        };
        let mut fell_back = proof::fell_back(arm, &evidence, self.sizes, least);
        if given_up {
            let why = "the process that fragments memory was killed during the run: leave more memory to the \
                       program with --fragmented=SIZE";
            fell_back = Some(why.to_owned());
        }
        let coverage = coverage.known().and_then(Coverage::share);
        let Slot { case, arm, block } = slot;
        let round = Round { case, arm, block, fell_back, figures, coverage, huge_pages_left };
        Ok((round, named_by_run))
    }

    fn fragment(&self, slot: Slot) -> Result<Option<Held>, ExperimentError> {
        let Some(fragmenter) = self.fragmenter else { return Ok(None) };
        fragmenter.fragment(self.interrupt, &mut |_, _| {}).map(Some).map_err(|error| match error {
            HostError::Interrupted => ExperimentError::Interrupted,
            error => ExperimentError::run(&self.describe(slot), error),
        })
    }

    fn describe(&self, slot: Slot) -> String {
        let case = &self.cases[slot.case];
        let parameters: String =
            case.parameters.iter().map(|(name, value)| format!(" {name}={value}")).collect();
        format!("{}{parameters} on {}", case.workload.name, self.design.arms[slot.arm])
    }

    fn empty_comparison(&self) -> Comparison {
        let case = |case: &CaseToRun| Case {
            workload: case.workload.name.clone(),
            command: case.command.clone(),
            parameters: case.parameters.clone(),
            figures: case.workload.figures(),
        };
        Comparison {
            schema: "hugewise.compare/2".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_unix_seconds: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            machine: describe_machine(self.root),
            design: self.design.clone(),
            cases: self.cases.iter().map(case).collect(),
            backings: Vec::new(),
            left_out: Vec::new(),
            rounds: Vec::new(),
            changes: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// Puts the figures named by the first run before those of the process: the first figure decides the verdict.
fn name_figures(case: &mut Case, named: Vec<Figure>) {
    let new: Vec<Figure> = named.into_iter().filter(|figure| !case.figures.contains(figure)).collect();
    case.figures.splice(0..0, new);
}

/// The machine as described in reports.
pub fn describe_machine(root: &Root) -> comparison::Machine {
    let model_name = |text: String| {
        let value = text.lines().find_map(|line| line.strip_prefix("model name"))?;
        Some(value.trim_start_matches([' ', '\t', ':']).trim().to_owned())
    };
    comparison::Machine {
        kernel: root.read("proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
        architecture: std::env::consts::ARCH.to_owned(),
        cpu: root.read("proc/cpuinfo").ok().and_then(model_name),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        memory: meminfo::read(root).total.known().copied().unwrap_or_default(),
    }
}
