//! Configuration files that apply the settings at boot.
//!
//! Settings with a sysctl go to sysctl.d, which is read first; those in /sys only go to tmpfiles.d, with
//! lines `w!`, which write to an existing file at boot only (`tmpfiles.d(5)`). A checksum in each file shows
//! whether it was edited; edited and foreign files are not changed.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use hugewise_linux::{
    proc::meminfo,
    reading::Reason,
    root::Root,
    settings::Setting,
    sys::file::{self, inside},
    units::PageSize,
};
use schemars::JsonSchema;
use serde::Serialize;

/// Largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The first line of each file.
const HEADER: &str = "# Written by 'hugewise apply --persist', removed by 'hugewise restore --persisted'.";
/// The second line, without the checksum of the lines below it.
const CHECKSUM: &str = "# Once edited, it is left alone. Checksum: ";

#[derive(Debug, thiserror::Error)]
pub enum PersistError {
    /// A file that hugewise did not write has this name.
    #[error("{} was not written by hugewise: move it away, or replace it with --overwrite", .0.display())]
    Foreign(PathBuf),
    /// The file was written by hugewise and edited since.
    #[error("{} was edited since hugewise wrote it: move it away, or replace it with --overwrite", .0.display())]
    Edited(PathBuf),
    /// A system call failed.
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
}

/// The result of removing the files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Removed {
    /// The removed files.
    pub files: Vec<PathBuf>,
    /// The files that remain, with the reason.
    pub left: Vec<RemainingFile>,
}

/// A file that remains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RemainingFile {
    pub file: PathBuf,
    /// Why it was not removed.
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileKind {
    Sysctl,
    Tmpfiles,
}

/// Values by the name of the setting.
type Lines = BTreeMap<String, String>;

/// The content of a file.
#[derive(Debug, PartialEq, Eq)]
enum FileContent {
    Nothing,
    Ours(Lines),
    Edited,
    Foreign,
}

/// The content of the files, computed before the first setting is changed and written after the last.
#[derive(Debug)]
pub struct ConfigFiles(Vec<(PathBuf, String)>);

impl ConfigFiles {
    /// Merges `settings` into the files in `etc` (the folder /etc).
    ///
    /// Fails if a file is foreign or edited and `overwrite` is false; with `overwrite`, its content is lost.
    pub fn prepare(
        root: &Root,
        etc: &Path,
        settings: &[(Setting, String)],
        overwrite: bool,
    ) -> Result<ConfigFiles, PersistError> {
        let default_size = meminfo::read(root).default_size.known().copied();
        let mut files = Vec::new();
        let mut obsolete = Vec::new();
        let mut placed = Vec::new();
        for (setting, value) in settings {
            // On a machine with one node, that node's pool is the pool of the machine.
            let setting = match setting.parts(root)[..] {
                [only] => only,
                _ => *setting,
            };
            if let Setting::Pool { page_size, node: None } = setting {
                // Lines for single nodes would undo the value for all nodes at boot.
                obsolete.push(format!("/hugepages/hugepages-{}/nr_hugepages", page_size.sysfs()));
            }
            placed.push((place(setting, default_size), value));
        }
        for kind in FileKind::ALL {
            let path = kind.path(etc);
            let mut lines = match (found(&path)?, overwrite) {
                (FileContent::Ours(lines), _) => lines,
                (FileContent::Nothing, _) | (_, true) => Lines::new(),
                (FileContent::Edited, false) => return Err(PersistError::Edited(path)),
                (FileContent::Foreign, false) => return Err(PersistError::Foreign(path)),
            };
            let before = lines.clone();
            lines.retain(|key, _| {
                !(key.starts_with("/sys/devices/system/node/")
                    && obsolete.iter().any(|end| key.ends_with(end)))
            });
            let ours = placed.iter().filter(|((of, _), _)| *of == kind);
            lines.extend(ours.map(|((_, key), value)| (key.clone(), (*value).clone())));
            if !lines.is_empty() || lines != before {
                files.push((path, kind.text(&lines)));
            }
        }
        Ok(ConfigFiles(files))
    }

    /// Writes each file atomically, synced to disk. Returns the paths.
    pub fn write(&self) -> Result<Vec<PathBuf>, PersistError> {
        for (path, text) in &self.0 {
            write(path, text).map_err(|source| PersistError::File { path: path.clone(), source })?;
        }
        Ok(self.0.iter().map(|(path, _)| path.clone()).collect())
    }
}

/// The files in `etc` that hugewise wrote, edited or not.
pub fn present(etc: &Path) -> Vec<PathBuf> {
    let ours = |path: &PathBuf| matches!(found(path), Ok(FileContent::Ours(_) | FileContent::Edited));
    FileKind::ALL.map(|kind| kind.path(etc)).into_iter().filter(ours).collect()
}

