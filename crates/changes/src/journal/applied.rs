//! Settings that were changed to stay.

use hugewise_linux::root::{ReadError, Root};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    ChangedSince, Entry, JournalError, Others, Record, Restored, boot_id, restore::put_back_one, store::Store,
};

/// What `apply` made and left, over all its calls in one boot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Applied {
    /// The boot that the settings belong to.
    pub boot_id: String,
    /// The journal that was moved here last: one of this run id is finished.
    pub run_id: String,
    /// What was changed, in the order of the first change.
    pub entries: Vec<Kept>,
}

/// A setting before the first `apply`, and what the last one left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Kept {
    /// The setting, and what it was.
    #[serde(flatten)]
    pub entry: Entry,
    /// What it was left at.
    pub now: String,
    /// Is it being undone? Then whatever it reads is the work of a [`super::restore`] that was killed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub undoing: bool,
}

impl Applied {
    /// What is to be undone once the changes of `record` are kept above those of `earlier`.
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

/// Undoes what `apply` left, and keeps in the file what could not be undone.
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
    // Undoing takes a while, and may be killed half-way.
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

#[allow(clippy::trivially_copy_pass_by_ref)] // As serde calls it.
fn is_false(value: &bool) -> bool {
    !*value
}
