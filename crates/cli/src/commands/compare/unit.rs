//! `--server NAME.service`: a systemd service that runs.

use anyhow::{Context, ensure};
use hugewise_linux::{hugepages::thp, root::Root, systemd::Unit};
use hugewise_measure::{
    experiment::CaseToRun,
    machine::Machine,
    serving::{Service, TakenUnit},
    workload::UnitProgram,
};

use crate::unit_program;

/// The mode in which every program has huge pages, if they are not disabled for it alone.
const ALWAYS: &str = "always";
const OF_POSTGRES: &str =
    "compare its command line, as in --server 'postgres -D FOLDER -p {port}' --user postgres";

/// Reads the program of a service that runs.
pub fn program(root: &Root, unit: &Unit) -> anyhow::Result<UnitProgram> {
    let program = unit_program::read(root, unit, OF_POSTGRES)?;
    ensure!(
        program.is_jvm || thp::read(root).enabled.known().is_none_or(|mode| mode != ALWAYS),
        "{unit} has huge pages on base, too, in the THP mode {ALWAYS}; change it for the comparison: \
         sudo hugewise apply --thp-enabled madvise"
    );
    Ok(program)
}

/// The services of an experiment, which are started as they were when the journal is closed.
pub struct Taken(Vec<TakenUnit>);

impl Taken {
    /// Stops the services of the cases.
    pub fn take(cases: &[CaseToRun], machine: &mut Machine) -> anyhow::Result<Taken> {
        let services =
            cases.iter().flat_map(|case| &case.programs).filter_map(|program| program.service.as_ref());
        let mut of_units: Vec<(&Unit, &Service)> =
            services.filter_map(|service| Some((service.unit.as_ref()?, service))).collect();
        of_units.sort_by_key(|(unit, _)| *unit);
        of_units.dedup_by_key(|(unit, _)| *unit);
        let mut taken = Taken(Vec::new());
        for (unit, service) in of_units {
            let stopped = TakenUnit::take(unit, &service.program, machine);
            taken.0.push(stopped.with_context(|| format!("{unit} could not be stopped"))?);
        }
        Ok(taken)
    }

    /// Ends the guards of the services, after the journal was closed.
    pub fn release(self) {
        self.0.into_iter().for_each(TakenUnit::release);
    }
}
