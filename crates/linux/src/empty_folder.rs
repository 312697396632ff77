//! Empty folders in which other programs run.

use std::{
    env, fs, io,
    path::Path,
    time::{Duration, SystemTime},
};

use tempfile::TempDir;

const PREFIX: &str = "hugewise-asks-";
/// No program that is asked for its settings runs this long.
const UNUSED_AFTER: Duration = Duration::from_secs(3600);

/// Creates a folder that is removed with the value, and removes those that a killed hugewise has left.
pub fn create() -> io::Result<TempDir> {
    remove_unused(&env::temp_dir(), SystemTime::now());
    tempfile::Builder::new().prefix(PREFIX).tempdir()
}

fn remove_unused(parent: &Path, now: SystemTime) {
    for folder in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_named = folder.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        let age = || now.duration_since(folder.metadata()?.modified()?).map_err(io::Error::other);
        if is_named && age().is_ok_and(|age| age > UNUSED_AFTER) {
            // Removes neither a link nor a folder with files.
            let _ = fs::remove_dir(folder.path());
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
        remove_unused(parent.path(), now);
        assert_eq!(names()?.len(), 4);
        remove_unused(parent.path(), now + UNUSED_AFTER + Duration::from_secs(1));
        assert_eq!(names()?, ["hugewise-asks-link", "hugewise-asks-used", "other"]);
        Ok(())
    }
}
