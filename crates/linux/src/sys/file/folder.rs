//! Folders by descriptor: their files are reached by name, whatever the path of the folder leads to later.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink},
    path::{Component, Path, PathBuf},
};

use super::{
    in_root::{entry, target},
    path_of, private_dir, read,
    storage::is_of_proc,
};
use crate::{sys::process, units::Bytes};

/// Largest number of links in a path, as in Linux (path_resolution(7)).
const MAX_LINKS: usize = 40;
/// Largest number of names that are tried for a draft.
const MAX_DRAFTS: u32 = 100;

/// An open folder. Names of its files have no `/`, and no link in place of a file is followed.
#[derive(Debug)]
pub struct Folder(File);

impl Folder {
    /// Opens the folder that the user of a command named. Links of other users are not followed where all users can
    /// create links, whatever fs.protected_symlinks is.
    pub fn open(path: &Path) -> io::Result<Folder> {
        let mut at = place(if path.is_absolute() { Path::new("/") } else { Path::new(".") })?;
        let mut left = parts(path);
        let mut links = 0;
        while let Some(part) = left.pop() {
            let found = entry(&at, &part)?;
            if !found.metadata()?.file_type().is_symlink() {
                at = found;
            } else if is_of_proc(&found)? {
                // What it leads to is not what its text says, and processes cannot create one.
                at = place(&path_of(&at).join(&part))?;
            } else {
                links += 1;
                if links > MAX_LINKS {
                    return Err(io::Error::from_raw_os_error(libc::ELOOP));
                }
                check_link(&at.metadata()?, &found.metadata()?)?;
                let to = target(&found)?;
                left.extend(parts(&to));
                if to.is_absolute() {
                    at = place(Path::new("/"))?;
                }
            }
        }
        match at.metadata()?.is_dir() {
            true => Ok(Folder(at)),
            false => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    /// The folder that contains `file`, and the name of the file in it. See [`Folder::open`].
    pub fn around(file: &Path) -> io::Result<(Folder, OsString)> {
        let name = file.file_name().filter(|_| !file.as_os_str().as_encoded_bytes().ends_with(b"/"));
        let name = name.ok_or(io::ErrorKind::IsADirectory)?;
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        Ok((Folder::open(parent.unwrap_or(Path::new(".")))?, name.to_owned()))
    }

    /// Opens the folder of this user, or creates it with mode 0700. See [`private_dir`].
    pub fn private(path: &Path) -> io::Result<Folder> {
        private_dir(path).map(Folder)
    }

    /// Opens the folder that the user of a command named, or creates it and those around it with `mode`.
    pub fn create_all(path: &Path, mode: u32) -> io::Result<Folder> {
        match Folder::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                let around = Folder::create_all(parent.unwrap_or(Path::new(".")), mode)?;
                around.folder(path.file_name().ok_or(error)?, mode)
            }
            opened => opened,
        }
    }

