//! Files of a captured tree, whose links lead to places inside the tree, as they did on its machine.

use std::{
    ffi::{CString, OsStr, OsString},
    fs::{File, OpenOptions},
    io,
    mem::MaybeUninit,
    os::{
        fd::AsRawFd,
        unix::{
            ffi::{OsStrExt, OsStringExt},
            fs::OpenOptionsExt,
        },
    },
    path::{Component, Path, PathBuf},
};

use super::{path_of, read};
use crate::sys::{checked, owned};

/// Largest number of links in a path, as in Linux (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// A path of a tree with all links followed.
#[derive(Debug)]
pub struct Resolved {
    /// The path without links, relative to the root of the tree.
    pub path: PathBuf,
    /// The links on the way, each with its own path and its target.
    pub links: Vec<(PathBuf, PathBuf)>,
    place: File,
}

/// Opens the regular file `path` of the tree `root` for reading. Fails for what is not a regular file.
pub fn open(root: &Path, path: &Path) -> io::Result<File> {
    // Opened as a place first: opening a device has effects of its own.
    let place = place(root, path)?;
    read::regular(place.try_clone()?)?;
    read::open(&path_of(&place))
}

/// Whether `path` is a regular file of the tree `root`.
pub fn is_file(root: &Path, path: &Path) -> bool {
    place(root, path).and_then(|place| place.metadata()).is_ok_and(|found| found.is_file())
}

/// The names in the folder `path` of the tree `root`.
pub fn names(root: &Path, path: &Path) -> io::Result<Vec<OsString>> {
    read::names(&path_of(&place(root, path)?))
}

/// Opens `path` of the tree `root` as a place only.
fn place(root: &Path, path: &Path) -> io::Result<File> {
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    let resolve = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS;
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    match openat2(&tree(root)?, path, flags, 0, resolve) {
        Err(error) if lacks_openat2(&error) => resolve_links(root, path, true).map(|found| found.place),
        opened => opened,
    }
}

fn tree(root: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(root)
}

/// The target of the link `path` of the tree `root`; links in the folders before it are followed.
pub fn link(root: &Path, path: &Path) -> io::Result<PathBuf> {
    target(&resolve_links(root, path, false)?.place)
}

/// Follows all links of `path` inside the tree `root`.
pub fn resolve(root: &Path, path: &Path) -> io::Result<Resolved> {
    resolve_links(root, path, true)
}

/// `last`: whether a link at the end of `path` is followed.
fn resolve_links(root: &Path, path: &Path, last: bool) -> io::Result<Resolved> {
    let top = tree(root)?;
    let mut left: Vec<OsString> = parts(path);
    // The folders from the root on: `..` leads back to one of them, whatever has been moved since.
    let mut folders: Vec<(PathBuf, File)> = Vec::new();
    let mut links = Vec::new();
    while let Some(part) = left.pop() {
        if part == ".." {
            folders.pop();
            continue;
        }
        let (at, folder) =
            folders.last().map_or((Path::new(""), &top), |(at, folder)| (at.as_path(), folder));
        let next = at.join(&part);
        let found = entry(folder, &part)?;
        if !found.metadata()?.file_type().is_symlink() || (left.is_empty() && !last) {
            folders.push((next, found));
            continue;
        }
        if links.len() == MAX_LINKS {
            return Err(io::Error::from_raw_os_error(libc::ELOOP));
        }
        let to = target(&found)?;
        left.extend(parts(&to));
        if to.is_absolute() {
            folders.clear();
        }
        links.push((next, to));
    }
    let (path, place) = folders.pop().unwrap_or((PathBuf::new(), top));
    Ok(Resolved { path, links, place })
}

/// The parts of a path, last one first, without `/` and `.`.
fn parts(path: &Path) -> Vec<OsString> {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    });
    parts.rev().collect()
}

/// Opens a name in a folder as a place only; a link is opened itself.
pub(super) fn entry(folder: &File, name: &OsStr) -> io::Result<File> {
    let name = CString::new(name.as_bytes())?;
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: reads a live string; returns a new descriptor.
    owned(unsafe { libc::openat(folder.as_raw_fd(), name.as_ptr(), flags) })
}

/// The target of an opened link.
pub(super) fn target(link: &File) -> io::Result<PathBuf> {
    let mut target = [MaybeUninit::<u8>::uninit(); libc::PATH_MAX as usize];
    // SAFETY: writes at most the given number of bytes to a live buffer; the empty path means the descriptor itself.
    let length = checked(unsafe {
        libc::readlinkat(link.as_raw_fd(), c"".as_ptr(), target.as_mut_ptr().cast(), target.len())
    })?;
    let target = &target[..length.unsigned_abs()];
    // SAFETY: the kernel has written that many bytes.
    let bytes = target.iter().map(|byte| unsafe { byte.assume_init() }).collect();
    Ok(PathBuf::from(OsString::from_vec(bytes)))
}

