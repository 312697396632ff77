//! The changes of settings that meet a request. Nothing is written here: a [`Difference`] cannot write to the
//! kernel, and [`crate::apply::Writer`] carries it out.

#[cfg(test)]
mod tests;

use hugewise_linux::{
    hugepages::pools::{self, Pool},
    proc::{meminfo, overcommit},
    reading::{Reading, Reason},
    root::{ReadError, Root},
    settings::Setting,
    units::{Bytes, PageSize, Pages},
};
use schemars::JsonSchema;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingRequest {
    pub setting: Setting,
    pub wanted: RequestedValue,
    /// The value when the plan was made; `None` without a plan.
    pub seen: Option<ValueAtPlan>,
}

/// The requested value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestedValue {
    /// This value; for a pool, its number of pages.
    Value(String),
    /// Pools only: add this number of pages.
    More(Pages),
    /// Pools only: grow until this number of pages is available to new mappings.
    Available(Pages),
}

/// The value when the plan was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueAtPlan {
    Pool {
        /// All pages of the pool.
        total: Pages,
        /// Pages that a new mapping can get.
        available: Pages,
    },
    /// Any setting except a pool.
    Value(String),
}

/// A requested setting with its current and its requested value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SettingChange {
    /// The setting.
    pub setting: Setting,
    /// The current value; for a pool, its pages without the surplus pages.
    pub from: String,
    /// The requested value.
    pub to: String,
}

impl SettingChange {
    pub fn is_needed(&self) -> bool {
        self.from != self.to
    }

