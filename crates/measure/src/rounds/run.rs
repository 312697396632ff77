//! One run of an arm: of a program, or of servers with their driver.

use std::{collections::BTreeMap, fs, time::Duration};

use hugewise_evidence::observation::{Observer, RegionOfInterest};
use hugewise_linux::{hugepages::backing::Backing, proc::vmstat::VmStat, reading::Reading, units::Bytes};

use super::Rounds;
use crate::{
    comparison::{Comparison, Figure, LeftOut, Round},
    execution::{self, Execution, ExecutionError, Launch},
    experiment::{Ended, Experiment, ExperimentError, Judged, name_figures},
    fragmentation::{Held, HostError},
    machine::{Machine, available_memory},
    schedule::Slot,
    serving::{self, Ports, Session, ToServe},
    workload::{Conditions, Prepared},
};

impl Experiment<'_> {
    /// Runs the program of a case, or its servers with their driver, unless that arm is left out.
    pub(super) fn run_slot(
        &self,
        slot: Slot,
        rounds: &mut Rounds,
        machine: &mut Machine,
        result: &mut Comparison,
    ) -> Result<(), ExperimentError> {
        let case = &self.cases[slot.case];
        if case.driver.is_empty() {
            return self.run_prepared(slot, &mut [], rounds, machine, result);
        }
        if result.leaves_out(slot.case, slot.arm) {
            return Ok(());
        }
        let mut sessions = Vec::with_capacity(case.programs.len());
        let run = self
            .open_sessions(slot, machine, &mut sessions)
            .and_then(|()| self.run_prepared(slot, &mut sessions, rounds, machine, result));
        // All of them, also after an error.
        let closed: Vec<_> = sessions.into_iter().rev().map(Session::close).collect();
        let closed = closed.into_iter().collect::<Result<(), _>>();
        run.and(closed.map_err(|error| ExperimentError::execution(&self.describe(slot), error)))
    }

    /// Chooses the ports of the servers, and runs their commands before the start.
    fn open_sessions<'s>(
        &'s self,
        slot: Slot,
        machine: &Machine,
        sessions: &mut Vec<Session<'s>>,
    ) -> Result<(), ExperimentError> {
        let case = &self.cases[slot.case];
        let failed = |error| ExperimentError::execution(&self.describe(slot), error);
        let io = |source| failed(ExecutionError::Io { program: case.name(), source });
        let names: Vec<&str> = case.programs.iter().map(|program| program.name.as_str()).collect();
        let ports = Ports::choose(&names).map_err(io)?;
        for (program, ports) in case.programs.iter().zip(ports) {
            let Some(service) = &program.service else { continue };
            let scratch = if program.name.is_empty() {
                self.scratch.to_owned()
            } else {
                self.scratch.join(format!("server-{}", program.name))
            };
            fs::create_dir_all(&scratch).map_err(io)?;
            let marked = machine.mark(Launch::default());
            sessions.push(Session::open(service, ports, marked, &scratch, self.interrupt).map_err(failed)?);
        }
        Ok(())
    }

    /// Runs the program of a case, or its servers, whose `sessions` are open.
    fn run_prepared(
        &self,
        slot: Slot,
        sessions: &mut [Session<'_>],
        rounds: &mut Rounds,
        machine: &mut Machine,
        result: &mut Comparison,
    ) -> Result<(), ExperimentError> {
        let condition = |(index, memory_on_base): (usize, &Option<Bytes>)| {
            let session = sessions.get(index);
            let scratch = session.map_or(self.scratch, |session| session.scratch.as_path());
            Conditions { sizes: self.sizes, scratch, memory_on_base: *memory_on_base, session }
        };
        let conditions: Vec<_> = rounds.memory_on_base[slot.case].iter().enumerate().map(condition).collect();
        let pools = &mut BTreeMap::new();
        let prepared = self.prepare_all(slot, &conditions, pools, machine, &mut rounds.ready, result);
        let Some(prepared) = prepared else { return Ok(()) };
        let left = rounds.time.left();
        let timeout = self.rules.timeout.into_iter().chain(left).min();
        let ran = match self.run(slot, &prepared, sessions, machine, timeout) {
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
        name_figures(&mut result.cases[slot.case], ran.named);
        let backings = self.design.arms[slot.arm].of_programs();
        let known = rounds.memory_on_base[slot.case].iter_mut();
        for ((known, backing), (peak, mapped)) in known.zip(backings).zip(ran.memory) {
            if backing == Backing::Base.into() {
                let needed = peak.map(|peak| match available_memory(self.root) {
                    Reading::Known(available) => pool_room(peak, mapped, available),
                    Reading::Unknown { .. } => peak,
                });
                *known = needed.max(*known);
            }
        }
        result.rounds.push(ran.round);
        Ok(())
    }

    fn run(
        &self,
        slot: Slot,
        prepared: &[Prepared],
        sessions: &mut [Session<'_>],
        machine: &Machine,
        timeout: Option<Duration>,
    ) -> Result<Ran, ExperimentError> {
        for prepared in prepared {
            if let RegionOfInterest::JavaHeap(log) = &prepared.region {
                // The log of the previous run contains the addresses of another heap.
                let _ = fs::remove_file(log);
            }
        }
        // Before each run, because a run that allocates and frees memory makes free memory contiguous.
        let mut held = self.fragment(slot)?;
        let mut observers: Vec<Observer> = prepared.iter().map(|prepared| self.observer(prepared)).collect();
        let launches: Vec<Launch> =
            prepared.iter().map(|prepared| machine.mark(prepared.launch.clone())).collect();
        let before = VmStat::read(self.root).ok();
        let executions = self
            .execute(slot, &launches, sessions, &mut observers, timeout)
            .map_err(|source| ExperimentError::execution(&self.describe(slot), source))?;
        let given_up = held.as_mut().is_some_and(|held| !held.is_held());
        let huge_pages_left = held.as_ref().map(|held| held.outcome.blocks_left.0);
        drop(held);
        // A program that Ctrl-C ended has not failed.
        if self.interrupt.signal().is_some() {
            return Err(ExperimentError::Interrupted);
        }
        let failures = before.zip(VmStat::read(self.root).ok());
        let thp_fallbacks = failures.and_then(|(before, after)| after.growth(&before, "thp_fault_fallback"));
        let ended = prepared.iter().zip(&executions).zip(&observers);
        let ended: Vec<Ended<'_>> =
            ended.map(|((prepared, execution), observer)| Ended { prepared, execution, observer }).collect();
        let Judged { mut round, named_by_run, peaks } = self.judge_all(slot, &ended, thp_fallbacks)?;
        round.huge_pages_left = huge_pages_left;
        if given_up {
            let why = "the process that fragments memory was killed during the run: leave more memory to the \
                       program with --fragmented=SIZE";
            round.fell_back = Some(why.to_owned());
        }
        let mapped = observers.iter().map(|observer| observer.largest_mapped);
        Ok(Ran { round, named: named_by_run, memory: peaks.into_iter().zip(mapped).collect() })
    }

    /// Runs the program, or the servers with their driver, to the end.
    fn execute(
        &self,
        slot: Slot,
        launches: &[Launch],
        sessions: &mut [Session<'_>],
        observers: &mut [Observer],
        timeout: Option<Duration>,
    ) -> Result<Vec<Execution>, ExecutionError> {
        let case = &self.cases[slot.case];
        let Some(driver) = sessions.first().map(|session| session.ports.in_words(&case.driver)) else {
            let programs = launches.iter().zip(observers);
            return programs
                .map(|(launch, observer)| {
                    execution::run(launch, observer, self.scratch, timeout, self.interrupt)
                })
                .collect();
        };
        let called =
            |name: &str| if name.is_empty() { "the server".to_owned() } else { format!("the server {name}") };
        let servers = case.programs.iter().zip(launches).zip(sessions.iter_mut().zip(observers));
        let servers = servers.map(|((program, launch), (session, observer))| ToServe {
            called: called(&program.name),
            launch: launch.clone(),
            session,
            observer,
        });
        serving::run(servers.collect(), &driver, self.scratch, timeout, self.interrupt)
    }

    fn fragment(&self, slot: Slot) -> Result<Option<Held>, ExperimentError> {
        let Some(fragmenter) = self.fragmenter else { return Ok(None) };
        fragmenter.fragment(self.interrupt, &mut |_, _| {}).map(Some).map_err(|error| match error {
            HostError::Interrupted => ExperimentError::Interrupted,
            error => ExperimentError::Run { what: self.describe(slot), reason: error.to_string() },
        })
    }
}

/// A run that counts or fell back.
struct Ran {
    round: Round,
    /// The figures that it named.
    named: Vec<Figure>,
    /// The peak memory of each program, and the largest size of its mappings.
    memory: Vec<(Option<Bytes>, Bytes)>,
}

/// Room that a pool must have for a program: the kernel reserves pages when memory is mapped, so what is mapped
/// counts, too. A program that maps more than half of the `available` memory does not touch most of it.
fn pool_room(peak: Bytes, mapped: Bytes, available: Bytes) -> Bytes {
    if mapped > Bytes(available.0 / 2) { peak } else { peak.max(mapped) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_has_room_for_what_is_mapped_but_not_for_reserved_address_space() {
        let [peak, available] = [Bytes(300), Bytes(8000)];
        assert_eq!(pool_room(peak, Bytes(1000), available), Bytes(1000));
        assert_eq!(pool_room(peak, Bytes(200), available), peak);
        assert_eq!(pool_room(peak, Bytes(1 << 40), available), peak);
    }
}
