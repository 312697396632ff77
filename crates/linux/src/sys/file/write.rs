//! Creates and writes files.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::Path,
};

use crate::sys::process;

/// Opens the folder `path`, creating it with mode 0700 if missing.
///
/// Fails for a link, a folder of another owner, and a folder in which other users can create files.
pub fn private_dir(path: &Path) -> io::Result<File> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let dir = OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(path)?;
    let found = dir.metadata()?;
    if found.uid() != process::effective_uid() || found.mode() & 0o022 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("it belongs to uid {} with mode {:o}", found.uid(), found.mode() & 0o7777),
        ));
    }
    Ok(dir)
}

/// Opens a folder, for its lock, or to sync its names to disk.
pub fn open_folder(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(path)
}

/// Creates a file with `mode` for reading and writing, or empties the one that is there. Fails for a link.
pub fn create(path: &Path, mode: u32) -> io::Result<File> {
    let mut how = OpenOptions::new();
    let how = how.read(true).write(true).create(true).truncate(true).mode(mode);
    super::read::regular(how.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?)
}

/// Creates a file with `mode` for reading and writing. Fails if there is one, or a link of this name.
pub fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(path)
}

/// Opens the file `path` of a private folder for reading and writing, and creates it with mode 0600 if missing. Fails
/// for a link and for what is not a regular file.
pub fn open_private(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let mut how = OpenOptions::new();
    let how = how.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
    super::read::regular(how.open(path)?)
}

/// Replaces the content of an existing file of the kernel with `text`, in one write.
pub fn set(path: &Path, text: &str) -> io::Result<()> {
    existing(path, OpenOptions::new().write(true).truncate(true))?.write_all(text.as_bytes())
}

/// Opens an existing file of the kernel to which each write adds an entry.
pub fn open_to_add(path: &Path) -> io::Result<File> {
    existing(path, OpenOptions::new().append(true))
}

fn existing(path: &Path, how: &mut OpenOptions) -> io::Result<File> {
    super::read::regular(how.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?)
}

/// Opens a device of root, such as /dev/null, to write at its end.
pub fn open_stream(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).custom_flags(libc::O_NOCTTY).open(path)
}
