//! Rounds: whole runs, in blocks in which every arm of every case runs once: from its start to its end, or in
//! turns.

mod run;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use fastrand::Rng;
use hugewise_linux::{proc::vmstat::VmStat, reading::Reading, units::Bytes};

use crate::{
    analysis,
    comparison::{Comparison, Round},
    execution::{ExecutionError, Output},
    experiment::{Experiment, ExperimentError, Progress},
    host_memory,
    machine::{Machine, available_memory},
    schedule::{self, Slot},
    stopping::{Blocks, MIN_BLOCKS, TimeLimit},
    turns::{
        obstacle,
        sliced::{self, ToRun},
    },
    workload::{Conditions, is_of_pauses},
};

const GOT_BACK: &str = "the host of this virtual machine takes back free memory (free page reporting): before the runs, \
                        hugewise populated and freed memory, so that they do not wait for it";

/// The state of an experiment of whole runs.
struct Rounds {
    /// Memory on base pages for which a pool must have room, for each program of each case.
    memory_on_base: Vec<Vec<Option<Bytes>>>,
    /// Cases and arms that were prepared before.
    ready: BTreeSet<(usize, usize)>,
    time: TimeLimit,
    /// Whether the runs take turns, for each case; `None` before its first block.
    turns: Vec<Option<bool>>,
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
            memory_on_base: self.cases.iter().map(|case| vec![None; case.programs.len()]).collect(),
            ready: BTreeSet::new(),
            time: TimeLimit::new(begin, self.rules.blocks),
            turns: vec![None; cases],
        };
        let mut slots = schedule::warm_ups(cases, arms, warm_up);
        slots.extend(schedule::blocks(cases, arms, most, self.design.seed));
        for (index, block) in slots.chunks(cases * arms).enumerate() {
            if !rounds.time.permits_block() || index >= warm_up && self.suffices(index - warm_up, result) {
                break;
            }
            let start = Instant::now();
            let total = (warm_up + fewest).max(index + 1) * block.len();
            let mut done = index * block.len();
            for of_case in block.chunks(arms) {
                let mut begun = |slot: Slot| {
                    progress.run(done, total, &self.describe(slot));
                    done += 1;
                };
                match self.run_block(of_case, &mut rounds, machine, result, &mut begun) {
                    Err(ExperimentError::OutOfTime) => {
                        if index < warm_up {
                            let note = "the time limit ended a warm-up: give --rounds or a longer --max-time";
                            result.notes.push(note.to_owned());
                        }
                        return Ok(());
                    }
                    done => done?,
                }
            }
            rounds.time.block_took(start.elapsed());
            result.design.turns = rounds.turns.contains(&Some(true));
            if index == 0 {
                progress.announce(&rounds.time.estimate("run", block.len()));
            }
        }
        progress.run(1, 1, "");
        Ok(())
    }

    /// One block of a case, or one warm-up of each of its arms.
    fn run_block(
        &self,
        slots: &[Slot],
        rounds: &mut Rounds,
        machine: &mut Machine,
        result: &mut Comparison,
        begun: &mut dyn FnMut(Slot),
    ) -> Result<(), ExperimentError> {
        let Some(first) = slots.first() else { return Ok(()) };
        if first.block.is_some() && self.rules.turns {
            let takes_turns =
                *rounds.turns[first.case].get_or_insert_with(|| self.permits_turns(first.case, result));
            if takes_turns {
                slots.iter().for_each(|slot| begun(*slot));
                self.get_memory_back(slots, &rounds.time, result);
                match self.run_in_turns(slots, rounds, machine, result) {
                    // Two runs of the command may need the same file or port.
                    Err(error @ (ExperimentError::Run { .. } | ExperimentError::Execution { .. }))
                        if !error.is_timeout() =>
                    {
                        rounds.turns[first.case] = Some(false);
                        result.rounds.retain(|round| (round.case, round.block) != (first.case, first.block));
                        let why = format!("in turns, one failed: {error}");
                        result.notes.push(obstacle::note(&self.cases[first.case].name(), &why));
                    }
                    done => return done,
                }
            }
        }
        for slot in slots {
            begun(*slot);
            self.get_memory_back(std::slice::from_ref(slot), &rounds.time, result);
            self.run_slot(*slot, rounds, machine, result)?;
        }
        Ok(())
    }

    /// Gets the memory of runs back from the host, as far as their backings were run before, so that none of them
    /// waits for it. Not with fragmented memory, which this would change.
    fn get_memory_back(&self, slots: &[Slot], time: &TimeLimit, result: &mut Comparison) {
        if !result.machine.host_takes_back_free_memory || self.fragmenter.is_some() {
            return;
        }
        let is_of_block =
            |round: &&Round| slots.iter().any(|slot| (slot.case, slot.arm) == (round.case, round.arm));
        let bytes = obstacle::memory_of_block(result.rounds.iter().filter(is_of_block));
        let has_time = || time.left().is_none_or(|left| !left.is_zero());
        let go_on = || self.interrupt.signal().is_none() && has_time();
        let Reading::Known(available) = available_memory(self.root) else { return };
        let is_populated = bytes > Bytes::ZERO && host_memory::get_back(bytes, available, &go_on).is_ok();
        if is_populated && !result.notes.iter().any(|note| note == GOT_BACK) {
            result.notes.push(GOT_BACK.to_owned());
        }
    }

    /// Whether the runs of a case can take turns; if not, a note says why.
    fn permits_turns(&self, case: usize, result: &mut Comparison) -> bool {
        let figure = result.cases[case].figures.first().map(|figure| figure.name.as_str());
        let is_warm_up = |round: &&Round| round.case == case && round.block.is_none();
        let warm_ups: Vec<&Round> = result.rounds.iter().filter(is_warm_up).collect();
        let obstacle = obstacle::obstacle(figure, &warm_ups, &available_memory(self.root));
        if let Some(obstacle) = &obstacle {
            result.notes.push(obstacle::note(&self.cases[case].name(), obstacle));
        }
        obstacle.is_none()
    }

    /// The runs of a block in turns.
    fn run_in_turns(
        &self,
        slots: &[Slot],
        rounds: &mut Rounds,
        machine: &mut Machine,
        result: &mut Comparison,
    ) -> Result<(), ExperimentError> {
        let (mut pools, mut prepared, mut runs) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        for &slot in slots {
            let scratch = self.folder_of(slot)?;
            let memory_on_base = rounds.memory_on_base[slot.case][0];
            let conditions =
                Conditions { sizes: self.sizes, scratch: &scratch, memory_on_base, session: None };
            let ready = self.prepare(slot, &conditions, &mut pools, machine, &mut rounds.ready, result);
            let Some(ready) = ready else { continue };
            let output = Output::in_folder(&scratch)
                .map_err(|error| ExperimentError::run(&self.describe(slot), error))?;
            runs.push(ToRun {
                slot,
                launch: machine.mark(ready.launch.clone()),
                observer: self.observer(&ready),
                output,
                expected: sliced::expected(result, slot),
            });
            prepared.insert(slot.arm, ready);
        }
        let before = VmStat::read(self.root).ok();
        let go_on = |active: Duration| match self.rules.timeout.filter(|limit| active >= *limit) {
            _ if self.interrupt.signal().is_some() => Err(ExecutionError::Interrupted),
            Some(limit) => Err(ExecutionError::TimedOut { limit, output: String::new() }),
            None if rounds.time.left().is_some_and(|left| left.is_zero()) => Err(ExecutionError::OutOfTime),
            None => Ok(()),
        };
        let mut random = Rng::with_seed(self.design.seed ^ slots[0].block.unwrap_or_default() as u64);
        let ended = sliced::take_turns(runs, self.root, &mut random, &go_on)
            .map_err(|error| ExperimentError::execution(&self.describe(error.slot), error.source))?;
        let failures = before.zip(VmStat::read(self.root).ok());
        let thp_fallbacks = failures.and_then(|(before, after)| after.growth(&before, "thp_fault_fallback"));
        for (slot, execution, observer) in ended {
            let Some(prepared) = prepared.get(&slot.arm) else { continue };
            let (mut round, _) = self.judge(slot, prepared, &execution, &observer, thp_fallbacks)?;
            // A pause that contains a stop has no meaning.
            round.figures.retain(|name, _| !is_of_pauses(name));
            result.rounds.push(round);
        }
        Ok(())
    }

    /// Whether the blocks so far are enough.
    fn suffices(&self, blocks: usize, so_far: &Comparison) -> bool {
        let decided = || (0..self.cases.len()).all(|case| analysis::suffices(so_far, case));
        matches!(self.rules.blocks, Blocks::UntilDecided(_)) && blocks >= MIN_BLOCKS && decided()
    }
}
