//! A command in turns: the runs of a block are alive at once, one at a time goes on, and the others are
//! stopped.
//!
//! The figure of a run is the time in which it was not stopped. So all runs of a block meet the same load of
//! the host.

use std::{
    fs::File,
    io,
    process::Stdio,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use fastrand::Rng;
use hugewise_evidence::observation::Observer;
use hugewise_linux::{
    proc::{task_stat::TaskStat, tree},
    root::Root,
    sys::process::{GroupLeader, monotonic_ns},
};

use crate::{
    comparison::{Comparison, Round},
    execution::{Execution, ExecutionError, Launch, Output, sample_at_exits},
    schedule::Slot,
};

/// Time of a turn of the arm whose runs take longest.
const TURN: Duration = Duration::from_millis(200);
/// Shortest turn, of arms whose runs take less time.
const SHORTEST_TURN: Duration = Duration::from_millis(50);
/// Time limit for all processes of a run to stop, and for the end of its leader.
const STOP_LIMIT: Duration = Duration::from_secs(2);

/// A run to start.
pub(crate) struct ToRun {
    pub slot: Slot,
    pub launch: Launch,
    pub observer: Observer,
    pub output: Output,
    /// Time of a run of this arm, which decides the length of its turns.
    pub expected: Duration,
}

/// A run that has started.
struct Run {
    slot: Slot,
    child: GroupLeader,
    output: Output,
    expected: Duration,
    started_ns: u64,
    /// Time in which it was not stopped.
    active: Duration,
    /// The active time at which memory is read again.
    next_reading: Duration,
    /// Whether one of its processes is stopped for the sample before its exit.
    is_sampled: Arc<AtomicBool>,
    has_ended: bool,
}

/// An error of one of the runs.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub(crate) struct RunError {
    pub slot: Slot,
    pub source: ExecutionError,
}

/// Lets `runs` take turns until all have ended. `go_on` is called after each cycle, with the longest active
/// time.
pub(crate) fn take_turns(
    runs: Vec<ToRun>,
    root: &Root,
    random: &mut Rng,
    go_on: &dyn Fn(Duration) -> Result<(), ExecutionError>,
) -> Result<Vec<(Slot, Execution, Observer)>, RunError> {
    let (mut started, mut observers) = (Vec::new(), Vec::new());
    for run in runs {
        let slot = run.slot;
        started.push(Run::start(run.slot, &run.launch, run.output, run.expected).map_err(of(slot))?);
        observers.push(Mutex::new(run.observer));
    }
    let (done, sampled) = thread::scope(|scope| {
        let at_exits: Vec<_> = started
            .iter()
            .zip(&observers)
            .map(|(run, observer)| {
                let (pid, is_sampled) = (run.child.pid(), Arc::clone(&run.is_sampled));
                let sample = move |exiting| {
                    is_sampled.store(true, Ordering::Relaxed);
                    lock(observer).sample_before_exit(pid, exiting);
                    is_sampled.store(false, Ordering::Relaxed);
                };
                scope.spawn(move || sample_at_exits(pid, &sample))
            })
            .collect();
        let done = cycles(&mut started, &observers, root, random, go_on);
        if done.is_err() {
            started.iter().for_each(|run| run.child.kill());
        }
        (done, at_exits.into_iter().map(|thread| thread.join().unwrap_or_default()).collect::<Vec<_>>())
    });
    done?;
    let mut ended = Vec::new();
    for ((run, observer), sampled) in started.into_iter().zip(observers).zip(sampled) {
        let observer = observer.into_inner().unwrap_or_else(PoisonError::into_inner);
        let slot = run.slot;
        ended.push((slot, run.finish(sampled).map_err(of(slot))?, observer));
    }
    Ok(ended)
}

fn of(slot: Slot) -> impl Fn(ExecutionError) -> RunError {
    move |source| RunError { slot, source }
}

