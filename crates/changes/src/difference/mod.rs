//! What must change for settings to be as somebody wants them: read and decided, never written.
//!
//! A [`Difference`] has no way to the kernel. What it lists is done by a [`crate::apply::Writer`].

#[cfg(test)]
mod tests;

use hugewise_linux::{
    hugepages::pools::{self, Pool},
    proc::meminfo,
    reading::Reading,
    root::{ReadError, Root},
    settings::Setting,
    units::{Bytes, PageSize, Pages},
};
use schemars::JsonSchema;
use serde::Serialize;

/// One setting as somebody wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The setting.
    pub setting: Setting,
    /// What it shall be.
    pub wanted: Wanted,
    /// What a plan found when it was made; nothing where nobody looked before.
    pub seen: Option<Seen>,
}

/// What a setting shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// This value; of a pool, the pages in it.
    Value(String),
    /// Of a pool: so many pages more than there are.
    More(Pages),
    /// Of a pool: large enough for so many pages to be available to new mappings.
    Available(Pages),
}

/// What was there when a plan was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A pool.
    Pool {
        /// All its pages.
        total: Pages,
        /// Those that a new mapping could have.
        available: Pages,
    },
    /// Any other setting.
    Value(String),
}

/// One setting that is looked at, and changed unless it is as wanted already.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Change {
    /// The setting.
    pub setting: Setting,
    /// What it is; of a pool, the pages that are set aside for good.
    pub from: String,
    /// What it shall be.
    pub to: String,
}

impl Change {
    /// Is it not as wanted already?
    #[must_use]
    pub fn is_needed(&self) -> bool {
        self.from != self.to
    }

    /// Of a pool that grows: its page size, and the pages that are missing.
    #[must_use]
    pub fn growth(&self) -> Option<(PageSize, Pages)> {
        let Setting::Pool { page_size, .. } = self.setting else { return None };
        let missing = pages(&self.to).saturating_sub(pages(&self.from));
        (missing > Pages(0)).then_some((page_size, missing))
    }
}

/// What must change, what speaks against it, and what is good to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Every setting that was named, in the order in which they are changed: what gives memory back
    /// comes before what takes it.
    pub changes: Vec<Change>,
    /// Why it should not be done. Who knows better may do it all the same.
    pub objections: Vec<String>,
    /// What is not as a plan found it, and what becomes of it.
    pub notes: Vec<String>,
}

