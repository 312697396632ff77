//! Machine-wide settings of an experiment, changed through the journal and restored.

use std::{collections::BTreeMap, io, path::Path};

use hugewise_changes::{
    journal::{Journal, JournalError, JournalPlace, ProcessMemory, RUN_VARIABLE, Restored, UnitChange},
    pool_growth::{self, Shortage},
    scratch::Scratch,
};
use hugewise_linux::{
    cgroup,
    hugepages::{backing::Backing, page_sizes::PageSizes, thp},
    interrupt::Interrupt,
    proc::meminfo,
    reading::{Reading, Reason},
    root::Root,
    settings::Setting,
    units::{Bytes, PageSize, Pages},
};

use crate::execution::Launch;

/// Machine-wide settings for the duration of an experiment.
#[derive(Debug)]
pub struct Machine {
    root: Root,
    /// The journal, or why there is none; without one, nothing can be changed.
    journal: Result<Journal, JournalError>,
    /// Lower limit of `MemAvailable` when pools grow.
    floor: Bytes,
    /// The changes made so far, as text.
    changes: Vec<String>,
}

impl Machine {
    /// Opens the journal in `state`; if this process may not keep one, nothing is changed.
    ///
    /// A journal that another process holds, or that was left unfinished, is an error: the current settings
    /// are not those of a machine at rest.
    pub fn open(root: &Root, state: &Path, purpose: &str, floor: Bytes) -> Result<Machine, JournalError> {
        match Journal::open(root, state, purpose) {
            Err(error) if error.is_of_another() => Err(error),
            journal => Ok(Machine { root: root.clone(), journal, floor, changes: Vec::new() }),
        }
    }

    /// A private directory that is removed with the journal, after a SIGKILL too; without a journal, a
    /// temporary one.
    pub fn scratch(&self) -> io::Result<Scratch> {
        Scratch::of(self.journal.as_ref().ok())
    }

    /// Marks a process to be started, so that `restore` finds it if this process is killed.
    pub fn mark(&self, mut launch: Launch) -> Launch {
        if let Ok(journal) = &self.journal {
            launch.environment.push((RUN_VARIABLE.to_owned(), Some(journal.run_id().into())));
        }
        launch
    }

    /// Saves the pages of a process to the journal, before its memory is moved.
    pub fn note_memory(&mut self, memory: ProcessMemory) -> Result<(), Reason> {
        let journal = self.journal.as_mut().map_err(|error| Reason::new(error.to_string()))?;
        Ok(journal.note_memory(memory)?)
    }

    /// Removes memory that is as it is to stay from the journal.
    pub fn forget_memory(&mut self, memory: &ProcessMemory) -> Result<(), JournalError> {
        self.journal.as_mut().map_or(Ok(()), |journal| journal.forget_memory(memory))
    }

    /// Saves a service to the journal, before it is stopped.
    pub fn note_unit(&mut self, change: UnitChange) -> Result<(), Reason> {
        let journal = self.journal.as_mut().map_err(|error| Reason::new(error.to_string()))?;
        Ok(journal.note_unit(change)?)
    }

    /// The folder of the journal and the id of this run, which are known without its lock.
    pub fn place(&self) -> Option<JournalPlace> {
        self.journal.as_ref().ok().map(Journal::place)
    }

    pub fn changes(&self) -> &[String] {
        &self.changes
    }

    /// Provides pages for `bytes` of private memory on a backing; the error says why that failed.
    pub fn provide(
        &mut self,
        backing: Backing,
        bytes: Bytes,
        sizes: &PageSizes,
        interrupt: &Interrupt,
    ) -> Result<(), Reason> {
        if let Some(missing) = sizes.missing(backing) {
            return Reason::err(missing);
        }
        match (backing, sizes.huge_page_of(backing)) {
            (Backing::Thp, _) => self.provide_thp(false),
            (Backing::Hugetlb(_) | Backing::Shm(_), Some(size)) => match bytes.align_up(size) {
                Some(needed) => self.provide_pools(&BTreeMap::from([(size, needed)]), interrupt),
                None => Reason::err("the requested memory exceeds the address space of this machine"),
            },
            _ => Ok(()),
        }
    }

    /// Grows the pools as needed; the error says why that failed.
    pub fn provide_pools(
        &mut self,
        pools: &BTreeMap<PageSize, Bytes>,
        interrupt: &Interrupt,
    ) -> Result<(), Reason> {
        for (&size, bytes) in pools {
            let wanted = bytes.pages_needed(size);
            if pool_growth::pool(&self.root, size).is_ok_and(|pool| pool.available() >= wanted) {
                continue;
            }
            let pool = Setting::Pool { page_size: size, node: None };
            let journal = self.journal.as_mut().map_err(|error| refused(&pool, error))?;
            match pool_growth::grow(&self.root, journal, size, wanted, self.floor, interrupt) {
                Ok(Pages(0)) => {}
                Ok(grown) => self.changes.push(format!(
                    "pool of {size} pages: {grown} more; other programs could not use these {}",
                    grown * size
                )),
                Err(Shortage::Journal(error)) => return Err(refused(&pool, &error)),
                Err(shortage) => return Err(shortage.into()),
            }
        }
        Ok(())
    }

    /// Enables THP for memory with `MADV_HUGEPAGE`, and for shared memory if `shared`; the error says why
    /// that failed.
    pub fn provide_thp(&mut self, shared: bool) -> Result<(), Reason> {
        let thp = thp::read(&self.root);
        // The setting of the PMD size itself, or the one that all inheriting sizes share.
        let decides = |path: &Path, name| thp.pmd_size.known().copied().filter(|_| path != thp::path(name));
        if let Some(("never", path)) = thp.pmd_enabled() {
            let page_size = decides(&path, "enabled");
            self.switch(Setting::ThpEnabled { page_size }, "madvise")?;
        }
        if let (true, Some((now @ ("never" | "deny"), path))) = (shared, thp.pmd_shmem_enabled()) {
            let page_size = decides(&path, "shmem_enabled");
            // A machine-wide `deny` is a deliberate choice of the administrator.
            if now == "deny" {
                return Reason::err(format!("/{} is deny, which hugewise does not override", path.display()));
            }
            self.switch(Setting::ShmemEnabled { page_size }, "advise")?;
        }
        Ok(())
    }

    fn switch(&mut self, setting: Setting, wanted: &str) -> Result<(), Reason> {
        let was = setting.read(&self.root)?;
        let journal = self.journal.as_mut().map_err(|error| refused(&setting, error))?;
        let now = journal.set(setting, wanted).map_err(|error| refused(&setting, &error))?;
        self.changes.push(format!("{setting}: {was} → {now}"));
        Ok(())
    }

    /// Restores all settings.
    pub fn close(self) -> Restored {
        self.journal.map(Journal::close).unwrap_or_default()
    }
}

/// Why a setting was not changed, and what would help.
fn refused(setting: &Setting, error: &JournalError) -> Reason {
    let helps = error.next_step();
    Reason::new(format!("the {setting} (/{}) must be changed{helps}: {error}", setting.path().display()))
}

/// Memory available to this process: of the machine, and within the limits of its control groups.
pub fn available_memory(root: &Root) -> Reading<Bytes> {
    cgroup::read(root, &[]).available_memory(&meminfo::read(root).available)
}
