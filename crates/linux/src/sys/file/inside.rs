//! Files below a folder that another user may have filled, such as /proc/PID/root. No link is followed below it.

use std::{
    ffi::{CStr, CString, OsStr, OsString},
    fs::{File, Metadata, OpenOptions},
    io,
    os::{
        fd::AsRawFd,
        unix::{
            ffi::OsStrExt,
            fs::{MetadataExt, OpenOptionsExt, fchown},
        },
    },
    path::{Component, Path},
};

use super::{
    in_root::{lacks_openat2, openat2},
    path_of, read, stores_files,
};
use crate::sys::{checked, owned};

/// Opens the regular file `path` below `folder` for reading. Fails for other files, for files of the kernel, which a
/// mount can put in any place, and if a part of `path` is a link (`ELOOP`).
pub fn open(folder: &Path, path: &Path) -> io::Result<File> {
    checked_open(folder, path, |_| Ok(()))
}

/// Like [`open`], and fails if the file does not belong to `owner`.
pub fn open_of(folder: &Path, path: &Path, owner: u32) -> io::Result<File> {
    checked_open(folder, path, |found| match found.uid() {
        uid if uid == owner => Ok(()),
        uid => Err(refused(format!("it belongs to uid {uid}, not {owner}"))),
    })
}

fn checked_open(
    folder: &Path,
    path: &Path,
    check: impl FnOnce(&Metadata) -> io::Result<()>,
) -> io::Result<File> {
    // Opened as a place first: opening a device has effects of its own.
    let place = entry(folder, path)?;
    let found = place.metadata()?;
    if !found.is_file() {
        return Err(refused("it is not a regular file".to_owned()));
    }
    if !stores_files(&place)? {
        return Err(refused("its file system does not store files".to_owned()));
    }
    check(&found)?;
    read::open(&path_of(&place))
}

fn refused(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, reason)
}

/// Creates the file `path` below `folder` for `owner`, with mode 0600. See [`open`].
pub fn create(folder: &Path, path: &Path, owner: u32) -> io::Result<File> {
    let file = open_below(folder, path, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, 0o600)?;
    fchown(&file, Some(owner), None)?;
    Ok(file)
}

/// Removes the file `path` below `folder`; a link of this name is removed itself. See [`open`].
pub fn remove(folder: &Path, path: &Path) -> io::Result<()> {
    let name = CString::new(path.file_name().unwrap_or_default().as_bytes())?;
    let parent = directory(folder, path.parent().unwrap_or(Path::new("")))?;
    // SAFETY: reads a live string.
    checked(unsafe { libc::unlinkat(parent.as_raw_fd(), name.as_ptr(), 0) }).map(drop)
}

/// Opens the directory `path` below `folder` as a place only; its content is reached through /proc/self/fd. See
/// [`open`].
pub fn directory(folder: &Path, path: &Path) -> io::Result<File> {
    open_below(folder, path, libc::O_PATH | libc::O_DIRECTORY, 0)
}

/// Opens a file of any kind as a place only, for example a socket; a link is opened itself. See [`open`].
pub fn entry(folder: &Path, path: &Path) -> io::Result<File> {
    open_below(folder, path, libc::O_PATH, 0)
}

fn open_below(folder: &Path, path: &Path, flags: libc::c_int, mode: libc::mode_t) -> io::Result<File> {
    let folder = OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | libc::O_PATH).open(folder)?;
    let names = names(path)?;
    let flags = flags | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    match open_at_once(&folder, &names, flags, mode) {
        Err(error) if lacks_openat2(&error) => open_by_names(folder, &names, flags, mode),
        opened => opened,
    }
}

/// The names of `path`; fails for `..`, which could lead out of the folder.
fn names(path: &Path) -> io::Result<Vec<&OsStr>> {
    path.components()
        .filter(|part| !matches!(part, Component::RootDir | Component::CurDir))
        .map(|part| match part {
            Component::Normal(name) => Ok(name),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "the path contains '..'")),
        })
        .collect()
}

fn open_at_once(folder: &File, names: &[&OsStr], flags: libc::c_int, mode: libc::mode_t) -> io::Result<File> {
    let path = if names.is_empty() { OsString::from(".") } else { names.join(OsStr::new("/")) };
    let resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_SYMLINKS | libc::RESOLVE_NO_MAGICLINKS;
    openat2(folder, Path::new(&path), flags, mode, resolve)
}

