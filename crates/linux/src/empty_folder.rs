//! Empty temporary folders in which other programs run, and which stay if hugewise is killed.

use std::{
    env, fs, io,
    path::Path,
    time::{Duration, SystemTime},
};

use crate::sys::file;

/// Beginning of their names.
pub const PREFIX: &str = "hugewise-asks-";
/// No program that is asked for its settings runs this long.
const UNUSED_AFTER: Duration = Duration::from_secs(3600);

/// Removes those that have stayed.
pub fn remove_unused() {
    remove_unused_in(&env::temp_dir(), SystemTime::now());
}

fn remove_unused_in(parent: &Path, now: SystemTime) {
    for name in file::names(parent).unwrap_or_default() {
        let folder = parent.join(&name);
        let is_named = name.to_str().is_some_and(|name| name.starts_with(PREFIX));
        let age = || now.duration_since(folder.symlink_metadata()?.modified()?).map_err(io::Error::other);
        if is_named && age().is_ok_and(|age| age > UNUSED_AFTER) {
            // Removes neither a link nor a folder with files.
            let _ = fs::remove_dir(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_old_empty_folders_of_this_name_are_removed() -> io::Result<()> {
        let parent = tempfile::tempdir()?;
        for name in ["hugewise-asks-empty", "hugewise-asks-used/file", "other"] {
            fs::create_dir_all(parent.path().join(name))?;
        }
        symlink(parent.path().join("other"), parent.path().join("hugewise-asks-link"))?;
        let names = || -> io::Result<Vec<_>> {
            let mut names = fs::read_dir(parent.path())?
                .map(|entry| entry.map(|entry| entry.file_name()))
                .collect::<io::Result<Vec<_>>>()?;
            names.sort();
            Ok(names)
        };
        let now = SystemTime::now();
        remove_unused_in(parent.path(), now);
        assert_eq!(names()?.len(), 4);
        remove_unused_in(parent.path(), now + UNUSED_AFTER + Duration::from_secs(1));
        assert_eq!(names()?, ["hugewise-asks-link", "hugewise-asks-used", "other"]);
        Ok(())
    }
}
