//! Who can replace a file.

use std::{fs, io, os::unix::fs::MetadataExt, path::Path};

/// Write permission for group and others.
const WRITABLE: u32 = 0o022;
/// In a sticky folder, files can be replaced by their owners only.
const STICKY: u32 = 0o1000;

/// Fails if users other than root and `user` can change or replace the file `path`, which has no links.
pub fn check_owners(path: &Path, user: u32) -> io::Result<()> {
    for (above, part) in path.ancestors().enumerate() {
        let found = fs::symlink_metadata(part)?;
        let (uid, mode) = (found.uid(), found.mode() & 0o7777);
        let is_protected = mode & WRITABLE == 0 || (above > 0 && mode & STICKY != 0);
        if (uid != 0 && uid != user) || !is_protected {
            let allowed =
                if user == 0 { "only root".to_owned() } else { format!("only root and uid {user}") };
            let reason = format!(
                "{} belongs to uid {uid} with mode {mode:o}: {allowed} may be able to replace {}",
                part.display(),
                path.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;
    use crate::sys::process;

    #[test]
    fn a_file_that_others_can_replace_is_refused() -> io::Result<()> {
        let ours = process::effective_uid();
        let dir = tempfile::tempdir()?;
        let folder = dir.path().join("folder");
        let file = fs::canonicalize(dir.path())?.join("folder/file");
        fs::create_dir(&folder)?;
        fs::write(&file, "")?;
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
        for (of_folder, of_file, is_accepted) in [
            (0o755, 0o644, true),
            (0o1777, 0o644, true),
            (0o777, 0o644, false),
            (0o775, 0o644, false),
            (0o755, 0o666, false),
            (0o755, 0o1666, false),
        ] {
            mode(&folder, of_folder)?;
            mode(&file, of_file)?;
            assert_eq!(check_owners(&file, ours).is_ok(), is_accepted, "{of_folder:o} {of_file:o}");
        }
        mode(&file, 0o644)?;
        if process::is_root() {
            for path in [&folder, &file] {
                chown(path, Some(65534), None)?;
                assert!(check_owners(&file, 0).is_err() && check_owners(&file, 65534).is_ok());
                chown(path, Some(0), None)?;
            }
        }
        Ok(())
    }
}
