//! A systemd service during an experiment.

use std::{io, path::Path};

use hugewise_changes::{drop_in::DropInOwner, journal::UnitChange};
use hugewise_linux::systemd::{Unit, systemctl};

use super::guard::{Guard, Work};
use crate::machine::Machine;

/// A service that does not run during an experiment, but for its rounds.
#[derive(Debug)]
pub struct TakenUnit {
    guard: Guard,
}

impl TakenUnit {
    /// Saves the service to the journal and stops it. It is started again as it was when the journal is closed, when this
    /// process is killed, or by `restore`.
    ///
    /// `program`: this program.
    pub fn take(unit: &Unit, program: &Path, machine: &mut Machine) -> io::Result<TakenUnit> {
        let change = UnitChange { unit: unit.clone(), drop_in: DropInOwner::Compare, was_running: true };
        machine.note_unit(change.clone()).map_err(|reason| io::Error::other(reason.to_string()))?;
        let work = Work { unit: Some(change), journal: machine.place(), ..Work::default() };
        let taken = TakenUnit { guard: Guard::start(program, &work)? };
        systemctl(&["stop", unit.name()])?;
        Ok(taken)
    }

    /// Ends the guard, after the journal was closed.
    pub fn release(self) {
        self.guard.release();
    }
}
