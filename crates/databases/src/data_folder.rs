//! The data folder of a server, whose owner is not trusted: the server's program runs as that owner.

use std::{
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use hugewise_linux::{root::Root, sys::process, users::Account};

/// Write permission for group and others.
const WRITABLE: u32 = 0o022;
/// In a sticky folder, files can be replaced by their owners only.
const STICKY: u32 = 0o1000;

/// A data folder, and the user as whom its server is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataFolder {
    /// Absolute path without links.
    pub path: PathBuf,
    pub uid: u32,
    /// The owner; `None` if this process cannot change its user, and starts the program as its own.
    pub owner: Option<Account>,
}

/// Why the program of a data folder cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error("the data folder {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the data folder {} is not a folder", path.display())]
    NotAFolder { path: PathBuf },
    #[error("the data folder {} belongs to root, and no database server runs as root", path.display())]
    OfRoot { path: PathBuf },
    #[error(
        "{} belongs to uid {found} with mode {mode:o}: users other than root and uid {owner} could replace the data \
         folder; remove their write permission, or run hugewise as uid {owner}", path.display()
    )]
    Replaceable { path: PathBuf, owner: u32, found: u32, mode: u32 },
    #[error(
        "the configuration in {} belongs to uid {configured}, and names a data folder of uid {uid}: it could run its \
         code as that user; run hugewise as uid {uid}", path.display()
    )]
    OtherOwner { path: PathBuf, configured: u32, uid: u32 },
    #[error("the owner of the data folder, uid {uid}, is not in /etc/passwd; run hugewise as that user")]
    NoUser { uid: u32 },
}

impl DataFolder {
    pub fn open(path: &Path) -> Result<DataFolder, FolderError> {
        let of = |path: &Path| {
            let path = path.to_owned();
            |source| FolderError::Read { path, source }
        };
        let path = fs::canonicalize(path).map_err(of(path))?;
        let found = fs::symlink_metadata(&path).map_err(of(&path))?;
        if !found.is_dir() {
            return Err(FolderError::NotAFolder { path });
        }
        let uid = found.uid();
        if !process::is_root() {
            return Ok(DataFolder { path, uid, owner: None });
        }
        if uid == 0 {
            return Err(FolderError::OfRoot { path });
        }
        for above in path.ancestors().skip(1) {
            let found = fs::symlink_metadata(above).map_err(of(above))?;
            if is_replaceable(&found, uid) {
                let (path, mode) = (above.to_owned(), found.mode() & 0o7777);
                return Err(FolderError::Replaceable { path, owner: uid, found: found.uid(), mode });
            }
        }
        let owner = Account::of_uid(&Root::live(), uid).ok_or(FolderError::NoUser { uid })?;
        Ok(DataFolder { path, uid, owner: Some(owner) })
    }

    /// The data folder that a configuration in this folder names. If this process changes its user, both must belong to
    /// the same one.
    pub fn named_here(&self, data: DataFolder) -> Result<DataFolder, FolderError> {
        match self.owner == data.owner {
            true => Ok(data),
            false => {
                let (path, configured) = (self.path.clone(), self.uid);
                Err(FolderError::OtherOwner { path, configured, uid: data.uid })
            }
        }
    }
}

/// Whether users other than root and `owner` can replace the entries of a folder.
fn is_replaceable(folder: &Metadata, owner: u32) -> bool {
    let (mode, uid) = (folder.mode(), folder.uid());
    (uid != 0 && uid != owner) || (mode & WRITABLE != 0 && mode & STICKY == 0)
}

#[cfg(test)]
mod tests {
    use std::{
        error::Error,
        os::unix::fs::{PermissionsExt, chown, symlink},
    };

    use hugewise_linux::users::User;

    use super::*;

    #[test]
    fn a_configuration_starts_no_program_as_another_user() {
        let folder = |uid| DataFolder {
            path: PathBuf::from("/data"),
            uid,
            owner: Some(Account {
                name: format!("user{uid}"),
                user: User { uid, gid: 7 },
                home: PathBuf::from("/"),
                groups: Vec::new(),
            }),
        };
        assert!(folder(101).named_here(folder(101)).is_ok());
        assert!(matches!(folder(1000).named_here(folder(101)), Err(FolderError::OtherOwner { .. })));
        // Without root, everything runs as the present user.
        let own = |uid| DataFolder { owner: None, ..folder(uid) };
        assert!(own(1000).named_here(own(101)).is_ok());
    }

    #[test]
    fn a_folder_that_others_can_replace_is_refused() -> Result<(), Box<dyn Error>> {
        let dir = tempfile::tempdir()?;
        let (parent, data) = (dir.path().join("parent"), dir.path().join("parent/data"));
        fs::create_dir_all(&data)?;
        symlink(&data, dir.path().join("link"))?;
        let opened = || DataFolder::open(&dir.path().join("link"));
        if !process::is_root() {
            assert_eq!((opened()?.owner, opened()?.path), (None, fs::canonicalize(&data)?));
            return Ok(());
        }
        assert!(matches!(opened(), Err(FolderError::OfRoot { .. })));
        // nobody
        chown(&data, Some(65534), Some(65534))?;
        assert_eq!(opened()?.owner.map(|owner| owner.user), Some(User { uid: 65534, gid: 65534 }));
        fs::set_permissions(&parent, fs::Permissions::from_mode(0o777))?;
        assert!(matches!(opened(), Err(FolderError::Replaceable { .. })));
        fs::set_permissions(&parent, fs::Permissions::from_mode(0o1777))?;
        assert!(opened().is_ok());
        chown(&parent, Some(7), None)?;
        assert!(matches!(opened(), Err(FolderError::Replaceable { found: 7, .. })));
        Ok(())
    }
}
