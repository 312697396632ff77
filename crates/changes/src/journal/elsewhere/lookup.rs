//! The lookup in the mount namespaces of other processes, in child processes: a file system there may never answer.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use hugewise_linux::{
    root::Root,
    sys::{
        aside::{Answers, Aside, Deadline},
        file::{self, inside},
        process,
    },
};
use serde::{Deserialize, Serialize};

use crate::journal::store::{Store, set_aside_name};

/// Longest wait for the lookup in one mount namespace; tests run beside others.
const NAMESPACE_TIME_LIMIT: Duration = Duration::from_millis(if cfg!(test) { 20_000 } else { 300 });
/// Longest wait for a step with one folder that has answered before.
const FOLDER_TIME_LIMIT: Duration = Duration::from_millis(if cfg!(test) { 20_000 } else { 500 });
/// Largest journal that is read from another mount namespace, in bytes.
const MAX_JOURNAL_BYTES: u64 = 1 << 20;
/// Largest answer, in bytes: the journals of a folder, as JSON.
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// Where journals may be.
#[derive(Clone, Debug)]
pub(in crate::journal) struct Place {
    /// The folder, in each mount namespace.
    pub(in crate::journal) folder: PathBuf,
    /// The names of the files.
    pub(in crate::journal) names: &'static [&'static str],
}

/// A folder with journals in another mount namespace.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::journal) struct FoundFolder {
    /// A process of the namespace.
    pub(in crate::journal) pid: u32,
    pub(super) folder: PathBuf,
    /// Device and inode of the folder.
    pub(super) id: (u64, u64),
    /// Names and contents; invalid UTF-8 is replaced.
    pub(super) files: Vec<(String, String)>,
}

/// The result of a lookup.
#[derive(Default)]
pub(super) struct Looked {
    pub(super) folders: Vec<FoundFolder>,
    /// Processes whose namespace was not looked into in time.
    pub(super) unanswered: Vec<u32>,
}

/// Looks into the mount namespaces of the processes `left`, and removes those that were done from it. Stops at one that
/// does not answer.
pub(super) fn look_into(
    root: &Root,
    places: &[Place],
    left: &mut Vec<u32>,
    deadline: &Deadline<'_>,
) -> Looked {
    let mut looked = Looked::default();
    let start = |_| {
        Aside::start(&[], |answers| {
            left.iter()
                .try_for_each(|pid| answers.send(&serde_json::to_vec(&read_all(root, *pid, places))?, None))
        })
    };
    let Ok(mut aside) = deadline.left().and_then(start) else {
        looked.unanswered = std::mem::take(left);
        return looked;
    };
    while !left.is_empty() {
        let pid = left.remove(0);
        match receive(&mut aside, &deadline.at_most(NAMESPACE_TIME_LIMIT)) {
            Ok(folders) => looked.folders.extend::<Vec<FoundFolder>>(folders),
            Err(_) => {
                looked.unanswered.push(pid);
                break;
            }
        }
    }
    looked
}

fn receive<T: for<'de> Deserialize<'de>>(aside: &mut Aside, deadline: &Deadline<'_>) -> io::Result<T> {
    Ok(serde_json::from_slice(&aside.receive(MAX_ANSWER_BYTES, deadline)?.bytes)?)
}

/// The journals in the mount namespace of a process. What cannot be read is none.
fn read_all(root: &Root, pid: u32, places: &[Place]) -> Vec<FoundFolder> {
    let read = |place: &Place| {
        let (dir, id) = open(root, pid, &place.folder).ok()?;
        let is_ours = |ours: fs::Metadata| (ours.dev(), ours.ino()) == id;
        if place.folder.metadata().is_ok_and(is_ours) {
            return None;
        }
        let files = contents(&dir, place.names);
        (!files.is_empty()).then(|| FoundFolder { pid, folder: place.folder.clone(), id, files })
    };
    places.iter().filter_map(read).collect()
}

/// Opens the folder of journals in the mount namespace of a process. Only root writes journals, into a folder of its own.
fn open(root: &Root, pid: u32, folder: &Path) -> io::Result<(File, (u64, u64))> {
    let opened = inside::directory(&root.path(format!("proc/{pid}/root")), folder)?;
    let found = opened.metadata()?;
    match found.uid() == process::effective_uid() && found.mode() & 0o022 == 0 {
        true => Ok((opened, (found.dev(), found.ino()))),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

fn contents<'n>(dir: &File, names: impl IntoIterator<Item = &'n &'n str>) -> Vec<(String, String)> {
    let read = |name: &str| -> io::Result<String> {
        let file = inside::open_of(&file::path_of(dir), Path::new(name), process::effective_uid())?;
        Ok(String::from_utf8_lossy(&file::content(file, MAX_JOURNAL_BYTES)?).into_owned())
    };
    names.into_iter().filter_map(|name| Some(((*name).to_owned(), read(name).ok()?))).collect()
}

/// What to do with a journal.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Then {
    Remove,
    /// It is renamed, and found no more.
    SetAside,
}

/// A folder of journals whose lock a child process holds, unless another process does.
pub(super) struct Claimed {
    pub(super) is_held: bool,
    /// Names and contents, read under the lock.
    pub(super) files: Vec<(String, String)>,
    aside: Aside,
}

/// Takes the lock of a folder with journals.
pub(super) fn claim(root: &Root, found: &FoundFolder) -> io::Result<Claimed> {
    let mut aside = Aside::start(&[], |answers| keep(root, found, answers))?;
    let (is_held, files) = receive(&mut aside, &Deadline::after(FOLDER_TIME_LIMIT, None))?;
    Ok(Claimed { is_held, files, aside })
}

impl Claimed {
    /// Removes a journal, or sets it aside.
    pub(super) fn finish(&mut self, name: &str, then: Then) -> io::Result<()> {
        let deadline = Deadline::after(FOLDER_TIME_LIMIT, None);
        let at = self.files.iter().position(|(known, _)| known == name).ok_or(io::ErrorKind::NotFound)?;
        self.aside.send(&[u8::try_from(at).unwrap_or(u8::MAX), then as u8], &deadline)?;
        self.aside.receive(0, &deadline).map(drop)
    }
}

/// The work of a child: holds the lock of a folder, and removes journals on request.
fn keep(root: &Root, found: &FoundFolder, answers: &mut Answers) -> io::Result<()> {
    let (dir, id) = open(root, found.pid, &found.folder)?;
    if id != found.id {
        return Err(io::ErrorKind::NotFound.into());
    }
    let folder = file::path_of(&dir);
    // Without a lock file, no process holds it.
    let lock = inside::open(&folder, Path::new(Store::LOCK)).ok();
    let is_held = match &lock {
        Some(lock) => !file::try_lock(lock)?,
        None => false,
    };
    let names: Vec<&str> = found.files.iter().map(|(name, _)| name.as_str()).collect();
    let files = contents(&dir, &names);
    answers.send(&serde_json::to_vec(&(is_held, &files))?, None)?;
    let mut request = [0; 2];
    loop {
        answers.receive(&mut request)?;
        let [at, then] = request;
        let (name, _) = files.get(usize::from(at)).ok_or(io::ErrorKind::InvalidInput)?;
        if then == Then::Remove as u8 {
            inside::remove(&folder, Path::new(name))?;
        } else {
            fs::rename(folder.join(name), folder.join(set_aside_name(0)))?;
        }
        answers.send(&[], None)?;
    }
}
