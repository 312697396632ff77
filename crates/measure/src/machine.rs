//! What an experiment needs of the machine: provided through the journal, and put back.

use std::{collections::BTreeMap, path::Path};

use hugewise_kernel::{
    interrupt::Interrupt,
    journal::{Journal, JournalError, Restored},
    pool_growth::{self, Shortage},
    root::Root,
    settings::Setting,
    units::{Bytes, PageSize, Pages},
};

/// Machine-wide settings for the time of an experiment.
#[derive(Debug)]
pub struct Machine {
    root: Root,
    journal: Result<Journal, String>,
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
        let journal = match Journal::open(root, state, purpose) {
            Ok(journal) => Ok(journal),
            Err(error @ (JournalError::Busy(_) | JournalError::Unfinished(_))) => return Err(error),
            Err(error) => Err(error.to_string()),
        };
        Ok(Machine { root: root.clone(), journal, floor, changes: Vec::new() })
    }

    /// The journal, if there is one.
    #[must_use]
    pub fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref().ok()
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
            if pool_growth::available(&self.root, size).is_ok_and(|available| available >= wanted) {
                continue;
            }
            let journal = match &mut self.journal {
                Ok(journal) => journal,
                Err(reason) => return Err(no_right(&Setting::Pool { page_size: size, node: None }, reason)),
            };
            match pool_growth::grow(&self.root, journal, size, wanted, self.floor, interrupt) {
                Ok(Pages(0)) => {}
                Ok(grown) => self.changes.push(format!("pool of {size} pages: {grown} more")),
                Err(Shortage::Journal(JournalError::Write { source, .. }))
                    if source.kind() == std::io::ErrorKind::PermissionDenied =>
                {
                    return Err(no_right(
                        &Setting::Pool { page_size: size, node: None },
                        &source.to_string(),
                    ));
                }
                Err(shortage) => return Err(shortage.to_string()),
            }
        }
        Ok(())
    }

    /// Makes sure that a THP mode is not `never`, or says why it is.
    pub fn provide_mode(&mut self, setting: Setting, wanted: &str) -> Result<(), String> {
        let now = setting.read(&self.root).map_err(|error| error.to_string())?;
        if now != "never" && now != "deny" {
            return Ok(());
        }
        let journal = self.journal.as_mut().map_err(|reason| no_right(&setting, reason))?;
        journal.set(setting, wanted).map_err(|error| error.to_string())?;
        self.changes.push(format!("{setting}: {now} → {wanted}"));
        Ok(())
    }

    /// Puts everything back.
    #[must_use]
    pub fn close(self) -> Restored {
        self.journal.map(Journal::close).unwrap_or_default()
    }
}

fn no_right(setting: &Setting, reason: &str) -> String {
    format!(
        "needs a change of the {setting}, and that needs root (CAP_DAC_OVERRIDE, to write /{}): {reason}",
        setting.path()
    )
}