/// Opens one directory after another, none of them a link.
fn open_by_names(
    mut folder: File,
    names: &[&OsStr],
    flags: libc::c_int,
    mode: libc::mode_t,
) -> io::Result<File> {
    let open = |folder: &File, name: &CStr, flags| {
        // SAFETY: reads a live string; returns a new descriptor.
        owned(unsafe { libc::openat(folder.as_raw_fd(), name.as_ptr(), flags, mode) })
    };
    let Some((last, parents)) = names.split_last() else { return open(&folder, c".", flags) };
    for name in parents {
        let directory = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        folder = open(&folder, &CString::new(name.as_bytes())?, directory)?;
    }
    open(&folder, &CString::new(last.as_bytes())?, flags)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use crate::sys::process;

    /// A folder with a plain file, links to it, and links out of the folder.
    fn folder(dir: &Path) -> io::Result<std::path::PathBuf> {
        let inside = dir.join("root");
        fs::create_dir_all(inside.join("tmp"))?;
        fs::create_dir(dir.join("elsewhere"))?;
        for file in ["root/tmp/plain", "elsewhere/plain"] {
            fs::write(dir.join(file), file)?;
        }
        symlink("plain", inside.join("tmp/link"))?;
        symlink("../elsewhere", inside.join("out"))?;
        symlink("tmp", inside.join("same"))?;
        Ok(inside)
    }

    #[test]
    fn no_link_is_followed() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let inside = folder(dir.path())?;
        let ours = process::effective_uid();
        for path in ["tmp/plain", "/tmp/plain", "/tmp/./plain"] {
            assert!(open_of(&inside, Path::new(path), ours).is_ok(), "{path}");
        }
        assert!(open_of(&inside, Path::new("tmp/plain"), ours + 1).is_err());
        for path in ["tmp/link", "out/plain", "same/plain", "../elsewhere/plain", "tmp", ""] {
            assert!(open(&inside, Path::new(path)).is_err(), "{path}");
        }
        for path in ["out/new", "same/new", "tmp/link", "tmp/plain"] {
            assert!(create(&inside, Path::new(path), ours).is_err(), "{path}");
        }
        assert!(create(&inside, Path::new("/tmp/new"), ours).is_ok());
        assert!(inside.join("tmp/new").exists() && !dir.path().join("elsewhere/new").exists());
        Ok(())
    }

    #[test]
    fn nothing_is_removed_through_a_link() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let inside = folder(dir.path())?;
        assert!(remove(&inside, Path::new("/out/plain")).is_err());
        assert!(remove(&inside, Path::new("same/plain")).is_err());
        assert!(dir.path().join("elsewhere/plain").exists() && inside.join("tmp/plain").exists());
        remove(&inside, Path::new("tmp/link"))?;
        assert!(inside.join("tmp/plain").exists(), "the target of the link");
        remove(&inside, Path::new("/tmp/plain"))?;
        assert!(!inside.join("tmp/plain").exists());
        Ok(())
    }

    #[test]
    fn old_kernels_resolve_paths_in_the_same_way() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let inside = folder(dir.path())?;
        for (path, flags) in [
            ("tmp/plain", libc::O_RDONLY),
            ("tmp", libc::O_PATH | libc::O_DIRECTORY),
            ("", libc::O_PATH | libc::O_DIRECTORY),
            ("tmp/link", libc::O_RDONLY),
            ("out/plain", libc::O_RDONLY),
            ("same/plain", libc::O_RDONLY),
            ("same", libc::O_PATH | libc::O_DIRECTORY),
            ("missing/plain", libc::O_RDONLY),
        ] {
            let names = names(Path::new(path))?;
            let flags = flags | libc::O_NOFOLLOW | libc::O_CLOEXEC;
            let new = open_at_once(&File::open(&inside)?, &names, flags, 0);
            let old = open_by_names(File::open(&inside)?, &names, flags, 0);
            assert_eq!(new.is_ok(), old.is_ok(), "{path}: {new:?}, {old:?}");
        }
        Ok(())
    }
}
