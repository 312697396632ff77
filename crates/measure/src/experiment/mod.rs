//! The experiment: every case on every backing, in blocks, with a check of each run's coverage.

mod case;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use hugewise_evidence::{
    observation::Observer,
    proof::{self, Evidence},
};
use hugewise_linux::{
    hugepages::{backing::Backing, page_reporting, page_sizes::PageSizes},
    interrupt::Interrupt,
    pages::coverage::Coverage,
    proc::meminfo,
    reading::{Reading, Reason},
    root::Root,
    units::{Bytes, PageSize},
};
use hugewise_plan::malloc::OffHeap;

pub use self::case::{CaseToRun, Program};
use crate::{
    analysis,
    comparison::{
        self, Case, CaseServer, Comparison, Design, Figure, LeftOut, ProgramBacking, Round, ServerCoverage,
    },
    execution::{Execution, ExecutionError},
    fragmentation::{Fragmenter, Free},
    machine::Machine,
    schedule::Slot,
    stopping::Blocks,
    workload::{Conditions, Prepared, Results, servers},
};

/// Rules of the experiment beyond the design.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub blocks: Blocks,
    /// Whether the runs of a command take turns, if it permits that.
    pub turns: bool,
    /// Time limit of a run; a longer run is terminated, and the experiment with it.
    pub timeout: Option<Duration>,
    /// Least share of huge pages at which a run counts, 0 to 1.
    pub least_coverage: f64,
}

/// Receives the progress of the experiment.
pub trait Progress {
    /// Called once, when the time of a block is known.
    fn announce(&mut self, what: &str);
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
    /// The time limit of the experiment ended a run.
    #[error("the time limit ended a run")]
    OutOfTime,
}

impl ExperimentError {
    pub(crate) fn run(what: &str, reason: impl ToString) -> ExperimentError {
        ExperimentError::Run { what: what.to_owned(), reason: reason.to_string() }
    }

    pub(crate) fn is_timeout(&self) -> bool {
        matches!(self, ExperimentError::Execution { source: ExecutionError::TimedOut { .. }, .. })
    }