/// Why there is no difference to show.
#[derive(Debug, thiserror::Error)]
pub enum DifferenceError {
    /// The setting has no such value.
    #[error("the {setting} cannot be set: {reason}")]
    Value {
        /// The setting.
        setting: Setting,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// This machine has no such setting.
    #[error("this machine has no {setting}: there is no /{}{has}", setting.path().display())]
    Missing {
        /// The setting.
        setting: Setting,
        /// What it has instead, with a leading separator.
        has: String,
    },
    /// Two values for one setting.
    #[error("the {0} is named twice, or together with a part of it: name it once")]
    Twice(Setting),
    /// It could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl Difference {
    /// Reads what is now and decides what must change, so that `floor` of memory stays available.
    pub fn read(root: &Root, requests: &[Request], floor: Bytes) -> Result<Difference, DifferenceError> {
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
            Setting::Pool { .. } => {
                if change.growth().is_some() {
                    2
                } else {
                    1
                }
            }
            _ => 0,
        });
        difference.objections.extend(difference.below_floor(root, floor));
        Ok(difference)
    }

    /// Is there anything to do?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.changes.iter().any(Change::is_needed)
    }

    fn add(&mut self, root: &Root, request: &Request) -> Result<(), DifferenceError> {
        let setting = request.setting;
        let from = setting.read(root).map_err(|error| missing(root, setting, error))?;
        let to = match (&request.wanted, setting) {
            (Wanted::Value(value), _) => {
                setting.checked(root, value)?.map_err(|reason| DifferenceError::Value { setting, reason })?
            }
            (Wanted::More(more), Setting::Pool { .. }) => (pages(&from) + *more).to_string(),
            (Wanted::Available(needed), Setting::Pool { page_size, node }) => {
                let pool = pool(root, page_size, node)?;
                self.note_pool(request, &pool);
                (pages(&from) + needed.saturating_sub(pool.available())).to_string()
            }
            (Wanted::More(_) | Wanted::Available(_), _) => {
                let reason = "a number of pages is for pools only".to_owned();
                return Err(DifferenceError::Value { setting, reason });
            }
        };
        if let Some(Seen::Value(seen)) = &request.seen {
            // Somebody may have set already what the plan wants.
            if *seen != from && from != to {
                self.objections.push(format!(
                    "the {setting} was {seen} when the plan was made, and is {from} now: somebody else changed \
                     it; make the plan anew"
                ));
            }
        }
        self.in_use(root, setting, &from, &to)?;
        self.changes.push(Change { setting, from, to });
        Ok(())
    }

    /// Says what a plan did not know of a pool.
    fn note_pool(&mut self, request: &Request, pool: &Pool) {
        let Some(Seen::Pool { total, available }) = request.seen else { return };
        if (total, available) != (pool.total, pool.available()) {
            self.notes.push(format!(
                "the {} had {total} pages when the plan was made, {available} of them available; now it has {}, {} \
                 of them available: what is missing was counted anew",
                request.setting,
                pool.total,
                pool.available()
            ));
        }
    }

    /// Says what becomes of pages that are in use in a pool that shrinks.
    fn in_use(&mut self, root: &Root, setting: Setting, from: &str, to: &str) -> Result<(), ReadError> {
        let Setting::Pool { page_size, node } = setting else { return Ok(()) };
        if pages(to) >= pages(from) {
            return Ok(());
        }
        let pool = pool(root, page_size, node)?;
        let kept = (pool.used() + pool.reserved.unwrap_or_default()).saturating_sub(pages(to));
        if kept > Pages(0) {
            self.notes.push(format!(
                "{kept} pages of the {setting} are in use or promised: they go back to the system when their users end"
            ));
        }
        Ok(())
    }

    /// Would all pools together take more memory than may be taken?
    fn below_floor(&self, root: &Root, floor: Bytes) -> Option<String> {
        let size = |pages: Pages, setting| match setting {
            Setting::Pool { page_size, .. } => pages * page_size,
            _ => Bytes::ZERO,
        };
        let grown: Bytes =
            self.changes.iter().filter_map(Change::growth).map(|(size, more)| more * size).sum();
        if grown == Bytes::ZERO {
            return None;
        }
        let less = |change: &Change| pages(&change.from).saturating_sub(pages(&change.to));
        let given: Bytes = self.changes.iter().map(|change| size(less(change), change.setting)).sum();
        let taken = grown.saturating_sub(given);
        match meminfo::read(root).available {
            Reading::CouldNotTell { could_not_tell } => {
                Some(format!("how much memory is available could not be told: {could_not_tell}"))
            }
            Reading::Known(available) if available.saturating_sub(taken) < floor => Some(format!(
                "the pools would take {taken} more of the {available} of memory that is available; {floor} must stay \
                 for everybody else"
            )),
            Reading::Known(_) => None,
        }
    }
}

/// The number in the value of a pool, which was read or checked as one.
pub(crate) fn pages(value: &str) -> Pages {
    Pages(value.parse().unwrap_or(0))
}

fn pool(root: &Root, page_size: PageSize, node: Option<u32>) -> Result<Pool, ReadError> {
    let found = pools::read(root)?.into_iter().find(|pool| pool.page_size == page_size && pool.node == node);
    found.ok_or_else(|| ReadError::Io {
        path: root.path(pools::folder(page_size, node)),
        source: std::io::ErrorKind::NotFound.into(),
    })
}

/// A setting that is not there, with what is.
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
