//! Restores a journal of another mount namespace from outside.

use hugewise_linux::{root::Root, settings::Setting, tracefs};

use super::{
    Content, Elsewhere, FoundFolder,
    lookup::{Claimed, Then, claim},
};
use crate::journal::{
    ChangedSetting, DamagedFiles, ForeignChanges, Restored, boot_id,
    restored::{NotRestored, put_back, settle},
};

impl Elsewhere {
    /// Restores the settings of the journals that no process holds, and removes these.
    pub(in crate::journal) fn restore(&self, root: &Root, damaged: DamagedFiles, done: &mut Restored) {
        let left: Vec<String> =
            self.folders.iter().flat_map(|folder| restore(root, folder, damaged, done)).collect();
        done.elsewhere = (!left.is_empty()).then(|| left.join("; "));
        done.not_looked_into.clone_from(&self.not_looked_into);
    }
}

/// Restores the journals of a folder; returns what is not restored.
fn restore(root: &Root, found: &FoundFolder, damaged: DamagedFiles, done: &mut Restored) -> Vec<String> {
    let Ok(boot) = boot_id(root) else { return Vec::new() };
    let there = format!("in the mount namespace of process {}", found.pid);
    let mut claimed = match claim(root, found) {
        Ok(claimed) => claimed,
        Err(error) => return vec![format!("the journals {there}: {error}")],
    };
    let files = claimed.files.clone();
    let contents: Vec<(&str, Content)> = files
        .iter()
        .filter_map(|(name, text)| Some((name.as_str(), Content::parse(name, text, &boot)?)))
        .collect();
    if claimed.is_held {
        return contents
            .first()
            .map(|(_, of)| format!("{} {there}, which runs", of.purpose()))
            .into_iter()
            .collect();
    }
    let applied = contents.iter().find_map(|(_, content)| match content {
        Content::Applied(applied) => Some(applied.run_id.clone()),
        Content::Record(_) => None,
    });
    let mut left = Vec::new();
    // Changes of `apply` are older. A record whose changes were moved to them is finished.
    for (name, content) in &contents {
        let is_finished =
            matches!(content, Content::Record(record) if Some(&record.run_id) == applied.as_ref());
        let mut refused = Vec::new();
        if !is_finished {
            refused = content.restore(root, done);
            done.add_purpose(&format!("{}, {there}", content.purpose()));
            left.extend(content.ignored());
        }
        left.extend(finish(&mut claimed, name, &refused, damaged));
        if !refused.is_empty() {
            left.extend(refused.into_iter().map(|reason| format!("{} {there}: {reason}", content.purpose())));
            // The older values of `apply` come after those of the record only.
            break;
        }
    }
    left
}

/// Removes a journal, unless settings of it are not restored. Returns why it remains.
fn finish(claimed: &mut Claimed, name: &str, refused: &[String], damaged: DamagedFiles) -> Option<String> {
    let then = match (refused.is_empty(), damaged) {
        (true, _) => Then::Remove,
        (false, DamagedFiles::SetAside) => Then::SetAside,
        (false, DamagedFiles::Keep) => return None,
    };
    claimed.finish(name, then).err().map(|error| format!("{name} remains there: {error}"))
}

impl Content {
    fn entries(&self) -> &[ChangedSetting] {
        match self {
            Content::Record(record) => &record.entries,
            Content::Applied(applied) => &applied.entries,
        }
    }

    /// Changes that are left as they are: process ids and services are those of the other namespace.
    fn ignored(&self) -> Option<String> {
        let Content::Record(record) = self else { return None };
        let others = record.jvm_logs.len() + record.memory.len() + record.units.len();
        (others > 0).then(|| format!("{others} changes of processes and services there are left as they are"))
    }

    /// Restores its settings. Returns why others are not restored.
    fn restore(&self, root: &Root, done: &mut Restored) -> Vec<String> {
        let mut refused = Vec::new();
        let unreadable = match self {
            Content::Record(record) => record.unreadable.len(),
            Content::Applied(applied) => applied.unreadable.len(),
        };
        if unreadable > 0 {
            refused.push(format!("{unreadable} of its entries cannot be read"));
        }
        let mut known = Vec::new();
        for kept in self.entries() {
            match check(root, kept) {
                Ok(()) => known.push(kept.clone()),
                Err(reason) => refused.push(reason),
            }
        }
        let (ours, foreign) = ChangedSetting::divide(root, known, &[], ForeignChanges::Leave);
        refused.extend(foreign.iter().map(|since| {
            format!("another program has set the {} to {}", since.kept.entry.setting, since.reads)
        }));
        for ChangedSetting { entry, .. } in ours.into_iter().rev() {
            let restored = put_back(root, &entry)
                .and_then(|is_back| if is_back { Ok(()) } else { settle(root, &entry) });
            match restored {
                Ok(()) => done.settings.push(entry),
                Err(reason) => {
                    refused.push(format!("the {} is not restored", entry.setting));
                    done.failed.push(NotRestored { entry, reason: reason.into() });
                }
            }
        }
        refused
    }
}

/// Fails unless the root of a container may have the value set back: it is valid, and no pool grows, which would take
/// memory from others.
fn check(root: &Root, kept: &ChangedSetting) -> Result<(), String> {
    let (setting, was) = (kept.entry.setting, kept.entry.was.as_str());
    if kept.now.is_none() {
        return Err(format!("the value that the {setting} was set to is not in it"));
    }
    let invalid = || format!("the value of the {setting} before is not valid");
    if let Setting::TraceInstance { .. } = setting {
        return if was == tracefs::ABSENT { Ok(()) } else { Err(invalid()) };
    }
    if !matches!(setting.checked(root, was), Ok(Ok(valid)) if valid == was) {
        return Err(invalid());
    }
    let number = |text: &str| text.parse::<u64>().unwrap_or(u64::MAX);
    let is_pool = matches!(setting, Setting::Pool { .. } | Setting::Overcommit { .. });
    match setting.read(root) {
        Ok(now) if is_pool && number(was) > number(&now) => {
            Err(format!("the {setting} is {now}, and would grow to {was}"))
        }
        _ => Ok(()),
    }
}