    pub(crate) fn execution(what: &str, source: ExecutionError) -> ExperimentError {
        match source {
            ExecutionError::Interrupted => ExperimentError::Interrupted,
            ExecutionError::OutOfTime => ExperimentError::OutOfTime,
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
        let conducted = if self.design.turns {
            self.take_turns(begin, machine, progress, &mut result)
        } else {
            self.run_rounds(begin, machine, progress, &mut result)
        };
        match conducted {
            Ok(()) => {}
            // The complete runs are a result.
            Err(ExperimentError::Interrupted) if result.rounds.iter().any(|round| round.block.is_some()) => {
                result.notes.push("interrupted: the result is that of the runs before the signal".to_owned());
            }
            Err(error) => return Err(error),
        }
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
        result.notes.extend(analysis::slow_populating(&result));
        result.changes = machine.changes().to_vec();
        Ok(result)
    }

    /// Prepares a run of one program: [`Experiment::prepare_all`].
    pub(crate) fn prepare(
        &self,
        slot: Slot,
        conditions: &Conditions<'_>,
        pools: &mut BTreeMap<PageSize, Bytes>,
        machine: &mut Machine,
        ready: &mut BTreeSet<(usize, usize)>,
        result: &mut Comparison,
    ) -> Option<Prepared> {
        self.prepare_all(slot, std::slice::from_ref(conditions), pools, machine, ready, result)?.pop()
    }

    /// Prepares the programs of a run, with the conditions of each. The pools must hold `pools` as well, to which the
    /// demand of the run is added. `None` if that arm is left out. `ready`: the cases and arms that were prepared
    /// before, so that their notes are printed once.
    pub(crate) fn prepare_all(
        &self,
        slot: Slot,
        conditions: &[Conditions<'_>],
        pools: &mut BTreeMap<PageSize, Bytes>,
        machine: &mut Machine,
        ready: &mut BTreeSet<(usize, usize)>,
        result: &mut Comparison,
    ) -> Option<Vec<Prepared>> {
        if result.leaves_out(slot.case, slot.arm) {
            return None;
        }
        let prepared = self.prepare_programs(slot, conditions, machine).and_then(|prepared| {
            let mut needed = pools.clone();
            for (size, bytes) in prepared.iter().flat_map(|prepared| &prepared.pools) {
                *needed.entry(*size).or_default() += *bytes;
            }
            machine.provide_pools(&needed, self.interrupt)?;
            *pools = needed;
            Ok(prepared)
        });
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(reason) => {
                result.left_out.push(LeftOut { case: slot.case, arm: slot.arm, reason: reason.into() });
                return None;
            }
        };
        if ready.insert((slot.case, slot.arm)) {
            let backings = self.design.arms[slot.arm].of_programs();
            for ((program, backing), prepared) in
                self.cases[slot.case].programs.iter().zip(backings).zip(&prepared)
            {
                let of = match program.name.as_str() {
                    "" => self.describe(slot),
                    name => format!("{name} on {backing}"),
                };
                let note = format!("{of}: {}", prepared.notes.join("; "));
                // A server has the same backing in several arms.
                if !prepared.notes.is_empty() && !result.notes.contains(&note) {
                    result.notes.push(note);
                }
            }
        }
        Some(prepared)
    }

    fn prepare_programs(
        &self,
        slot: Slot,
        conditions: &[Conditions<'_>],
        machine: &mut Machine,
    ) -> Result<Vec<Prepared>, Reason> {
        let programs = self.cases[slot.case].programs.iter();
        let backings = self.design.arms[slot.arm].of_programs();
        let mut all = Vec::new();
        for ((program, backing), conditions) in programs.zip(backings).zip(conditions) {
            let prepared = program
                .workload
                .prepare(backing, conditions)
                .map_err(|why| Reason::new(of_server(&program.name, &why.to_string())))?;
            if backing.backing == Backing::Thp || backing.off_heap == Some(OffHeap::Thp) {
                machine.provide_thp(prepared.shared_memory && backing.backing == Backing::Thp)?;
            }
            all.push(prepared);
        }
        Ok(all)
    }

    /// The round of a run of one program: [`Experiment::judge_all`].
    pub(crate) fn judge(
        &self,
        slot: Slot,
        prepared: &Prepared,
        execution: &Execution,
        observer: &Observer,
        thp_fallbacks: Option<u64>,
    ) -> Result<(Round, Vec<Figure>), ExperimentError> {
        let ended = [Ended { prepared, execution, observer }];
        let Judged { round, named_by_run, .. } = self.judge_all(slot, &ended, thp_fallbacks)?;
        Ok((round, named_by_run))
    }

    /// The round of a run that ended, with its figures, and whether it got its pages.
    pub(crate) fn judge_all(
        &self,
        slot: Slot,
        ended: &[Ended<'_>],
        thp_fallbacks: Option<u64>,
    ) -> Result<Judged, ExperimentError> {
        let what = self.describe(slot);
        let case = &self.cases[slot.case];
        // Servers have the same driver.
        if let Some(failure) = ended.first().and_then(|ended| ended.execution.failure()) {
            let who = if case.driver.is_empty() { "program" } else { "driver" };
            return Err(ExperimentError::run(&what, format!("the {who} ended with {failure}")));
        }
        let mut round = Round {
            case: slot.case,
            arm: slot.arm,
            block: slot.block,
            fell_back: None,
            figures: BTreeMap::new(),
            turns: None,
            coverage: None,
            off_heap_coverage: None,
            server_coverage: Vec::new(),
            huge_pages_left: None,
        };
        let (mut named, mut peaks, mut figures) = (Vec::new(), Vec::new(), Vec::new());
        let backings = self.design.arms[slot.arm].of_programs();
        for ((program, backing), ended) in case.programs.iter().zip(backings).zip(ended) {
            let results = program
                .workload
                .results(ended.prepared, ended.execution, ended.observer)
                .map_err(|why| ExperimentError::run(&what, of_server(&program.name, &why.to_string())))?;
            let why = self.fell_back(program, backing, ended, &results, thp_fallbacks);
            round.fell_back = round.fell_back.or(why.map(|why| of_server(&program.name, &why)));
            let coverage = results.coverage.known().and_then(Coverage::share);
            if program.name.is_empty() {
                round.coverage = coverage;
                round.off_heap_coverage = results.off_heap_coverage.known().and_then(Coverage::share);
            } else {
                round.server_coverage.push(ServerCoverage { server: program.name.clone(), coverage });
            }
            peaks.push(results.figures.get("peak_memory").map(|bytes| Bytes(*bytes as u64)));
            named.extend(results.named_by_run);
            figures.push((program.name.as_str(), results.figures));
        }
        round.figures = match (&mut figures[..], case.servers().next()) {
            ([(_, figures)], None) => std::mem::take(figures),
            (each, _) => servers::values(each, &case.workload().printed_figures()),
        };
        Ok(Judged { round, named_by_run: named, peaks })
    }

    /// Why a program did not get the pages of its backing; `None` if it did.
    fn fell_back(
        &self,
        program: &Program,
        ProgramBacking { backing, off_heap }: ProgramBacking,
        ended: &Ended<'_>,
        results: &Results,
        thp_fallbacks: Option<u64>,
    ) -> Option<String> {
        // On fragmented memory the cost of missing huge pages is the question.
        let least = match (backing, self.fragmenter) {
            (Backing::Thp, Some(_)) => 0.0,
            _ => self.rules.least_coverage,
        };
        let fell_back = |backing, coverage: &Reading<Coverage>, through_malloc| {
            let evidence = Evidence {
                coverage: coverage.known().ok_or_else(|| coverage.reason().unwrap_or_default()),
                output: &ended.execution.output,
                thp_fallbacks,
                not_taken: ended.observer.shortcoming(),
                through_malloc,
            };
            proof::fell_back(backing, &evidence, self.sizes, least)
        };
        let through_malloc = program.workload.is_asked_through_malloc(ended.observer);
        let of_heap = fell_back(backing, &results.coverage, through_malloc);
        let outside = || {
            let why = fell_back(off_heap?.into(), &results.off_heap_coverage, true)?;
            Some(format!("outside the heap, {why}"))
        };
        of_heap.or_else(outside)
    }

    /// An observer of the regions that this experiment compares.
    pub(crate) fn observer(&self, prepared: &Prepared) -> Observer {
        let observer = Observer::new(self.root, prepared.region.clone(), self.sizes.thp)
            .with_passed(prepared.passed.clone());
        if self.design.compares_off_heap() { observer.with_off_heap() } else { observer }
    }

    /// An empty folder for the files of one arm, whose process is alive at the same time as others.
    pub(crate) fn folder_of(&self, slot: Slot) -> Result<PathBuf, ExperimentError> {
        let folder = self.scratch.join(format!("arm-{}", slot.arm));
        let removed = fs::remove_dir_all(&folder).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        });
        removed.and_then(|()| fs::create_dir(&folder)).map_err(|error| {
            ExperimentError::run(&self.describe(slot), format!("{}: {error}", folder.display()))
        })?;
        Ok(folder)
    }

    pub(crate) fn describe(&self, slot: Slot) -> String {
        let case = &self.cases[slot.case];
        let parameters: String =
            case.parameters.iter().map(|(name, value)| format!(" {name}={value}")).collect();
        format!("{}{parameters} on {}", case.name(), self.design.arms[slot.arm])
    }

    fn empty_comparison(&self) -> Comparison {
        let server = |server: &Program| CaseServer {
            name: server.name.clone(),
            workload: server.workload.name.clone(),
            command: server.command.clone(),
        };
        let case = |case: &CaseToRun| {
            let servers: Vec<CaseServer> = case.servers().map(server).collect();
            let command = if servers.is_empty() { case.programs[0].command.clone() } else { Vec::new() };
            Case {
                workload: case.name(),
                embedded: case.embedded,
                command,
                servers,
                driver: case.driver.clone(),
                parameters: case.parameters.clone(),
                figures: case.figures(),
            }
        };
        Comparison {
            schema: "hugewise.compare/2".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_unix_seconds: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            machine: describe_machine(self.root),
            design: self.design.clone(),
            cases: self.cases.iter().map(case).collect(),
            backings: Vec::new(),
            effects: Vec::new(),
            left_out: Vec::new(),
            rounds: Vec::new(),
            live: None,
            changes: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// A program of a run that ended.
pub(crate) struct Ended<'a> {
    pub(crate) prepared: &'a Prepared,
    /// That of a server has the output of its driver.
    pub(crate) execution: &'a Execution,
    pub(crate) observer: &'a Observer,
}

/// What is known of a run that ended.
pub(crate) struct Judged {
    pub(crate) round: Round,
    /// The figures that it named.
    pub(crate) named_by_run: Vec<Figure>,
    /// Peak memory of each program.
    pub(crate) peaks: Vec<Option<Bytes>>,
}

/// A reason, with the server that it is about; `name` is empty for one program.
fn of_server(name: &str, reason: &str) -> String {
    if name.is_empty() { reason.to_owned() } else { format!("{name}: {reason}") }
}

/// Puts the figures named by the first run before those of the process: the first figure decides the verdict.
pub(crate) fn name_figures(case: &mut Case, named: Vec<Figure>) {
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
        host_takes_back_free_memory: page_reporting::takes_back_free_memory(root),
        random_read: None,
    }
}
