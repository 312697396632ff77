//! A generation is a block in turns: every arm is started once, all arms take turns, and all end.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use fastrand::Rng;
use hugewise_evidence::observation::Observer;
use hugewise_linux::{
    cpu::cache,
    proc::vmstat::VmStat,
    sys::thread,
    units::{Bytes, PageSize},
};

use super::{TURN_SECONDS, arm::LiveArm, cycles};
use crate::{
    analysis,
    comparison::{Comparison, LeftOut, Turns},
    execution::ExecutionError,
    experiment::{Experiment, ExperimentError, Progress, name_figures},
    machine::Machine,
    schedule::Slot,
    statistics,
    stopping::{Blocks, DEFAULT_LIMIT, TimeLimit},
    touch::Turn,
    workload::{Conditions, Prepared},
};

/// Reads of the turn that measures how many reads a turn has.
const CALIBRATION_READS: u64 = 200_000;

/// One arm of a generation.
struct Member<'a> {
    arm: usize,
    prepared: Prepared,
    live: LiveArm<'a>,
    observer: Observer,
    /// Mean time of a read in each of its turns, in nanoseconds, one for each cycle.
    turns: Vec<f64>,
}

impl Experiment<'_> {
    /// Conducts generations of each case until it is decided or its share of the time is over.
    pub(crate) fn take_turns(
        &self,
        begin: Instant,
        machine: &mut Machine,
        progress: &mut dyn Progress,
        result: &mut Comparison,
    ) -> Result<(), ExperimentError> {
        let mut random = Rng::with_seed(self.design.seed);
        for case in 0..self.cases.len() {
            let blocks = match self.rules.blocks {
                // The cases share the time that is left.
                Blocks::UntilDecided(limit) => {
                    let left = limit.unwrap_or(DEFAULT_LIMIT).saturating_sub(begin.elapsed());
                    Blocks::UntilDecided(Some(left / (self.cases.len() - case) as u32))
                }
                exactly @ Blocks::Exactly(_) => exactly,
            };
            let (fewest, most) = blocks.bounds();
            let mut generations = Generations::new(self, case);
            let mut time = TimeLimit::new(Instant::now(), blocks);
            for block in 0..most {
                let start = Instant::now();
                if !time.permits_block() || block >= fewest && analysis::suffices(result, case) {
                    break;
                }
                generations.conduct(block, &mut random, machine, result, &mut |done| {
                    let arms = self.design.arms.len();
                    let slot = Slot { case, arm: done.min(arms - 1), block: Some(block) };
                    progress.run(block * arms + done, fewest.max(block + 1) * arms, &self.describe(slot));
                })?;
                time.block_took(start.elapsed());
                if block == 0 {
                    let estimate = time.estimate("start", self.design.arms.len());
                    progress.announce(&format!("{}: {estimate}", self.cases[case].name()));
                }
            }
        }
        progress.run(1, 1, "");
        Ok(())
    }
}

/// The generations of one case.
struct Generations<'a> {
    experiment: &'a Experiment<'a>,
    case: usize,
    /// Cases and arms that were prepared before.
    ready: BTreeSet<(usize, usize)>,
    /// The turn of every arm; `None` before the first generation.
    turn: Option<Turn>,
}