/// Gives each run that has not ended one turn in each cycle, in random order.
fn cycles(
    runs: &mut [Run],
    observers: &[Mutex<Observer>],
    root: &Root,
    random: &mut Rng,
    go_on: &dyn Fn(Duration) -> Result<(), ExecutionError>,
) -> Result<(), RunError> {
    let longest = runs.iter().map(|run| run.expected).max().unwrap_or_default().as_secs_f64();
    loop {
        let mut order: Vec<usize> = (0..runs.len()).filter(|&run| !runs[run].has_ended).collect();
        random.shuffle(&mut order);
        for &index in &order {
            let run = &mut runs[index];
            // In proportion, so that all end together.
            let turn = TURN.mul_f64(run.expected.as_secs_f64() / longest.max(f64::MIN_POSITIVE));
            run.take(turn.max(SHORTEST_TURN), &observers[index], root).map_err(of(run.slot))?;
        }
        let Some(&slowest) = order.iter().max_by_key(|run| runs[**run].active) else { return Ok(()) };
        let run = &mut runs[slowest];
        go_on(run.active).map_err(|error| of(run.slot)(with_output(error, &mut run.output)))?;
    }
}

/// A timeout with the output of the run.
fn with_output(error: ExecutionError, output: &mut Output) -> ExecutionError {
    match error {
        ExecutionError::TimedOut { limit, .. } => {
            ExecutionError::TimedOut { limit, output: output.read().unwrap_or_default() }
        }
        error => error,
    }
}

