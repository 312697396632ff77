//! The program of a server.

use std::{env, io, path::PathBuf};

use hugewise_linux::proc::smaps::Vma;

/// The absolute path of a program, which a name without a slash has in `PATH`.
pub(crate) fn find(program: &str) -> io::Result<PathBuf> {
    if program.contains('/') {
        return std::path::absolute(program);
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file());
    std::path::absolute(found.ok_or(io::ErrorKind::NotFound)?)
}

/// Whether a process with these mappings runs a program with one of these file names.
pub(crate) fn runs_in(vmas: &[Vma], names: &[&str]) -> bool {
    let is_program = |name: &str| names.iter().any(|program| name.rsplit('/').next() == Some(program));
    vmas.iter().any(|vma| vma.permissions.contains('x') && is_program(&vma.name))
}