impl<'a> Generations<'a> {
    fn new(experiment: &'a Experiment<'a>, case: usize) -> Generations<'a> {
        Generations { experiment, case, ready: BTreeSet::new(), turn: None }
    }

    fn conduct(
        &mut self,
        block: usize,
        random: &mut Rng,
        machine: &mut Machine,
        result: &mut Comparison,
        started: &mut dyn FnMut(usize),
    ) -> Result<(), ExperimentError> {
        let experiment = self.experiment;
        let before = VmStat::read(experiment.root).ok();
        let start = Instant::now();
        let mut members = self.start(block, random, machine, result, started)?;
        let cpu = pin(experiment, &members, random);
        let seconds_of_start = start.elapsed().as_secs_f64();
        let turn = match self.turn {
            Some(turn) => turn,
            None => self.calibrate(&mut members)?,
        };
        self.turn = Some(turn);
        let reads = (turn.reads + turn.uncounted) as f64 / turn.reads as f64;
        let seconds_of_cycle = members.len().max(1) as f64 * TURN_SECONDS * reads;
        let ratios = analysis::ratios_of_cycles(result, self.case);
        let cycles = cycles::next(&ratios, seconds_of_start, seconds_of_cycle);
        self.take_turns(&mut members, turn, cycles, random)?;
        for member in &mut members {
            member.observer.sample(member.live.pid());
        }
        let failures = before.zip(VmStat::read(experiment.root).ok());
        let thp_fallbacks = failures.and_then(|(before, after)| after.growth(&before, "thp_fault_fallback"));
        for member in members {
            let slot = Slot { case: self.case, arm: member.arm, block: Some(block) };
            let execution = member
                .live
                .finish()
                .map_err(|source| ExperimentError::execution(&experiment.describe(slot), source))?;
            let (mut round, named_by_run) =
                experiment.judge(slot, &member.prepared, &execution, &member.observer, thp_fallbacks)?;
            name_figures(&mut result.cases[self.case], named_by_run);
            if let Some(figure) = result.cases[self.case].figures.first() {
                let middle = statistics::median(&member.turns).unwrap_or(f64::NAN);
                round.figures.insert(figure.name.clone(), middle);
                round.turns = Some(Turns { figure: figure.name.clone(), values: member.turns, cpu });
            }
            // It includes the waits for other arms.
            round.figures.remove("wall");
            result.rounds.push(round);
        }
        Ok(())
    }

    /// Starts the arms in random order.
    fn start(
        &mut self,
        block: usize,
        random: &mut Rng,
        machine: &mut Machine,
        result: &mut Comparison,
        started: &mut dyn FnMut(usize),
    ) -> Result<Vec<Member<'a>>, ExperimentError> {
        let experiment = self.experiment;
        let mut order: Vec<usize> = (0..experiment.design.arms.len()).collect();
        random.shuffle(&mut order);
        let mut pools: BTreeMap<PageSize, Bytes> = BTreeMap::new();
        let mut prepared = Vec::with_capacity(order.len());
        for arm in order {
            let slot = Slot { case: self.case, arm, block: Some(block) };
            let scratch = experiment.folder_of(slot)?;
            let conditions = Conditions {
                sizes: experiment.sizes,
                scratch: &scratch,
                memory_on_base: None,
                session: None,
            };
            let ready = experiment.prepare(slot, &conditions, &mut pools, machine, &mut self.ready, result);
            prepared.extend(ready.map(|ready| (slot, ready)));
        }
        let mut members = Vec::with_capacity(prepared.len());
        for (count, (slot, prepared)) in prepared.into_iter().enumerate() {
            started(count);
            let launch = machine.mark(prepared.launch.clone());
            let live = match LiveArm::start(&launch, experiment.rules.timeout, experiment.interrupt) {
                Ok(live) => live,
                // The workload runs on the reference but not on this backing: that is a result.
                Err(error @ ExecutionError::Failed(_)) if block == 0 && slot.arm > 0 => {
                    let reason = error.to_string();
                    result.left_out.push(LeftOut { case: slot.case, arm: slot.arm, reason });
                    continue;
                }
                Err(error) => return Err(ExperimentError::execution(&experiment.describe(slot), error)),
            };
            let observer = Observer::new(experiment.root, prepared.region.clone(), experiment.sizes.thp);
            members.push(Member { arm: slot.arm, prepared, live, observer, turns: Vec::new() });
        }
        Ok(members)
    }

    /// Gives every arm one turn in each cycle, in random order. The first cycle does not count.
    fn take_turns(
        &mut self,
        members: &mut [Member<'_>],
        turn: Turn,
        cycles: usize,
        random: &mut Rng,
    ) -> Result<(), ExperimentError> {
        let mut order: Vec<usize> = (0..members.len()).collect();
        for cycle in 0..=cycles {
            random.shuffle(&mut order);
            for &member in &order {
                let ns = self.take(&mut members[member], turn)?;
                if cycle > 0 {
                    members[member].turns.push(ns);
                }
            }
        }
        Ok(())
    }

    /// The turn that takes [`TURN_SECONDS`] on the reference.
    fn calibrate(&self, members: &mut [Member<'_>]) -> Result<Turn, ExperimentError> {
        let bytes = self.experiment.cases[self.case].workload().turns.unwrap_or_default();
        let cache = cache::last_level_size(self.experiment.root);
        let mut turn = super::turn(cache, bytes, CALIBRATION_READS);
        if let Some(reference) = members.iter_mut().min_by_key(|member| member.arm) {
            let ns = self.take(reference, turn)?;
            turn = super::turn(cache, bytes, (TURN_SECONDS * 1e9 / ns).max(1.0) as u64);
        }
        Ok(turn)
    }

    fn take(&self, member: &mut Member<'_>, turn: Turn) -> Result<f64, ExperimentError> {
        let slot = Slot { case: self.case, arm: member.arm, block: None };
        member
            .live
            .take(turn)
            .map_err(|source| ExperimentError::execution(&self.experiment.describe(slot), source))
    }
}

/// Pins all threads of all arms to one CPU, drawn anew, after their start: a JVM that sees one CPU at its
/// start has fewer GC and compiler threads. `None` if the arms cannot be pinned.
fn pin(experiment: &Experiment<'_>, members: &[Member<'_>], random: &mut Rng) -> Option<u32> {
    let allowed: Vec<u32> = thread::allowed_cpus().ok()?.into_iter().collect();
    let cpu = *allowed.get(random.usize(..allowed.len().max(1)))?;
    for member in members {
        let tasks = experiment.root.list(format!("proc/{}/task", member.live.pid())).ok()?;
        for tid in tasks.iter().filter_map(|tid| tid.parse().ok()) {
            // A thread may have ended.
            let _ = thread::set_affinity_of(tid, &BTreeSet::from([cpu]));
        }
    }
    Some(cpu)
}
