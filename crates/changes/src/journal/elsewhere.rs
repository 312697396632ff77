//! Journals in the /run of other mount namespaces, for example of containers.

use std::{
    collections::HashSet,
    fs,
    io::Read,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use hugewise_linux::{
    root::Root,
    sys::{file::inside, process},
};
use serde::Deserialize;

use super::boot_id;

/// Largest journal that is read from another mount namespace, in bytes.
const MAX_JOURNAL_BYTES: u64 = 1 << 20;

/// The fields that a journal and the file of applied settings share, and those of a journal.
#[derive(Deserialize)]
struct Beginning {
    boot_id: String,
    #[serde(default = "apply")]
    purpose: String,
}

/// The purpose of a file of applied settings, which has none.
fn apply() -> String {
    "apply".to_owned()
}

/// A journal of this boot in another mount namespace: its process and command, as text. `None` if there is none
/// among the files `names` in `dir`, as far as processes are visible and may be read.
pub(super) fn find(root: &Root, dir: &Path, names: &[&str]) -> Option<String> {
    let boot = boot_id(root).ok()?;
    let namespace = |process: &str| fs::read_link(root.path(format!("proc/{process}/ns/mnt"))).ok();
    let mut seen: HashSet<PathBuf> = HashSet::from([namespace("self")?]);
    let pids = root.list("proc").ok()?.into_iter().filter(|name| name.parse::<u32>().is_ok());
    pids.filter(|pid| namespace(pid).is_some_and(|found| seen.insert(found))).find_map(|pid| {
        let folder = root.path(format!("proc/{pid}/root"));
        names.iter().find_map(|name| {
            let path = dir.join(name);
            // Only root writes journals; a user in a namespace of his own must not be able to lock the machine.
            let file = inside::open_of(&folder, &path, process::effective_uid()).ok()?;
            let found = file.metadata().ok()?;
            let is_ours = |ours: fs::Metadata| (ours.dev(), ours.ino()) == (found.dev(), found.ino());
            if fs::metadata(&path).is_ok_and(is_ours) {
                return None;
            }
            let mut text = Vec::new();
            file.take(MAX_JOURNAL_BYTES).read_to_end(&mut text).ok()?;
            let journal: Beginning = serde_json::from_slice(&text).ok()?;
            (journal.boot_id == boot).then(|| {
                let path = path.display();
                format!("{} left {path} in the mount namespace of process {pid}", journal.purpose)
            })
        })
    })
}

/// The holder of the machine's lock, as text.
pub(super) fn holder(pid: Option<u32>) -> String {
    match pid {
        Some(pid) => format!("pid {pid}, in another mount namespace"),
        None => "in another mount and PID namespace".to_owned(),
    }
}