/// Removes the files that hugewise wrote to `etc`; edited ones only if `edited_too`, foreign ones never.
pub fn remove(etc: &Path, edited_too: bool) -> Removed {
    let mut removed = Removed::default();
    for path in FileKind::ALL.map(|kind| kind.path(etc)) {
        // Left by a call killed while writing.
        let _ = fs::remove_file(path.with_extension("draft"));
        let outcome: Result<(), Reason> = match found(&path) {
            Ok(FileContent::Nothing | FileContent::Foreign) => continue,
            Ok(FileContent::Edited) if !edited_too => {
                Reason::err("it was edited since hugewise wrote it; --force removes it anyway")
            }
            Ok(FileContent::Ours(_) | FileContent::Edited) => fs::remove_file(&path).map_err(Reason::from),
            Err(error) => Err(error.into()),
        };
        match outcome {
            Ok(()) => removed.files.push(path),
            Err(reason) => removed.left.push(RemainingFile { file: path, reason: reason.into() }),
        }
    }
    removed
}

/// The file for `setting`, and the setting's name there.
fn place(setting: Setting, default_size: Option<PageSize>) -> (FileKind, String) {
    let sysctl = match setting {
        Setting::Pool { page_size, node: None } if Some(page_size) == default_size => "vm.nr_hugepages",
        Setting::Overcommit { page_size } if Some(page_size) == default_size => "vm.nr_overcommit_hugepages",
        Setting::ShmGroup => "vm.hugetlb_shm_group",
        Setting::ShmMax => "kernel.shmmax",
        Setting::ShmAll => "kernel.shmall",
        _ => return (FileKind::Tmpfiles, Path::new("/").join(setting.path()).to_string_lossy().into_owned()),
    };
    (FileKind::Sysctl, sysctl.to_owned())
}

impl FileKind {
    const ALL: [FileKind; 2] = [FileKind::Sysctl, FileKind::Tmpfiles];

    fn path(self, etc: &Path) -> PathBuf {
        etc.join(match self {
            FileKind::Sysctl => "sysctl.d/60-hugewise.conf",
            FileKind::Tmpfiles => "tmpfiles.d/hugewise.conf",
        })
    }

    fn text(self, lines: &Lines) -> String {
        let line = |(key, value): (&String, &String)| match self {
            FileKind::Sysctl => format!("{key} = {value}\n"),
            FileKind::Tmpfiles => format!("w! {key} - - - - {value}\n"),
        };
        let body: String = lines.iter().map(line).collect();
        format!("{HEADER}\n{CHECKSUM}{:016x}\n{body}", checksum(&body))
    }
}

/// Reads the file at `path`. Links and special files are foreign.
fn found(path: &Path) -> Result<FileContent, PersistError> {
    let failed = |source| PersistError::File { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(FileContent::Nothing),
        Err(error) => return Err(failed(error)),
        Ok(found) if !found.is_file() => return Ok(FileContent::Foreign),
        Ok(_) => {}
    }
    let text = inside::open(path.parent().unwrap_or(path), Path::new(path.file_name().unwrap_or_default()));
    let text = text.and_then(|file| file::content(file, MAX_FILE_BYTES)).map_err(failed)?;
    Ok(parse(&String::from_utf8_lossy(&text)))
}

fn parse(text: &str) -> FileContent {
    let Some(rest) = text.strip_prefix(HEADER).and_then(|rest| rest.strip_prefix('\n')) else {
        return FileContent::Foreign;
    };
    let body = rest.strip_prefix(CHECKSUM).and_then(|rest| rest.split_once('\n'));
    match body {
        Some((sum, body)) if sum == format!("{:016x}", checksum(body)) => {
            FileContent::Ours(body.lines().filter_map(line).collect())
        }
        _ => FileContent::Edited,
    }
}

/// The name and the value in a line of a file that hugewise wrote.
fn line(line: &str) -> Option<(String, String)> {
    let mut words = line.split_whitespace();
    let first = words.next()?;
    let key = if first == "w!" { words.next()? } else { first };
    Some((key.to_owned(), words.last()?.to_owned()))
}

/// FNV-1a, 64 bits: detects edits, not forgery.
fn checksum(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    match fs::symlink_metadata(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => fs::create_dir(folder)?,
        Err(error) => return Err(error),
        Ok(found) if !found.is_dir() => {
            return Err(io::Error::other("its folder is a symbolic link, which is not followed"));
        }
        Ok(_) => {}
    }
    // systemd reads only files that end in .conf.
    let draft = path.with_extension("draft");
    let written = (|| {
        match fs::remove_file(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = file::create_new(&draft, 0o644)?;
        file.set_permissions(fs::Permissions::from_mode(0o644))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, path)?;
        file::open_folder(folder)?.sync_all()
    })();
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written
}
