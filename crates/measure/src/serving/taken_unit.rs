//! A systemd service during an experiment.

use std::{io, path::Path};

use hugewise_linux::systemd::{Unit, systemctl};

use super::{
    guard::{Guard, Work},
    unit::DropIn,
};

/// A service that does not run during an experiment, but for its rounds.
#[derive(Debug)]
pub struct TakenUnit {
    unit: Unit,
    guard: Guard,
}

impl TakenUnit {
    /// Stops the service. It is started again as it was by [`TakenUnit::give_back`], or when this process is killed.
    ///
    /// `program`: this program.
    pub fn take(unit: &Unit, program: &Path) -> io::Result<TakenUnit> {
        let work = Work { unit: Some(unit.clone()), ..Work::default() };
        let taken = TakenUnit { unit: unit.clone(), guard: Guard::start(program, &work)? };
        systemctl(&["stop", unit.name()])?;
        Ok(taken)
    }

    pub fn give_back(self) -> io::Result<()> {
        DropIn::of_compare(&self.unit).undo()?;
        self.guard.release();
        Ok(())
    }
}