/// Opens `path` below `folder` as openat2(2) does with `resolve`.
pub(super) fn openat2(
    folder: &File,
    path: &Path,
    flags: libc::c_int,
    mode: libc::mode_t,
    resolve: u64,
) -> io::Result<File> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: zero is a valid value of each field.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = flags.unsigned_abs().into();
    how.mode = mode.into();
    how.resolve = resolve;
    // SAFETY: reads a live string and a live structure of the given length; returns a new descriptor.
    owned(unsafe {
        libc::syscall(
            libc::SYS_openat2,
            folder.as_raw_fd(),
            path.as_ptr(),
            &raw const how,
            size_of::<libc::open_how>(),
        )
    })
}

/// Whether the call is missing: in kernels before 5.6, and for filters of system calls that do not know it.
pub(super) fn lacks_openat2(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM))
}

#[cfg(test)]
mod tests {
    use std::{error::Error, fs, io::Read, os::unix::fs::symlink, process::Command};

    use super::*;

    /// A tree with links that lead out of it by their text.
    fn tree(dir: &Path) -> io::Result<PathBuf> {
        let root = dir.join("root");
        fs::create_dir_all(root.join("usr/lib/real"))?;
        fs::create_dir_all(dir.join("etc"))?;
        fs::write(dir.join("etc/secret"), "of the outside")?;
        fs::create_dir(root.join("etc"))?;
        fs::write(root.join("etc/secret"), "of the tree")?;
        symlink("/etc/secret", root.join("usr/absolute"))?;
        symlink("../../../etc/secret", root.join("usr/relative"))?;
        symlink("/", root.join("usr/top"))?;
        symlink("round", root.join("round"))?;
        symlink("/proc/self/root/etc/secret", root.join("usr/magic"))?;
        symlink(dir.join("etc/secret"), root.join("usr/outside"))?;
        Ok(root)
    }

    #[test]
    fn links_lead_to_places_inside_the_tree() -> Result<(), Box<dyn Error>> {
        let dir = tempfile::tempdir()?;
        let root = tree(dir.path())?;
        let paths = [
            "etc/secret",
            "/etc/secret",
            "../../etc/secret",
            "usr/absolute",
            "usr/relative",
            "usr/top/usr/absolute",
            "usr/lib/real/../../absolute",
        ];
        for path in paths.map(Path::new) {
            let mut text = String::new();
            open(&root, path)?.read_to_string(&mut text)?;
            assert_eq!(text, "of the tree", "{}", path.display());
            let found = resolve(&root, path)?;
            assert_eq!(found.path, Path::new("etc/secret"), "{}", path.display());
            assert!(is_file(&root, path) && found.place.metadata()?.is_file());
        }
        for path in ["round", "usr/magic", "usr/outside", "nowhere", "usr", "usr/../.."].map(Path::new) {
            assert!(open(&root, path).is_err() && !is_file(&root, path), "{}", path.display());
        }
        assert_eq!(link(&root, Path::new("usr/top/usr/absolute"))?, Path::new("/etc/secret"));
        assert!(link(&root, Path::new("etc/secret")).is_err());
        Ok(())
    }

    #[test]
    fn old_kernels_resolve_paths_in_the_same_way() -> Result<(), Box<dyn Error>> {
        let dir = tempfile::tempdir()?;
        let root = tree(dir.path())?;
        for path in
            ["", "etc", "usr/top/etc", "usr/relative", "usr/magic", "usr/outside", "../.."].map(Path::new)
        {
            let (new, old) = (place(&root, path), resolve(&root, path));
            let same = |new: File, old: Resolved| {
                use std::os::unix::fs::MetadataExt;
                let [new, old] = [new.metadata()?, old.place.metadata()?];
                io::Result::Ok((new.dev(), new.ino()) == (old.dev(), old.ino()))
            };
            match (new, old) {
                (Ok(new), Ok(old)) => assert!(same(new, old)?, "{}", path.display()),
                (new, old) => assert_eq!(new.is_ok(), old.is_ok(), "{}", path.display()),
            }
        }
        Ok(())
    }

    #[test]
    fn special_files_of_a_tree_are_not_opened() -> Result<(), Box<dyn Error>> {
        let dir = tempfile::tempdir()?;
        let fifo = dir.path().join("meminfo");
        assert!(Command::new("mkfifo").arg(&fifo).status()?.success());
        assert!(open(dir.path(), Path::new("meminfo")).is_err());
        Ok(())
    }
}
