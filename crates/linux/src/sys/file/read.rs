//! Reads files that another may have made: without waiting for a pipe or device in their place, and never more than a
//! limit.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use super::{path_of, storage::is_of_kernel};
use crate::units::Bytes;

/// Opens a regular file for reading. Does not wait for a pipe or device in its place, and fails for it; also for a link
/// from elsewhere to a file of the kernel, whose readers may take its content away.
pub fn open(path: &Path) -> io::Result<File> {
    let mut how = OpenOptions::new();
    how.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    // Files of the kernel are opened by the thousand, and have no devices among them.
    if ["/proc", "/sys"].iter().any(|kernel| path.starts_with(kernel)) {
        return regular(how.open(path)?);
    }
    let place = regular(place(path)?)?;
    match is_of_kernel(&place)? {
        false => how.open(path_of(&place)),
        true => Err(io::Error::other("a link to a file of the kernel")),
    }
}

/// Opens a place only: opening a device has effects of its own, as that of a watchdog, which then resets the machine.
fn place(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path)
}

/// The file if it is a regular one.
pub(super) fn regular(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not a regular file")) }
}

/// The whole regular file; fails if it is longer than `limit` bytes. See [`open`].
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    content(open(path)?, limit)
}

/// Like [`read`], as text; invalid UTF-8 is replaced.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    read(path, limit).map(text)
}

/// Invalid UTF-8 is replaced; valid text is not copied.
pub(crate) fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// What is left of `source`; fails if it is longer than `limit` bytes.
pub fn content(source: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::other(format!("longer than {}", Bytes(limit))));
    }
    Ok(bytes)
}

/// Opens what the user of a command named: a regular file, a pipe, a terminal, or /dev/null. Waits for the other end of
/// a pipe, as a shell does; fails for folders, for other devices, and for files of the kernel, which may have no end: a
/// link can lead to /proc/kmsg or trace_pipe, whose readers take what they read away.
pub fn open_named(path: &Path) -> io::Result<File> {
    let place = place(path)?;
    let found = place.metadata()?;
    let kind = found.file_type();
    let is_stored = kind.is_file() && !is_of_kernel(&place)?;
    match is_stored || kind.is_fifo() || (kind.is_char_device() && has_end(found.rdev())) {
        true => OpenOptions::new().read(true).custom_flags(libc::O_NOCTTY).open(path_of(&place)),
        false if kind.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        false if kind.is_file() => Err(io::Error::other("a file of the kernel, which can have no end")),
        false => Err(io::Error::other("neither a file nor a pipe")),
    }
}

/// Whether the character device of this number is a terminal or /dev/null. A serial line counts as none.
///
/// Source: the kernel's Documentation/admin-guide/devices.txt.
fn has_end(device: libc::dev_t) -> bool {
    matches!((libc::major(device), libc::minor(device)), (1, 3) | (4, 0..=63) | (5, 0 | 1) | (136..=143, _))
}

/// The names in a folder, in the order of the file system.
pub fn names(folder: &Path) -> io::Result<Vec<OsString>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect()
}

/// The target of a link.
pub fn link(path: &Path) -> io::Result<PathBuf> {
    fs::read_link(path)
}

#[cfg(test)]
mod tests {
    use std::{error::Error, os::unix::fs::symlink, process::Command};

    use super::*;

    #[test]
    fn nothing_is_read_beyond_the_limit() -> Result<(), Box<dyn Error>> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("file");
        for (length, fits) in [(0, true), (9, true), (10, true), (11, false), (1000, false)] {
            fs::write(&path, vec![b'x'; length])?;
            let read = read(&path, 10);
            assert_eq!(read.is_ok_and(|bytes| bytes.len() == length), fits, "{length}");
        }
        // The reported length of a file says nothing.
        let refused = content(io::repeat(0), 2 << 20).map_err(|error| error.to_string());
        assert_eq!(refused, Err("longer than 2MiB".to_owned()));
        Ok(())
    }

    #[test]
    fn only_regular_files_are_read() -> Result<(), Box<dyn Error>> {
        let dir = tempfile::tempdir()?;
        let fifo = dir.path().join("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status()?.success());
        symlink(&fifo, dir.path().join("link"))?;
        // A read of the pipe would wait for ever.
        for path in [&fifo, &dir.path().join("link"), dir.path(), Path::new("/dev/zero")] {
            assert!(read(path, 10).is_err(), "{}", path.display());
        }
        for path in [dir.path(), Path::new("/dev/zero")] {
            assert!(open_named(path).is_err(), "{}", path.display());
        }
        symlink("/proc/self/environ", dir.path().join("recording"))?;
        assert!(open(&dir.path().join("recording")).is_err());
        for path in [dir.path().join("recording").as_path(), Path::new("/proc/self/environ")] {
            assert!(open_named(path).is_err(), "{}", path.display());
        }
        Ok(())
    }

    #[test]
    fn a_device_is_not_opened() -> Result<(), Box<dyn Error>> {
        let dir = tempfile::tempdir()?;
        let device = dir.path().join("device");
        // Without a driver: opening it is an error of its own (ENXIO).
        if !Command::new("mknod").arg(&device).args(["c", "241", "7"]).status()?.success() {
            return Ok(());
        }
        symlink(&device, dir.path().join("link"))?;
        for path in [&device, &dir.path().join("link")] {
            for opened in [open(path), open_named(path)] {
                assert!(opened.is_err_and(|error| error.raw_os_error().is_none()), "{}", path.display());
            }
        }
        Ok(())
    }
}