    /// Opens the folder `name` in this one, or creates it with `mode`.
    pub fn folder(&self, name: &OsStr, mode: u32) -> io::Result<Folder> {
        match DirBuilder::new().mode(mode).create(self.path(name)?) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let found = entry(&self.0, name)?;
        match found.metadata()?.is_dir() {
            true => Ok(Folder(found)),
            false => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    /// Creates the file `name` with `mode` for reading and writing; fails if there is one, or a link.
    pub fn create_new(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        super::create_new(&self.path(name)?, mode)
    }

    /// Creates a link; fails if there is a file or a link of this name.
    pub fn create_link(&self, name: &OsStr, target: &Path) -> io::Result<()> {
        symlink(target, self.path(name)?)
    }

    /// Creates or replaces the file `name`, which has `mode`: readers see the old or the new content.
    pub fn replace(&self, name: &OsStr, mode: u32, content: &[u8]) -> io::Result<()> {
        self.replace_by(name, mode, |draft| draft.write_all(content)).map(drop)
    }

    /// Creates or replaces the file `name` by an empty one, for writing.
    pub fn replace_empty(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        self.replace_by(name, mode, |_| Ok(()))
    }

    /// Whether a file can be created here; none is left behind.
    pub fn check_creation(&self) -> io::Result<()> {
        let (name, _) = self.draft(0o600)?;
        self.remove(&name)
    }

    fn replace_by(
        &self,
        name: &OsStr,
        mode: u32,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> io::Result<File> {
        let to = self.path(name)?;
        let (draft_name, mut draft) = self.draft(0o600)?;
        let replaced = write(&mut draft)
            .and_then(|()| draft.set_permissions(Permissions::from_mode(mode)))
            .and_then(|()| fs::rename(self.path(&draft_name)?, to));
        if let Err(error) = replaced {
            let _ = self.remove(&draft_name);
            return Err(error);
        }
        Ok(draft)
    }

    /// A new file of a name that no file has.
    fn draft(&self, mode: u32) -> io::Result<(OsString, File)> {
        let first = process::monotonic_ns();
        for attempt in 0..MAX_DRAFTS {
            let name = format!(".hugewise-{}-{:x}", std::process::id(), first.wrapping_add(attempt.into()));
            match self.create_new(name.as_ref(), mode) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                created => return created.map(|file| (name.into(), file)),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// The whole regular file `name`; fails if it is longer than `limit` bytes.
    pub fn read(&self, name: &OsStr, limit: u64) -> io::Result<Vec<u8>> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(self.path(name)?)?;
        let length = file.metadata()?.len();
        if length > limit {
            return Err(io::Error::other(format!("longer than {}", Bytes(limit))));
        }
        read::content(read::regular(file)?, limit)
    }

    /// Removes the file or link `name`.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        fs::remove_file(self.path(name)?)
    }

    /// The names in the folder, in the order of the file system.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        read::names(&path_of(&self.0))
    }

    /// Metadata of the file or link `name`.
    pub fn metadata(&self, name: &OsStr) -> io::Result<Metadata> {
        entry(&self.0, name)?.metadata()
    }

    /// Metadata of the folder.
    pub fn own_metadata(&self) -> io::Result<Metadata> {
        self.0.metadata()
    }

    /// `path` from this folder, valid as long as the folder is open.
    pub(super) fn path_to(&self, path: &Path) -> PathBuf {
        path_of(&self.0).join(path)
    }

    pub fn try_clone(&self) -> io::Result<Folder> {
        self.0.try_clone().map(Folder)
    }

    /// Opens the file or link `name` as a place only.
    pub(super) fn entry(&self, name: &OsStr) -> io::Result<File> {
        entry(&self.0, name)
    }

    /// A path by descriptor, valid as long as the folder is open.
    fn path(&self, name: &OsStr) -> io::Result<PathBuf> {
        let mut parts = Path::new(name).components();
        match (parts.next(), parts.next()) {
            (Some(Component::Normal(only)), None) if only == name => Ok(self.path_to(Path::new(name))),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a name of a file")),
        }
    }
}

/// The parts of a path, last one first.
fn parts(path: &Path) -> Vec<OsString> {
    let parts = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    parts.map(|part| part.as_os_str().to_owned()).rev().collect()
}

fn place(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path)
}

/// Whether all users can create files in a folder, and only the owner of a file can rename it.
fn is_shared(folder: &Metadata) -> bool {
    folder.mode() & (libc::S_ISVTX | libc::S_IWOTH) == libc::S_ISVTX | libc::S_IWOTH
}

/// The rule of fs.protected_symlinks, and links of root are followed.
fn check_link(folder: &Metadata, link: &Metadata) -> io::Result<()> {
    let trusted = [process::effective_uid(), 0, folder.uid()];
    if !is_shared(folder) || trusted.contains(&link.uid()) {
        return Ok(());
    }
    let why = format!("a part of the path is a link of uid {} in a folder of all users", link.uid());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_lead_out_of_the_folder() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        fs::create_dir(dir.path().join("inner"))?;
        fs::write(dir.path().join("secret"), "precious")?;
        let folder = Folder::open(&dir.path().join("inner"))?;
        for name in ["../secret", "..", ".", "", "/etc/passwd", "a/b", "a/"].map(OsStr::new) {
            assert!(folder.read(name, 100).is_err(), "{}", name.display());
            assert!(folder.replace(name, 0o600, b"x").is_err(), "{}", name.display());
            assert!(folder.remove(name).is_err(), "{}", name.display());
        }
        assert_eq!(fs::read_to_string(dir.path().join("secret"))?, "precious");
        Ok(())
    }

    #[test]
    fn a_renamed_folder_stays_the_same() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let (name, file) = (dir.path().join("a"), OsStr::new("file"));
        let folder = Folder::create_all(&name, 0o700)?;
        fs::rename(&name, dir.path().join("b"))?;
        fs::create_dir(&name)?;
        folder.replace(file, 0o600, b"text")?;
        assert_eq!(fs::read_dir(&name)?.count(), 0);
        assert_eq!((folder.read(file, 4)?, folder.names()?), (b"text".to_vec(), vec![file.to_owned()]));
        assert!(folder.read(file, 3).is_err());
        folder.remove(file)?;
        assert_eq!(fs::read_dir(dir.path().join("b"))?.count(), 0);
        Ok(())
    }

    #[test]
    fn links_of_this_user_and_of_proc_are_followed() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        fs::create_dir_all(dir.path().join("real/inner"))?;
        symlink("real", dir.path().join("link"))?;
        symlink(dir.path().join("loop"), dir.path().join("loop"))?;
        let same = |path: &Path| -> io::Result<bool> {
            let (found, real) = (Folder::open(path)?.own_metadata()?, fs::metadata(path)?);
            Ok((found.dev(), found.ino()) == (real.dev(), real.ino()))
        };
        let opened = File::open(dir.path().join("real"))?;
        for path in
            [dir.path().join("link/inner/../inner"), path_of(&opened).join("inner"), "/".into(), ".".into()]
        {
            assert!(same(&path)?, "{}", path.display());
        }
        for name in ["loop", "missing"] {
            assert!(Folder::open(&dir.path().join(name)).is_err(), "{name}");
        }
        Ok(())
    }
}
