//! What an experiment needs of the machine: provided through the journal, and put back.

use std::{collections::BTreeMap, io, path::Path};

use hugewise_changes::{
    journal::{Journal, JournalError, RUN_VARIABLE, Restored},
    pool_growth::{self, Shortage},
    scratch::Scratch,
};
use hugewise_linux::{
    hugepages::thp,
    interrupt::Interrupt,
    root::Root,
    settings::Setting,
    units::{Bytes, PageSize, Pages},
};

use crate::execution::Launch;

/// Machine-wide settings for the time of an experiment.
#[derive(Debug)]
pub struct Machine {
    root: Root,
    /// Or why there is none, so that nothing can be changed.
    journal: Result<Journal, JournalError>,
    /// `MemAvailable` never goes below this.
    floor: Bytes,
    /// What was changed, for people.
    changes: Vec<String>,
}

impl Machine {
    /// With the journal in `state`, where this process may have one.
    ///
    /// A journal that another process holds, or left unfinished, is an error: its settings are not
    /// those of a machine at rest. Without the right to keep one, nothing is changed.
    pub fn open(root: &Root, state: &Path, purpose: &str, floor: Bytes) -> Result<Machine, JournalError> {
        match Journal::open(root, state, purpose) {
            Err(error @ (JournalError::Busy(_) | JournalError::Unfinished(_))) => Err(error),
            journal => Ok(Machine { root: root.clone(), journal, floor, changes: Vec::new() }),
        }
    }

    /// A private folder, which vanishes with the journal, after a SIGKILL too; without a journal, one
    /// of its own.
    pub fn scratch(&self) -> io::Result<Scratch> {
        Scratch::of(self.journal.as_ref().ok())
    }

    /// Marks a process to be started as ours, so that `restore` finds it if we are killed.
    #[must_use]
    pub fn mark(&self, mut launch: Launch) -> Launch {
        if let Ok(journal) = &self.journal {
            launch.environment.push((RUN_VARIABLE.to_owned(), Some(journal.run_id().into())));
        }
        launch
    }

    /// What was changed, for people.
    #[must_use]
    pub fn changes(&self) -> &[String] {
        &self.changes
    }

    /// Makes the pools large enough, or says why they are not.
    pub fn provide_pools(
        &mut self,
        pools: &BTreeMap<PageSize, Bytes>,
        interrupt: &Interrupt,
    ) -> Result<(), String> {
        for (&size, bytes) in pools {
            let wanted = bytes.pages_needed(size);
            if pool_growth::pool(&self.root, size).is_ok_and(|pool| pool.available() >= wanted) {
                continue;
            }
            let pool = Setting::Pool { page_size: size, node: None };
            let journal = self.journal.as_mut().map_err(|error| refused(&pool, error))?;
            match pool_growth::grow(&self.root, journal, size, wanted, self.floor, interrupt) {
                Ok(Pages(0)) => {}
                Ok(grown) => self.changes.push(format!("pool of {size} pages: {grown} more")),
                Err(Shortage::Journal(error)) => return Err(refused(&pool, &error)),
                Err(shortage) => return Err(shortage.to_string()),
            }
        }
        Ok(())
    }

    /// Makes sure that the kernel makes transparent huge pages where it is advised to, or says why
    /// it does not; of shared memory too if `shared`.
    pub fn provide_thp(&mut self, shared: bool) -> Result<(), String> {
        let thp = thp::read(&self.root);
        let decides = |path: &Path, of_all: &Path| {
            // The size's own setting, or that of all sizes that inherit.
            if path == of_all { None } else { thp.pmd_size.known().copied() }
        };
        if let Some(("never", path)) = thp.pmd_enabled() {
            let page_size = decides(&path, &thp::path("enabled"));
            self.switch(Setting::ThpEnabled { page_size }, "madvise")?;
        }
        if let (true, Some((now @ ("never" | "deny"), path))) = (shared, thp.pmd_shmem_enabled()) {
            let page_size = decides(&path, &thp::path("shmem_enabled"));
            // `deny` of the whole machine is not lifted: somebody meant it.
            if now == "deny" {
                return Err(format!("/{} is deny, and that is left alone", path.display()));
            }
            self.switch(Setting::ShmemEnabled { page_size }, "advise")?;
        }
        Ok(())
    }

    fn switch(&mut self, setting: Setting, wanted: &str) -> Result<(), String> {
        let was = setting.read(&self.root).map_err(|error| error.to_string())?;
        let journal = self.journal.as_mut().map_err(|error| refused(&setting, error))?;
        let now = journal.set(setting, wanted).map_err(|error| refused(&setting, &error))?;
        self.changes.push(format!("{setting}: {was} → {now}"));
        Ok(())
    }

    /// Puts everything back.
    #[must_use]
    pub fn close(self) -> Restored {
        self.journal.map(Journal::close).unwrap_or_default()
    }
}

/// Why a setting was not changed, and what would help.
fn refused(setting: &Setting, error: &JournalError) -> String {
    let helps = error.what_helps();
    format!("needs a change of the {setting} (/{}){helps}: {error}", setting.path().display())
}