fn lock(observer: &Mutex<Observer>) -> MutexGuard<'_, Observer> {
    observer.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Run {
    /// Starts the run, and stops it.
    fn start(slot: Slot, launch: &Launch, output: Output, expected: Duration) -> Result<Run, ExecutionError> {
        let files: (File, File) = output.handles().map_err(failed)?;
        let (started_ns, begin) = (monotonic_ns(), Instant::now());
        let child = launch.start(Stdio::null(), files.0.into(), files.1.into())?;
        child.stop();
        let active = begin.elapsed();
        Ok(Run {
            slot,
            child,
            output,
            expected,
            started_ns,
            active,
            next_reading: Duration::ZERO,
            is_sampled: Arc::default(),
            has_ended: false,
        })
    }

    /// Lets the run go on for `turn`, or until it ends, and stops it for each sample of its memory.
    fn take(
        &mut self,
        turn: Duration,
        observer: &Mutex<Observer>,
        root: &Root,
    ) -> Result<(), ExecutionError> {
        let end = self.active + turn;
        while self.active < end && !self.has_ended {
            let is_sample_due = self.go_on_until(end, observer)?;
            if !self.has_ended {
                self.check_stopped(root)?;
            }
            if is_sample_due {
                lock(observer).sample(self.child.pid());
            }
        }
        Ok(())
    }

    /// Lets the run go on to the active time `end`, or until it ends or a sample is due, which it returns.
    fn go_on_until(&mut self, end: Duration, observer: &Mutex<Observer>) -> Result<bool, ExecutionError> {
        let (begin, before) = (Instant::now(), self.active);
        let mut is_sample_due = false;
        self.child.go_on();
        // The time of a sample before an exit is subtracted from the active time, so all of it must be in it.
        while !self.has_ended
            && (self.active < end && !is_sample_due || self.is_sampled.load(Ordering::Relaxed))
        {
            let left = end.min(self.next_reading).saturating_sub(self.active).max(Duration::from_millis(1));
            self.has_ended = self.child.wait_for_end(left).map_err(failed)?;
            self.active = before + begin.elapsed();
            if self.active >= self.next_reading && !self.has_ended {
                let mut observer = lock(observer);
                is_sample_due |= observer.is_sample_due(self.child.pid());
                self.next_reading = self.active + observer.reading_interval();
            }
        }
        if !self.has_ended {
            self.child.stop();
        }
        self.active = before + begin.elapsed();
        Ok(is_sample_due && !self.has_ended)
    }

    /// Waits until all its processes are stopped; an error if one still runs after [`STOP_LIMIT`].
    fn check_stopped(&mut self, root: &Root) -> Result<(), ExecutionError> {
        let begin = Instant::now();
        loop {
            // A process that has ended counts as stopped.
            let is_stopped = |pid: &u32| {
                let stat = root.read(format!("proc/{pid}/stat")).unwrap_or_default();
                TaskStat::parse(&stat).is_none_or(|stat| "TtZX".contains(stat.state))
            };
            let processes = tree::processes(root, self.child.pid());
            let Some(running) = processes.iter().find(|pid| !is_stopped(pid)) else { return Ok(()) };
            if begin.elapsed() > STOP_LIMIT {
                return Err(ExecutionError::Failed(format!(
                    "its process {running} cannot be stopped during the turns of the others: it left the process group, or is blocked in the kernel"
                )));
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Reaps it. `sampled`: time in which it was stopped for the samples at its exit.
    fn finish(mut self, sampled: Duration) -> Result<Execution, ExecutionError> {
        let ended = self.child.wait(STOP_LIMIT).map_err(failed)?;
        let ended = ended.ok_or_else(|| failed(io::ErrorKind::TimedOut.into()))?;
        let output = self.output.read().map_err(failed)?;
        let wall = self.active.saturating_sub(sampled);
        Ok(Execution { started_ns: self.started_ns, wall, ended, output })
    }
}

fn failed(source: io::Error) -> ExecutionError {
    ExecutionError::Io { program: "the command".to_owned(), source }
}

/// Time of a run of this arm, by its last round.
pub(crate) fn expected(comparison: &Comparison, slot: Slot) -> Duration {
    let is_of_arm = |round: &&Round| (round.case, round.arm) == (slot.case, slot.arm);
    let last = comparison.rounds.iter().rev().find(is_of_arm);
    let wall = last.and_then(|round| round.figures.get("wall").copied());
    wall.and_then(|wall| Duration::try_from_secs_f64(wall).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use hugewise_evidence::observation::RegionOfInterest;

    use super::*;

    /// Two runs of a script, in turns.
    fn two_of(script: &str) -> Result<Vec<Execution>, Box<dyn Error>> {
        let mut folders = Vec::new();
        let mut run = |arm| -> Result<ToRun, Box<dyn Error>> {
            folders.push(tempfile::tempdir()?);
            Ok(ToRun {
                slot: Slot { case: 0, arm, block: Some(0) },
                launch: Launch {
                    command: ["sh", "-c", script].map(Into::into).into(),
                    environment: Vec::new(),
                    ..Launch::default()
                },
                observer: Observer::new(&Root::live(), RegionOfInterest::Anonymous, None),
                output: Output::in_folder(folders[arm].path())?,
                expected: Duration::from_secs(1),
            })
        };
        let runs = vec![run(0)?, run(1)?];
        let ended = take_turns(runs, &Root::live(), &mut Rng::with_seed(1), &|_| Ok(()))?;
        Ok(ended.into_iter().map(|(_, execution, _)| execution).collect())
    }

    #[test]
    fn one_run_at_a_time_goes_on() -> Result<(), Box<dyn Error>> {
        let begin = Instant::now();
        let runs = two_of("i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo $i")?;
        let active: Duration = runs.iter().map(|run| run.wall).sum();
        assert!(active <= begin.elapsed(), "{active:?}");
        for run in runs {
            assert_eq!((run.ended.status.code(), run.output.as_str()), (Some(0), "300000\n"));
        }
        Ok(())
    }

    #[test]
    fn a_process_that_cannot_be_stopped_is_an_obstacle() {
        let error = two_of("setsid timeout 5 sh -c 'while :; do :; done' & wait");
        let error = error.map(|runs| runs.len()).map_err(|error| error.to_string());
        assert!(error.as_ref().is_err_and(|error| error.contains("cannot be stopped")), "{error:?}");
    }
}
