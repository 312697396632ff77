//! Settings that stay after `hugewise apply`.

use hugewise_linux::root::{ReadError, Root};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    ChangedSince, Entry, JournalError, Others, Record, Restored, boot_id, restore::put_back_one, store::Store,
};

/// The changes of all `apply` calls of one boot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Applied {
    /// The boot id when the settings were changed.
    pub boot_id: String,
    /// The run id of the last journal moved here. A journal with this run id is finished.
    pub run_id: String,
    /// The changed settings, in the order of their first change.
    pub entries: Vec<Kept>,
}

/// A setting that `apply` changed: its values before the first and after the last `apply`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Kept {
    /// The setting and its value before.
    #[serde(flatten)]
    pub entry: Entry,
    /// The value that the last `apply` left.
    pub now: String,
    /// True while `restore` undoes this setting; after a kill, any value of the setting is then restore's
    /// own.
    #[serde(default, skip_serializing_if = "is_false")]
    pub undoing: bool,
}

impl Applied {
    /// Merges the changes of `record` into those of `earlier`.
    pub(super) fn after(
        root: &Root,
        earlier: Option<Applied>,
        record: &Record,
    ) -> Result<Applied, ReadError> {
        let earlier = earlier.filter(|applied| applied.boot_id == record.boot_id);
        let mut entries = earlier.map(|applied| applied.entries).unwrap_or_default();
        for entry in &record.entries {
            let now = entry.setting.read(root)?;
            match entries.iter_mut().find(|kept| kept.entry.setting == entry.setting) {
                Some(kept) => (kept.now, kept.undoing) = (now, false),
                None => entries.push(Kept { entry: entry.clone(), now, undoing: false }),
            }
        }
        entries.retain(|kept| kept.undoing || kept.now != kept.entry.was);
        Ok(Applied { boot_id: record.boot_id.clone(), run_id: record.run_id.clone(), entries })
    }
}

/// Undoes the changes of `apply`; those that fail stay in the file.
pub(super) fn undo(
    root: &Root,
    store: &Store,
    mut applied: Applied,
    others: Others,
    done: &mut Restored,
) -> Result<(), JournalError> {
    if boot_id(root).is_ok_and(|now| now != applied.boot_id) {
        done.rebooted = true;
        store.clear_applied();
        return Ok(());
    }
    for kept in &mut applied.entries {
        let reads = kept.entry.setting.read(root);
        let is_ours = |reads: &String| *reads == kept.now || *reads == kept.entry.was;
        kept.undoing |= others == Others::Overwrite || reads.as_ref().map_or(true, is_ours);
        if !kept.undoing {
            let reads = reads.unwrap_or_default();
            done.changed_since.push(ChangedSince { kept: kept.clone(), reads });
        }
    }
    // Saved first: undoing takes time and may be killed halfway.
    store.save_applied(&applied)?;
    let (undo, mut left): (Vec<Kept>, Vec<Kept>) = applied.entries.into_iter().partition(|kept| kept.undoing);
    for kept in undo.into_iter().rev() {
        match put_back_one(root, &kept.entry) {
            Ok(()) => done.undone.push(kept.entry),
            Err(reason) => {
                done.failed.push((kept.entry.clone(), reason));
                left.push(kept);
            }
        }
    }
    if left.is_empty() {
        store.clear_applied();
        return Ok(());
    }
    applied.entries = left;
    store.save_applied(&applied)
}

#[allow(clippy::trivially_copy_pass_by_ref)] // Serde passes a reference.
fn is_false(value: &bool) -> bool {
    !*value
}
