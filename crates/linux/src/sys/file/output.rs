//! Files that the user of a command named for output.
//!
//! A file is created beside its name and renamed: what stands at the name, which another user may have put there, is
//! replaced, never written to or followed. A pipe or device is written to only if it belongs to this user or root, or
//! was inherited.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::{
        fd::AsRawFd,
        unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use super::{Folder, in_root::target, path_of};
use crate::sys::{checked, owned, process};

/// Largest number of links from a name to a pipe or device.
const MAX_LINKS: usize = 8;
/// Longest wait for a process that reads the pipe.
const MAX_WAIT_FOR_READER: Duration = Duration::from_secs(1);
const READER_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Who may read the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// All users.
    All,
    /// Only its owner: it contains command lines, names or environments of processes.
    Owner,
}

impl Readers {
    fn mode(self) -> u32 {
        match self {
            Readers::All => 0o644,
            Readers::Owner => 0o600,
        }
    }
}

/// A place that the user named for output.
#[derive(Debug)]
pub struct Output {
    place: Place,
    readers: Readers,
}

#[derive(Debug)]
enum Place {
    File(Folder, OsString),
    Stream(Stream),
}

/// What is written to as it is.
#[derive(Debug)]
enum Stream {
    /// An open file of this process, such as /dev/stdout.
    Inherited(File),
    /// A pipe, opened as a place only: its reader waits for the end of all writers.
    Pipe(File),
    Device(File),
}

impl Output {
    /// The place that `path` names. Nothing is created or written yet.
    pub fn at(path: &Path, readers: Readers) -> io::Result<Output> {
        let (folder, name) = Folder::around(path)?;
        let place = match stream(&folder, &name, readers)? {
            Some(stream) => Place::Stream(stream),
            None => Place::File(folder, name),
        };
        Ok(Output { place, readers })
    }

    /// Fails if the output cannot be written; leaves no file behind.
    pub fn check(&self) -> io::Result<()> {
        match &self.place {
            Place::File(folder, _) => folder.check_creation(),
            Place::Stream(_) => Ok(()),
        }
    }

    /// Whether later output can replace earlier output.
    pub fn is_file(&self) -> bool {
        matches!(self.place, Place::File(..))
    }

    /// Writes all of the output. Readers of a file see the old or the new content.
    pub fn write(self, content: &[u8]) -> io::Result<()> {
        match self.place {
            Place::File(folder, name) => folder.replace(&name, self.readers.mode(), content),
            Place::Stream(stream) => stream.open()?.write_all(content),
        }
    }

    /// Opens the stream, or a new file in place of the old one.
    pub fn into_file(self) -> io::Result<File> {
        match self.place {
            Place::File(folder, name) => folder.replace_empty(&name, self.readers.mode()),
            Place::Stream(stream) => stream.open(),
        }
    }
}

impl Stream {
    fn open(self) -> io::Result<File> {
        match self {
            Stream::Inherited(file) => Ok(file),
            Stream::Pipe(place) => open_pipe(&place),
            Stream::Device(place) => {
                OpenOptions::new().append(true).custom_flags(libc::O_NOCTTY).open(path_of(&place))
            }
        }
    }
}

/// The pipe or device to which `name` leads; `None` for a file, a link to one, and a link of another user.
fn stream(folder: &Folder, name: &OsStr, readers: Readers) -> io::Result<Option<Stream>> {
    let (mut folder, mut name) = (folder.try_clone()?, name.to_owned());
    for _ in 0..MAX_LINKS {
        if let Some(number) = inherited(&folder, &name)? {
            return duplicate(number).map(|file| Some(Stream::Inherited(file)));
        }
        let place = match folder.entry(&name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            place => place?,
        };
        let found = place.metadata()?;
        let kind = found.file_type();
        let trusted = [process::effective_uid(), 0].contains(&found.uid());
        if kind.is_dir() {
            return Err(io::Error::other("it is a folder"));
        } else if kind.is_file() || (kind.is_symlink() && !trusted) {
            return Ok(None);
        } else if kind.is_symlink() {
            let to: PathBuf = target(&place)?;
            (folder, name) = Folder::around(&folder.path_to(&to))?;
        } else if !trusted {
            return Err(refused(&format!("it is a pipe or device of uid {}; {REDIRECT}", found.uid())));
        } else if kind.is_fifo() {
            if readers == Readers::Owner && found.mode() & 0o044 != 0 {
                return Err(refused(&format!("other users can read this pipe; chmod 600, or {REDIRECT}")));
            }
            return Ok(Some(Stream::Pipe(place)));
        } else if kind.is_char_device() {
            return Ok(Some(Stream::Device(place)));
        } else {
            return Err(refused("it is a socket or a block device"));
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

const REDIRECT: &str = "write to /dev/stdout, and redirect it";

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

/// The descriptor of this process that `name` in `folder` stands for.
fn inherited(folder: &Folder, name: &OsStr) -> io::Result<Option<i32>> {
    let Some(number) = name.to_str().and_then(|name| name.parse().ok()) else { return Ok(None) };
    let (found, own) = (folder.own_metadata()?, fs::metadata("/proc/self/fd"));
    let is_own = own.is_ok_and(|own| (own.dev(), own.ino()) == (found.dev(), found.ino()));
    Ok(is_own.then_some(number))
}

/// Another descriptor of the same open file: its position is common to both.
fn duplicate(number: i32) -> io::Result<File> {
    // SAFETY: takes a number that need not be a descriptor, and returns a new descriptor.
    let file = owned(unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) })?;
    match flags(&file)? & libc::O_ACCMODE {
        libc::O_RDONLY => Err(refused("it is open for reading only")),
        _ => Ok(file),
    }
}

/// Opens a pipe, once a process reads it.
fn open_pipe(place: &File) -> io::Result<File> {
    let end = Instant::now() + MAX_WAIT_FOR_READER;
    let mut how = OpenOptions::new();
    how.write(true).custom_flags(libc::O_NONBLOCK);
    loop {
        match how.open(path_of(place)) {
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
                if Instant::now() >= end {
                    return Err(io::Error::other("no process reads this pipe"));
                }
                thread::sleep(READER_POLL_INTERVAL);
            }
            opened => {
                let pipe = opened?;
                let flags = flags(&pipe)? & !libc::O_NONBLOCK;
                // SAFETY: takes a descriptor that we own and no memory.
                checked(unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, flags) })?;
                return Ok(pipe);
            }
        }
    }
}

fn flags(file: &File) -> io::Result<i32> {
    // SAFETY: takes a descriptor that we own and no memory.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) })
}

#[cfg(test)]
mod tests;
