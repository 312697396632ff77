//! Settings that stay after `hugewise apply`.

use hugewise_linux::root::{ReadError, Root};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Entry, Record};

/// The changes of all `apply` calls of one boot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct AppliedSettings {
    /// The boot id when the settings were changed.
    pub boot_id: String,
    /// The run id of the last journal moved here. A journal with this run id is finished.
    pub run_id: String,
    /// The changed settings, in the order of their first change.
    pub entries: Vec<AppliedSetting>,
}

/// A setting that `apply` changed: its values before the first and after the last `apply`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AppliedSetting {
    /// The setting and its value before.
    #[serde(flatten)]
    pub entry: Entry,
    /// The value that the last `apply` left.
    pub now: String,
    /// True while `restore` undoes this setting. If that `restore` is killed, the next one overwrites any
    /// value of the setting.
    #[serde(default, skip_serializing_if = "is_false")]
    pub undoing: bool,
}

/// A setting that changed after `apply`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ChangedSince {
    /// The setting, with its values before and after `apply`.
    #[serde(flatten)]
    pub kept: AppliedSetting,
    /// The current value.
    pub reads: String,
}

impl AppliedSettings {
    /// Merges the changes of `record` into those of `earlier`.
    pub(super) fn after(
        root: &Root,
        earlier: Option<AppliedSettings>,
        record: &Record,
    ) -> Result<AppliedSettings, ReadError> {
        let earlier = earlier.filter(|applied| applied.boot_id == record.boot_id);
        let mut entries = earlier.map(|applied| applied.entries).unwrap_or_default();
        for entry in &record.entries {
            let now = entry.setting.read(root)?;
            match entries.iter_mut().find(|kept| kept.entry.setting == entry.setting) {
                Some(kept) => (kept.now, kept.undoing) = (now, false),
                None => entries.push(AppliedSetting { entry: entry.clone(), now, undoing: false }),
            }
        }
        entries.retain(|kept| kept.undoing || kept.now != kept.entry.was);
        Ok(AppliedSettings { boot_id: record.boot_id.clone(), run_id: record.run_id.clone(), entries })
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // Serde passes a reference.
fn is_false(value: &bool) -> bool {
    !*value
}
