//! Finds the files of programs.

use std::{
    env,
    ffi::OsStr,
    fs, io,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
};

/// Finds the file of a command of this process as execvp(3) does.
pub fn find(command: &OsStr) -> io::Result<PathBuf> {
    let runs = |path: &Path| {
        fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if command.as_bytes().contains(&b'/') {
        // The kernel reports errors of an explicit path.
        return Ok(command.into());
    }
    let path = env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let here = |dir: PathBuf| if dir.as_os_str().is_empty() { PathBuf::from(".") } else { dir };
    env::split_paths(&path)
        .map(|dir| here(dir).join(command))
        .find(|path| runs(path))
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no folder of PATH has such a program"))
}