    /// The page size of a pool that grows and the number of missing pages. `None` for other changes.
    pub fn growth(&self) -> Option<(PageSize, Pages)> {
        let Setting::Pool { page_size, .. } = self.setting else { return None };
        let missing = pages(&self.to).saturating_sub(pages(&self.from));
        (missing > Pages(0)).then_some((page_size, missing))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Every requested setting, in the order of the writes: pools that shrink come before pools that grow.
    pub changes: Vec<SettingChange>,
    /// Reasons against the changes. The user may apply despite them.
    pub objections: Vec<String>,
    /// Differences between the plan and the machine now, and their effect.
    pub notes: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum DifferenceError {
    /// The value is invalid for this setting.
    #[error("the {setting} cannot be set: {reason}")]
    Value {
        setting: Setting,
        /// Why the value is invalid, and which values are valid.
        reason: Reason,
    },
    #[error("this machine has no {setting}: there is no /{}{has}", setting.path().display())]
    Missing {
        setting: Setting,
        /// The pools that the machine has, starting with a separator; empty if there are none.
        has: String,
    },
    /// Two requests for one setting.
    #[error("the {0} is requested twice, directly or as a part of another setting: request it once")]
    Twice(Setting),
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl Difference {
    /// Reads the current values and computes the changes. Adds an objection if less than `floor` of memory
    /// would stay available.
    pub fn read(
        root: &Root,
        requests: &[SettingRequest],
        floor: Bytes,
    ) -> Result<Difference, DifferenceError> {
        let mut difference = Difference::default();
        let mut parts = Vec::new();
        for request in requests {
            for part in request.setting.parts(root) {
                if parts.contains(&part) {
                    return Err(DifferenceError::Twice(request.setting));
                }
                parts.push(part);
            }
            difference.add(root, request)?;
        }
        difference.changes.sort_by_key(|change| match change.setting {
            Setting::Pool { .. } => 1 + u8::from(change.growth().is_some()),
            _ => 0,
        });
        difference.objections.extend(difference.below_floor(root, floor));
        difference.note_commit_limit(root);
        Ok(difference)
    }

    /// True if no setting has to change.
    pub fn is_empty(&self) -> bool {
        !self.changes.iter().any(SettingChange::is_needed)
    }

    fn add(&mut self, root: &Root, request: &SettingRequest) -> Result<(), DifferenceError> {
        let setting = request.setting;
        let from = setting.read(root).map_err(|error| missing(root, setting, error))?;
        let invalid = |reason: Reason| DifferenceError::Value { setting, reason };
        let to = match (&request.wanted, setting) {
            (RequestedValue::Value(value), _) => setting.checked(root, value)?.map_err(invalid)?,
            (RequestedValue::More(more), Setting::Pool { .. }) => (pages(&from) + *more).to_string(),
            (RequestedValue::Available(needed), Setting::Pool { page_size, node }) => {
                let pool = pools::find(root, page_size, node)?;
                self.note_pool(request, &pool);
                (pages(&from) + needed.saturating_sub(pool.available())).to_string()
            }
            (RequestedValue::More(_) | RequestedValue::Available(_), _) => {
                return Err(invalid(Reason::new("only pools take a number of pages")));
            }
        };
        if let Some(ValueAtPlan::Value(seen)) = &request.seen {
            // No objection if the setting already has the requested value.
            if *seen != from && from != to {
                self.objections.push(format!(
                    "the {setting} was {seen} when the plan was made, and is {from} now: make a new plan"
                ));
            }
        }
        self.note_pages_in_use(root, setting, &from, &to)?;
        self.changes.push(SettingChange { setting, from, to });
        Ok(())
    }

    /// Adds a note if the pool changed since the plan was made.
    fn note_pool(&mut self, request: &SettingRequest, pool: &Pool) {
        let Some(ValueAtPlan::Pool { total, available }) = request.seen else { return };
        if (total, available) != (pool.total, pool.available()) {
            self.notes.push(format!(
                "the {} had {total} pages ({available} available) when the plan was made, and has {} ({} \
                 available) now: the pages to add were counted again",
                request.setting,
                pool.total,
                pool.available()
            ));
        }
    }

    /// Adds a note on pages in use if the pool shrinks.
    fn note_pages_in_use(
        &mut self,
        root: &Root,
        setting: Setting,
        from: &str,
        to: &str,
    ) -> Result<(), ReadError> {
        let Setting::Pool { page_size, node } = setting else { return Ok(()) };
        if pages(to) >= pages(from) {
            return Ok(());
        }
        let pool = pools::find(root, page_size, node)?;
        let kept = (pool.used() + pool.reserved.unwrap_or_default()).saturating_sub(pages(to));
        if kept > Pages(0) {
            self.notes.push(format!(
                "{kept} pages of the {setting} are in use or reserved: they return to the system when their \
                 users exit"
            ));
        }
        Ok(())
    }

    /// Adds what the growth of pools means under a strict commit limit: an objection if programs have committed more
    /// than the limit would be.
    fn note_commit_limit(&mut self, root: &Root) {
        let (overcommit, meminfo) = (overcommit::read(root), meminfo::read(root));
        for (size, more) in self.changes.iter().filter_map(SettingChange::growth) {
            let Some(words) = overcommit.words_after(&meminfo, more, size) else { continue };
            let after = overcommit.limit_after(&meminfo, more, size);
            let refused =
                meminfo.committed.known().zip(after).is_some_and(|(committed, after)| *committed > after);
            let list = if refused { &mut self.objections } else { &mut self.notes };
            list.push(words);
        }
    }

    /// An objection if all pools together would leave less than `floor` of memory available.
    fn below_floor(&self, root: &Root, floor: Bytes) -> Option<String> {
        let grown: Bytes =
            self.changes.iter().filter_map(SettingChange::growth).map(|(size, more)| more * size).sum();
        if grown == Bytes::ZERO {
            return None;
        }
        let given = self.changes.iter().map(|change| match change.setting {
            Setting::Pool { page_size, .. } => {
                pages(&change.from).saturating_sub(pages(&change.to)) * page_size
            }
            _ => Bytes::ZERO,
        });
        let taken = grown.saturating_sub(given.sum());
        match meminfo::read(root).available {
            Reading::Unknown { unknown } => Some(format!("available memory is unknown: {unknown}")),
            Reading::Known(available) if available.saturating_sub(taken) < floor => Some(format!(
                "the pools would take {taken} of {available} available memory; {floor} must stay available"
            )),
            Reading::Known(_) => None,
        }
    }
}

/// The number of pages in a pool's value, which was validated before.
pub(crate) fn pages(value: &str) -> Pages {
    Pages(value.parse().unwrap_or(0))
}

/// The error for a setting that does not exist; for a pool, it lists the pools that do.
fn missing(root: &Root, setting: Setting, error: ReadError) -> DifferenceError {
    if !error.is_absent() {
        return error.into();
    }
    let listed = match setting {
        Setting::Pool { .. } | Setting::Overcommit { .. } => pools::read(root).unwrap_or_default(),
        _ => Vec::new(),
    };
    let names: Vec<String> = listed
        .iter()
        .filter(|pool| pool.node.is_none() || matches!(setting, Setting::Pool { node: Some(_), .. }))
        .map(|pool| match pool.node {
            None => pool.page_size.to_string(),
            Some(node) => format!("{}@{node}", pool.page_size),
        })
        .collect();
    let has =
        if names.is_empty() { String::new() } else { format!("; there are pools of {}", names.join(", ")) };
    DifferenceError::Missing { setting, has }
}
