//! Journals in the /run of other mount namespaces, for example of containers.
//!
//! Only mount namespaces that belong to the user namespace of this process are looked into: a process of another one
//! cannot have changed a setting of the machine. What is found there was written by the root of a container. It is
//! restored from outside, since settings have no namespaces: known settings only, to values that the kernel offers, and
//! no pool grows by it.

mod lookup;
mod restore;
#[cfg(test)]
mod tests;

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    time::Duration,
};

use hugewise_linux::{
    root::Root,
    sys::{aside::Deadline, namespace},
};

pub(super) use self::lookup::{FoundFolder, Place};
use self::lookup::{claim, look_into};
use super::{
    AppliedSettings, JournalError, Record, boot_id,
    record::{parse, shown},
    store::Store,
};

/// Longest time for the lookups in all mount namespaces.
const LOOKUP_TIME_LIMIT: Duration = Duration::from_secs(if cfg!(test) { 20 } else { 1 });

/// What was found in other mount namespaces.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    /// Folders with journals of this boot.
    pub(super) folders: Vec<FoundFolder>,
    /// Processes of mount namespaces in which the lookup did not end in time.
    pub(super) not_looked_into: Vec<u32>,
}

/// A journal of this boot in another mount namespace.
#[derive(Debug)]
enum Content {
    Record(Box<Record>),
    Applied(AppliedSettings),
}

impl Content {
    /// `None` if it is not a journal, or is of an earlier boot.
    fn parse(name: &str, text: &str, boot: &str) -> Option<Content> {
        if name == Store::APPLIED {
            let applied = parse::<AppliedSettings>(text.as_bytes()).ok()?;
            (applied.boot_id == boot).then_some(Content::Applied(applied))
        } else {
            let record = parse::<Record>(text.as_bytes()).ok()?;
            (record.boot_id == boot).then(|| Content::Record(Box::new(record)))
        }
    }

    fn purpose(&self) -> String {
        match self {
            Content::Record(record) => shown(&record.purpose),
            Content::Applied(_) => "apply".to_owned(),
        }
    }
}

/// The journals of this boot in the places `places` of other mount namespaces, as far as processes are visible and may be
/// read.
pub(super) fn find(root: &Root, places: &[Place]) -> Elsewhere {
    let mut found = Elsewhere::default();
    let Ok(boot) = boot_id(root) else { return found };
    let deadline = Deadline::after(LOOKUP_TIME_LIMIT, None);
    let mut left = namespaces(root, &deadline);
    while !left.is_empty() {
        let looked = look_into(root, places, &mut left, &deadline);
        found.not_looked_into.extend(looked.unanswered);
        for folder in looked.folders {
            // Mount namespaces can share a file system.
            let is_new = found.folders.iter().all(|known| known.id != folder.id);
            if is_new && folder.files.iter().any(|(name, text)| Content::parse(name, text, &boot).is_some()) {
                found.folders.push(folder);
            }
        }
    }
    found
}

/// Why no command can change settings while there is a journal in the place `place` of another mount namespace; `None` if
/// there is none.
pub(super) fn refusal(root: &Root, place: Place) -> Option<JournalError> {
    let found = find(root, &[place]).folders.into_iter().next()?;
    let boot = boot_id(root).ok()?;
    let purpose = found.files.iter().find_map(|(name, text)| Content::parse(name, text, &boot))?.purpose();
    let at = format!("{purpose}, in the mount namespace of process {}", found.pid);
    Some(match claim(root, &found) {
        Ok(claimed) if claimed.is_held => JournalError::Busy(at),
        _ => {
            JournalError::Unfinished(format!("an earlier hugewise ({at}) was ended before it could clean up"))
        }
    })
}

/// A process of each mount namespace but our own that belongs to our user namespace.
fn namespaces(root: &Root, deadline: &Deadline<'_>) -> Vec<u32> {
    let namespace = |process: &str| root.link(format!("proc/{process}/ns/mnt")).ok();
    let Some(own) = namespace("self") else { return Vec::new() };
    let mut seen: HashSet<PathBuf> = HashSet::from([own]);
    let ours = root.is_live().then(|| namespace::of(Path::new("/proc/self/ns/user")).ok()).flatten();
    let is_ours = |pid: &str| {
        let owner = || namespace::owner(Path::new(&format!("/proc/{pid}/ns/mnt"))).ok();
        !root.is_live() || (ours.is_some() && owner() == ours)
    };
    let names = root.list("proc").unwrap_or_default();
    let pids = names.iter().filter(|name| name.parse::<u32>().is_ok() && deadline.left().is_ok());
    let others = pids.filter(|pid| namespace(pid).is_some_and(|found| seen.insert(found)));
    others.filter(|pid| is_ours(pid)).filter_map(|pid| pid.parse().ok()).collect()
}
