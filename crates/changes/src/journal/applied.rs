//! Changed settings, and those that stay after `hugewise apply` or after another program changed them.

use hugewise_linux::{root::Root, settings::Setting};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Entry, ForeignChanges, Record};

/// The changes of all `apply` calls of one boot, and changes of other commands that they could not undo because
/// another program changed the setting meanwhile.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct AppliedSettings {
    /// The boot id when the settings were changed.
    pub boot_id: String,
    /// The run id of the last journal moved here. A journal with this run id is finished.
    pub run_id: String,
    /// The changed settings, in the order of their first change.
    pub entries: Vec<ChangedSetting>,
    /// Entries that could not be read, as they were found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Value>,
}

/// A setting that Hugewise changed: its value before the first change, and the values that its changes can
/// have left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangedSetting {
    /// The setting and its value before.
    #[serde(flatten)]
    pub entry: Entry,
    /// The value that the last change left; the requested value while `from` is set. `null` in a journal of
    /// an earlier version.
    #[serde(default)]
    pub now: Option<String>,
    /// The value before a change that was not read back, because the command was killed; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

impl ChangedSetting {
    /// True if a change of Hugewise can have left the value `reads`; false if another program wrote it. A
    /// kill can leave a pool at any size between the old and the requested one.
    pub(super) fn can_have_left(&self, reads: &str) -> bool {
        let Some(now) = &self.now else { return true };
        let is_between = |from: &String| match [from, now].map(|size| size.parse::<u64>()) {
            [Ok(a), Ok(b)] if matches!(self.entry.setting, Setting::Pool { .. }) => {
                reads.parse().is_ok_and(|reads| (a.min(b)..=a.max(b)).contains(&reads))
            }
            _ => reads == from,
        };
        reads == now || reads == self.entry.was || self.from.as_ref().is_some_and(is_between)
    }

    /// Divides settings into those to restore, marked as being restored, and those that another program
    /// changed. An earlier `restore` that could not remove the journal left the values before the changes of
    /// `earlier`.
    pub(super) fn divide(
        root: &Root,
        settings: Vec<ChangedSetting>,
        earlier: &[ChangedSetting],
        others: ForeignChanges,
    ) -> (Vec<ChangedSetting>, Vec<ChangedSince>) {
        let (mut ours, mut foreign) = (Vec::new(), Vec::new());
        let is_ours = |kept: &ChangedSetting, reads: &String| {
            let before = |earlier: &Entry| earlier.setting == kept.entry.setting && earlier.was == *reads;
            kept.can_have_left(reads) || earlier.iter().any(|earlier| before(&earlier.entry))
        };
        for mut kept in settings {
            match kept.entry.setting.read(root) {
                Ok(reads) if others == ForeignChanges::Leave && !is_ours(&kept, &reads) => {
                    foreign.push(ChangedSince { kept, reads });
                }
                Ok(reads) => {
                    (kept.now, kept.from) = (Some(kept.entry.was.clone()), Some(reads));
                    ours.push(kept);
                }
                // Writing it will fail too, with the reason.
                Err(_) => ours.push(kept),
            }
        }
        (ours, foreign)
    }
}

/// A setting that another program changed after Hugewise had changed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ChangedSince {
    /// The setting, with its values before and after the change.
    #[serde(flatten)]
    pub kept: ChangedSetting,
    /// The current value.
    pub reads: String,
}

impl AppliedSettings {
    /// Whether nothing is left to restore.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.unreadable.is_empty()
    }

    /// Merges `changes`, all or some of those of `record`, into those of `earlier`.
    pub(super) fn with(
        earlier: Option<AppliedSettings>,
        record: &Record,
        changes: impl IntoIterator<Item = ChangedSetting>,
    ) -> AppliedSettings {
        let earlier = earlier.filter(|applied| applied.boot_id == record.boot_id);
        let (mut entries, unreadable) =
            earlier.map(|applied| (applied.entries, applied.unreadable)).unwrap_or_default();
        for change in changes {
            match entries.iter_mut().find(|kept| kept.entry.setting == change.entry.setting) {
                Some(kept) => (kept.now, kept.from) = (change.now, change.from),
                None => entries.push(change),
            }
        }
        entries.retain(|kept| kept.from.is_some() || kept.now.as_ref() != Some(&kept.entry.was));
        AppliedSettings {
            boot_id: record.boot_id.clone(),
            run_id: record.run_id.clone(),
            entries,
            unreadable,
        }
    }
}
