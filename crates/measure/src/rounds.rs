//! Rounds: whole runs, in blocks in which every arm of every case runs once, from its start to its end.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::{Duration, Instant},
};

use hugewise_evidence::observation::{Observer, RegionOfInterest};
use hugewise_linux::{hugepages::backing::Backing, proc::vmstat::VmStat, units::Bytes};

use crate::{
    analysis,
    comparison::{Comparison, Figure, LeftOut, Round},
    execution::{self, ExecutionError},
    experiment::{Experiment, ExperimentError, Progress, name_figures},
    fragmentation::{Held, HostError},
    machine::Machine,
    schedule::{self, Slot},
    stopping::{Blocks, MIN_BLOCKS, TimeLimit},
    workload::{Conditions, Prepared},
};

/// The state of an experiment of whole runs.
struct Rounds {
    /// Peak memory on base pages, for each case.
    peaks: Vec<Option<Bytes>>,
    /// Cases and arms that were prepared before.
    ready: BTreeSet<(usize, usize)>,
    time: TimeLimit,
}

impl Experiment<'_> {
    pub(crate) fn run_rounds(
        &self,
        begin: Instant,
        machine: &mut Machine,
        progress: &mut dyn Progress,
        result: &mut Comparison,
    ) -> Result<(), ExperimentError> {
        let (cases, arms, warm_up) = (self.cases.len(), self.design.arms.len(), self.design.warm_up);
        let (fewest, most) = self.rules.blocks.bounds();
        let mut rounds = Rounds {
            peaks: vec![None; cases],
            ready: BTreeSet::new(),
            time: TimeLimit::new(begin, self.rules.blocks),
        };
        let mut slots = schedule::warm_ups(cases, arms, warm_up);
        slots.extend(schedule::blocks(cases, arms, most, self.design.seed));
        for (index, block) in slots.chunks(cases * arms).enumerate() {
            if !rounds.time.permits_block() || index >= warm_up && self.suffices(index - warm_up, result) {
                break;
            }
            let start = Instant::now();
            for (run, slot) in block.iter().enumerate() {
                let total = (warm_up + fewest).max(index + 1) * block.len();
                progress.run(index * block.len() + run, total, &self.describe(*slot));
                match self.run_slot(*slot, &mut rounds, machine, result) {
                    Err(ExperimentError::OutOfTime) => return Ok(()),
                    done => done?,
                }
            }
            rounds.time.block_took(start.elapsed());
            if index == 0 {
                progress.announce(&rounds.time.estimate("run", block.len()));
            }
        }
        progress.run(1, 1, "");
        Ok(())
    }

    /// Whether the blocks so far are enough.
    fn suffices(&self, blocks: usize, so_far: &Comparison) -> bool {
        let decided = || (0..self.cases.len()).all(|case| analysis::suffices(so_far, case));
        matches!(self.rules.blocks, Blocks::UntilDecided(_)) && blocks >= MIN_BLOCKS && decided()
    }

    fn run_slot(
        &self,
        slot: Slot,
        rounds: &mut Rounds,
        machine: &mut Machine,
        result: &mut Comparison,
    ) -> Result<(), ExperimentError> {
        let peak_on_base = rounds.peaks[slot.case];
        let conditions = Conditions { sizes: self.sizes, scratch: self.scratch, peak_on_base };
        let pools = &mut BTreeMap::new();
        let Some(prepared) = self.prepare(slot, &conditions, pools, machine, &mut rounds.ready, result)
        else {
            return Ok(());
        };
        let left = rounds.time.left();
        let timeout = self.rules.timeout.into_iter().chain(left).min();
        let (round, named_by_run) = match self.run(slot, &prepared, machine, timeout) {
            // The workload runs on the reference but not on this backing: that is a result.
            Err(ExperimentError::Run { reason, .. }) if slot.block.is_none() && slot.arm > 0 => {
                result.left_out.push(LeftOut { case: slot.case, arm: slot.arm, reason });
                return Ok(());
            }
            Err(ExperimentError::Execution { source: ExecutionError::TimedOut { .. }, .. })
                if timeout == left && left.is_some() =>
            {
                return Err(ExperimentError::OutOfTime);
            }
            run => run?,
        };
        name_figures(&mut result.cases[slot.case], named_by_run);
        if self.design.arms[slot.arm] == Backing::Base {
            let peak = round.figures.get("peak_memory").map(|bytes| Bytes(*bytes as u64));
            rounds.peaks[slot.case] = peak.max(rounds.peaks[slot.case]);
        }
        result.rounds.push(round);
        Ok(())
    }

    fn run(
        &self,
        slot: Slot,
        prepared: &Prepared,
        machine: &Machine,
        timeout: Option<Duration>,
    ) -> Result<(Round, Vec<Figure>), ExperimentError> {
        let what = || self.describe(slot);
        let launch = machine.mark(prepared.launch.clone());
        if let RegionOfInterest::JavaHeap(log) = &prepared.region {
            // The log of the previous run contains the addresses of another heap.
            let _ = fs::remove_file(log);
        }
        // Before each run, because a run that allocates and frees memory makes free memory contiguous.
        let mut held = self.fragment(slot)?;
        let mut observer = Observer::new(self.root, prepared.region.clone(), self.sizes.thp);
        let before = VmStat::read(self.root).ok();
        let execution = execution::run(&launch, &mut observer, self.scratch, timeout, self.interrupt)
            .map_err(|source| match source {
                ExecutionError::Interrupted => ExperimentError::Interrupted,
                source => ExperimentError::Execution { what: what(), source },
            })?;
        let given_up = held.as_mut().is_some_and(|held| !held.is_held());
        let huge_pages_left = held.as_ref().map(|held| held.outcome.blocks_left.0);
        drop(held);
        // A program that Ctrl-C ended has not failed.
        if self.interrupt.signal().is_some() {
            return Err(ExperimentError::Interrupted);
        }
        let failures = before.zip(VmStat::read(self.root).ok());
        let thp_fallbacks = failures.and_then(|(before, after)| after.growth(&before, "thp_fault_fallback"));
        let (mut round, named_by_run) = self.judge(slot, prepared, &execution, &observer, thp_fallbacks)?;
        round.huge_pages_left = huge_pages_left;
        if given_up {
            let why = "the process that fragments memory was killed during the run: leave more memory to the \
                       program with --fragmented=SIZE";
            round.fell_back = Some(why.to_owned());
        }
        Ok((round, named_by_run))
    }

    fn fragment(&self, slot: Slot) -> Result<Option<Held>, ExperimentError> {
        let Some(fragmenter) = self.fragmenter else { return Ok(None) };
        fragmenter.fragment(self.interrupt, &mut |_, _| {}).map(Some).map_err(|error| match error {
            HostError::Interrupted => ExperimentError::Interrupted,
            error => ExperimentError::Run { what: self.describe(slot), reason: error.to_string() },
        })
    }
}
