//! Carries out a [`Difference`] through the journal.

use std::path::Path;

use hugewise_linux::{
    interrupt::Interrupt,
    root::{ReadError, Root},
    settings::Setting,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    difference::{Difference, SettingChange, pages},
    journal::{Journal, JournalError, Restored},
    pool_growth::{self, Shortage},
};

/// Writes changes and holds the journal. Dropping it without [`Writer::keep`] restores every setting.
#[derive(Debug)]
pub struct Writer {
    root: Root,
    journal: Journal,
}

/// A change and its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ChangeResult {
    /// The requested change.
    #[serde(flatten)]
    pub change: SettingChange,
    /// The value read back after the change; `null` if nothing was written.
    pub reached: Option<String>,
    /// Why `reached` differs from the requested value; `null` if it does not.
    pub shortage: Option<String>,
}

impl ChangeResult {
    /// The result for a change that was not written, for example in a dry run.
    pub fn not_applied(change: &SettingChange) -> ChangeResult {
        ChangeResult { change: change.clone(), reached: None, shortage: None }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The setting changed between [`Difference::read`] and the write, by a program that does not lock the
    /// journal.
    #[error(
        "the {setting} changed from {from} to {now} since this command read it: another program sets it; try \
         again"
    )]
    Changed {
        setting: Setting,
        /// The value when the difference was read.
        from: String,
        /// The value just before the write.
        now: String,
    },
    #[error(transparent)]
    Pool(#[from] Shortage),
    /// The journal could not be written, or the kernel refused the value.
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl WriteError {
    /// The next step, starting with a separator; empty if there is none.
    pub fn next_step(&self) -> &'static str {
        match self {
            WriteError::Journal(error) | WriteError::Pool(Shortage::Journal(error)) => error.next_step(),
            _ => "",
        }
    }
}

impl Writer {
    /// Opens the journal in `dir`. `purpose` is the text shown to a second process that wants to open it.
    pub fn open(root: &Root, dir: &Path, purpose: &str) -> Result<Writer, JournalError> {
        Ok(Writer { root: root.clone(), journal: Journal::open(root, dir, purpose)? })
    }

    /// Makes the changes in order and reads each setting back. A pool that stays too small is an outcome, not
    /// an error.
    pub fn carry_out(
        &mut self,
        difference: &Difference,
        interrupt: &Interrupt,
    ) -> Result<Vec<ChangeResult>, WriteError> {
        difference.changes.iter().map(|change| self.change(change, interrupt)).collect()
    }

    fn change(&mut self, change: &SettingChange, interrupt: &Interrupt) -> Result<ChangeResult, WriteError> {
        let setting = change.setting;
        let now = setting.read(&self.root)?;
        if now != change.from {
            return Err(WriteError::Changed { setting, from: change.from.clone(), now });
        }
        let reached = match setting {
            _ if !change.is_needed() => now,
            Setting::Pool { .. } => {
                let target = pages(&change.to);
                pool_growth::resize(&self.root, &mut self.journal, setting, target, interrupt)?.to_string()
            }
            _ => self.journal.set(setting, &change.to)?,
        };
        let shortage = (reached != change.to).then(|| self.shortage(change, &reached));
        Ok(ChangeResult { change: change.clone(), reached: Some(reached), shortage })
    }

    fn shortage(&self, change: &SettingChange, reached: &str) -> String {
        match (change.setting, change.growth()) {
            (Setting::Pool { page_size, node }, Some((_, needed))) => {
                let got = pages(reached).saturating_sub(pages(&change.from));
                pool_growth::shortage(&self.root, page_size, node, got, needed).to_string()
            }
            _ => format!("wrote {}, the kernel reports {reached}", change.to),
        }
    }

    /// Closes the journal and keeps the new values; `hugewise restore` undoes them later.
    pub fn keep(self) -> Result<(), JournalError> {
        self.journal.keep()
    }

    /// Restores every setting.
    pub fn put_back(self) -> Restored {
        self.journal.close()
    }
}

#[cfg(test)]
mod tests {
    use std::{error::Error, fs};

    use hugewise_linux::{settings::Knob, testing::tree, units::Bytes};

    use super::*;
    use crate::{
        difference::{RequestedValue, SettingRequest},
        journal::{self, ForeignChanges},
    };

    const SCAN: &str = "sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs";

    #[test]
    fn changes_are_made_kept_and_undone() -> Result<(), Box<dyn Error>> {
        let (dir, root) = tree(&[
            ("proc/sys/kernel/random/boot_id", "boot-1\n"),
            ("proc/sys/kernel/random/uuid", "4f2a\n"),
            ("proc/sys/kernel/shmall", "7\n"),
            (SCAN, "10000\n"),
        ]);
        let state = dir.path().join("state");
        let scan = Setting::Khugepaged { knob: Knob::ScanSleepMillisecs };
        let request = |setting, value: &str| SettingRequest {
            setting,
            wanted: RequestedValue::Value(value.to_owned()),
            seen: None,
        };
        let requests = [request(scan, "500"), request(Setting::ShmAll, "7")];
        let difference = Difference::read(&root, &requests, Bytes::ZERO)?;
        let mut writer = Writer::open(&root, &state, "apply")?;
        let outcomes = writer.carry_out(&difference, &Interrupt::default())?;
        assert_eq!(
            outcomes.iter().map(|outcome| outcome.reached.as_deref()).collect::<Vec<_>>(),
            [Some("500"), Some("7")]
        );
        writer.keep()?;
        assert_eq!(journal::restore(&root, &state, ForeignChanges::Leave)?.undone.len(), 1);
        assert_eq!(scan.read(&root)?, "10000");

        // A program that does not take the journal changes the setting first.
        fs::write(root.path(SCAN), "9\n")?;
        let mut writer = Writer::open(&root, &state, "apply")?;
        let refused = writer.carry_out(&difference, &Interrupt::default()).err().ok_or("overwritten")?;
        assert!(refused.to_string().contains("changed from 10000 to 9 since"), "{refused}");
        drop(writer);
        assert_eq!(scan.read(&root)?, "9", "the other program's value is kept");
        Ok(())
    }
}
