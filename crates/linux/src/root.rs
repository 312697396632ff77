//! The root of the files read: `/`, or a captured tree of another machine.

use std::{
    borrow::Cow,
    ffi::OsStr,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    capture::Capture,
    sys::file::{
        self, in_root,
        patient::{self, PatientFile},
    },
};

/// The folder in place of `/`.
#[derive(Clone, Debug)]
pub struct Root {
    dir: PathBuf,
    tape: Option<Arc<Mutex<Capture>>>,
    /// Process whose control group, limits and identity are read in place of this one's.
    in_place: Option<u32>,
}

/// Files of `proc/self` that a program plans by: those of the process that [`Root::in_place_of_this`] names.
const OF_PROGRAM: [&str; 3] = ["cgroup", "limits", "status"];

/// Largest command line, environment or name of a process, in bytes, all of which it can rewrite. The kernel accepts
/// a quarter of the limit of the stack, 2 MiB by default, at its start (execve(2)).
pub const MAX_PROCESS_TEXT_BYTES: u64 = 2 << 20;
/// Largest list of the mappings of a process, in bytes: 65,530 mappings (`vm.max_map_count`) with their paths, as of a
/// million mappings without.
const MAX_MAPPINGS_BYTES: u64 = 64 << 20;
/// Largest other file of the kernel, in bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// The largest size of the file of this name, in bytes.
fn limit(path: &Path) -> u64 {
    match path.file_name().and_then(OsStr::to_str) {
        Some("cmdline" | "environ" | "comm") => MAX_PROCESS_TEXT_BYTES,
        Some("maps" | "numa_maps") => MAX_MAPPINGS_BYTES,
        _ => MAX_FILE_BYTES,
    }
}

/// A file that could not be read or parsed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The content is not in the format that the kernel documents.
    #[error("{}:{line}: expected {expected}, found '{found}'", path.display())]
    Content {
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The expected content.
        expected: &'static str,
        /// The actual content, at most 80 characters.
        found: String,
    },
}

impl ReadError {
    /// True if reading it is not permitted.
    pub fn is_denied(&self) -> bool {
        matches!(self, ReadError::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }

    /// True if the file does not exist.
    pub fn is_absent(&self) -> bool {
        // EOPNOTSUPP and the like mean that the file exists.
        matches!(self, ReadError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> io::Error {
        match error {
            ReadError::Io { source, .. } => source,
            content @ ReadError::Content { .. } => io::Error::other(content),
        }
    }
}

impl Root {
    /// The running machine.
    pub fn live() -> Root {
        Root::at("/")
    }

    /// A captured tree, or one made for a test.
    pub fn at(dir: impl Into<PathBuf>) -> Root {
        Root { dir: dir.into(), tape: None, in_place: None }
    }

    /// The same root, which records everything that is read: see [`Root::recorded`].
    #[must_use]
    pub fn recording(self) -> Root {
        Root { tape: Some(Arc::default()), ..self }
    }

    /// The same root, in which a process stands for this one: its control group, limits and identity are read below
    /// `proc/self`, and recorded there.
    #[must_use]
    pub fn in_place_of_this(self, pid: u32) -> Root {
        Root { in_place: Some(pid), ..self }
    }

    /// The path that is read for `path`.
    fn source<'a>(&self, path: &'a Path) -> Cow<'a, Path> {
        let name = path
            .strip_prefix("proc/self")
            .ok()
            .filter(|name| OF_PROGRAM.iter().any(|own| *name == Path::new(own)));
        match (self.in_place, name) {
            (Some(pid), Some(name)) => Cow::Owned(Path::new("proc").join(pid.to_string()).join(name)),
            _ => Cow::Borrowed(path),
        }
    }

    /// Whether this root records.
    pub fn is_recording(&self) -> bool {
        self.tape.is_some()
    }

    /// Everything that was read through this root and its clones since [`Root::recording`].
    pub fn recorded(&self) -> Capture {
        let tape = self.tape.as_ref().map(|tape| tape.lock().unwrap_or_else(PoisonError::into_inner).clone());
        tape.unwrap_or_default()
    }

    fn record(&self, record: impl FnOnce(&mut Capture)) {
        if let Some(tape) = &self.tape {
            record(&mut tape.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// True for the running machine: system calls and files then describe the same machine.
    pub fn is_live(&self) -> bool {
        self.dir == Path::new("/")
    }

    /// The absolute path of `path`, which is relative to `/` and has no leading slash.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.dir.join(path)
    }

    /// The whole file as text; invalid UTF-8 is replaced.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<String, ReadError> {
        self.read_bytes(path).map(file::text)
    }

    /// The whole file. Fails if it is longer than a file of its name can be.
    pub fn read_bytes(&self, path: impl AsRef<Path>) -> Result<Vec<u8>, ReadError> {
        let path = path.as_ref();
        self.read_within(path, limit(path))
    }

    /// The whole file. Fails if it is longer than `limit` bytes.
    pub fn read_within(&self, path: impl AsRef<Path>, limit: u64) -> Result<Vec<u8>, ReadError> {
        let path = path.as_ref();
        let source = self.source(path);
        let content = match self.is_live() {
            true => patient::read(&self.path(&source), limit).map_err(|error| self.failed(&source, error))?,
            false => {
                file::content(self.open(&source)?, limit).map_err(|error| self.failed(&source, error))?
            }
        };
        self.record(|tape| tape.file(path, &content));
        Ok(content)
    }

    /// Opens a regular file to be read piece by piece; not recorded. Does not wait for a pipe or device in its place.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File, ReadError> {
        let path = path.as_ref();
        let opened = match self.is_live() {
            true => file::open(&self.path(path)),
            false => in_root::open(&self.dir, path),
        };
        opened.map_err(|source| self.failed(path, source))
    }

    /// Like [`Root::open`], for a file whose reads may wait for the lock of the address space of a process.
    pub fn open_patiently(&self, path: impl AsRef<Path>) -> Result<PatientFile, ReadError> {
        let path = path.as_ref();
        match self.is_live() {
            true => PatientFile::open(&self.path(path)).map_err(|source| self.failed(path, source)),
            false => self.open(path).map(PatientFile::from),
        }
    }

    /// At most `length` bytes from the beginning of a file; not recorded.
    pub fn beginning(&self, path: impl AsRef<Path>, length: u64) -> Result<Vec<u8>, ReadError> {
        let path = path.as_ref();
        let mut bytes = Vec::new();
        let read = self.open(path)?.take(length).read_to_end(&mut bytes);
        read.map_err(|source| self.failed(path, source))?;
        Ok(bytes)
    }

    /// True if there is a regular file at `path`.
    pub fn has_file(&self, path: impl AsRef<Path>) -> bool {
        let path = path.as_ref();
        let found = match self.is_live() {
            true => self.path(path).is_file(),
            false => in_root::is_file(&self.dir, path),
        };
        if found {
            self.record(|tape| tape.present(path));
        }
        found
    }

    /// The target of the link `path`, as it is written there; not recorded.
    pub fn link(&self, path: impl AsRef<Path>) -> Result<PathBuf, ReadError> {
        let path = path.as_ref();
        let target = match self.is_live() {
            true => patient::link(&self.path(path)),
            false => in_root::link(&self.dir, path),
        };
        target.map_err(|source| self.failed(path, source))
    }

    /// The target of `path` with all links followed, relative to `/`.
    ///
    /// Links of a captured tree are followed inside the tree, as they were on its machine.
    pub fn resolve(&self, path: impl AsRef<Path>) -> Result<PathBuf, ReadError> {
        let path = path.as_ref();
        let found = in_root::resolve(&self.dir, path).map_err(|source| self.failed(path, source))?;
        for (link, target) in &found.links {
            self.record(|tape| tape.link(link, target));
        }
        Ok(found.path)
    }

    fn failed(&self, path: &Path, source: io::Error) -> ReadError {
        ReadError::Io { path: self.path(path), source }
    }

    /// The whole file as one value, without surrounding white space.
    pub fn value<T: FromStr>(&self, path: impl AsRef<Path>, expected: &'static str) -> Result<T, ReadError> {
        self.parsed(path, expected, |text| text.parse().ok())
    }

    /// The whole file, without surrounding white space, parsed by `parse`.
    pub fn parsed<T>(
        &self,
        path: impl AsRef<Path>,
        expected: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, ReadError> {
        let text = self.read(path.as_ref())?;
        parse(text.trim()).ok_or_else(|| self.content(path, 1, expected, text.trim()))
    }

    /// The selected word of a list like `always [madvise] never`.
    pub fn choice(&self, path: impl AsRef<Path>) -> Result<String, ReadError> {
        self.parsed(path, "one word in [brackets]", |text| {
            Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
        })
    }

    /// The names in a folder, sorted.
    pub fn list(&self, path: impl AsRef<Path>) -> Result<Vec<String>, ReadError> {
        let path = path.as_ref();
        let names = match self.is_live() {
            true => file::names(&self.path(path)),
            false => in_root::names(&self.dir, path),
        };
        let names = names.map_err(|source| self.failed(path, source))?;
        let mut names: Vec<String> = names.iter().map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        Ok(names)
    }

    pub fn content(
        &self,
        path: impl AsRef<Path>,
        line: usize,
        expected: &'static str,
        found: &str,
    ) -> ReadError {
        ReadError::Content { path: self.path(path), line, expected, found: found.chars().take(80).collect() }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn links_of_a_tree_are_followed_inside_the_tree() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        fs::create_dir_all(dir.path().join("usr/lib/real"))?;
        symlink("/usr/lib/real", dir.path().join("usr/absolute"))?;
        symlink("../usr/absolute", dir.path().join("usr/relative"))?;
        symlink("round", dir.path().join("round"))?;
        let root = Root::at(dir.path());
        for path in ["usr/lib/real", "usr/absolute", "usr/relative/../real", "../../usr/absolute"] {
            assert_eq!(root.resolve(path).ok(), Some(PathBuf::from("usr/lib/real")), "{path}");
        }
        assert!(root.resolve("round").is_err());
        assert!(root.resolve("nowhere").is_err_and(|e| e.is_absent()));
        Ok(())
    }

    #[test]
    fn oversized_and_special_files_are_not_read() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        for (name, limit) in [("cmdline", MAX_PROCESS_TEXT_BYTES), ("meminfo", MAX_FILE_BYTES)] {
            File::create(dir.path().join(name))?.set_len(limit + 1)?;
        }
        symlink("/dev/zero", dir.path().join("zero"))?;
        let root = Root::at(dir.path());
        for path in ["cmdline", "meminfo", "zero", ""] {
            assert!(root.read(path).is_err(), "{path}");
        }
        Ok(())
    }

    #[test]
    fn a_process_stands_for_this_one() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        for (path, text) in
            [("proc/self/cgroup", "0::/own"), ("proc/7/cgroup", "0::/its"), ("proc/self/auxv", "own")]
        {
            fs::create_dir_all(dir.path().join(path).parent().unwrap_or(dir.path()))?;
            fs::write(dir.path().join(path), text)?;
        }
        let root = Root::at(dir.path()).recording().in_place_of_this(7);
        assert_eq!(root.read("proc/self/cgroup").ok().as_deref(), Some("0::/its"));
        assert_eq!(root.read("proc/self/auxv").ok().as_deref(), Some("own"));
        assert_eq!(root.recorded().content(Path::new("proc/self/cgroup")), Some(&b"0::/its"[..]));
        Ok(())
    }

    #[test]
    fn a_root_that_records_keeps_what_was_read() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        fs::write(dir.path().join("a"), [0xff, 0, b'x'])?;
        fs::write(dir.path().join("b"), "never read")?;
        let root = Root::at(dir.path()).recording();
        assert!(root.clone().read("a").is_ok() && root.read("missing").is_err());
        let copy = tempfile::tempdir()?;
        root.recorded().write(copy.path(), false)?;
        assert_eq!(fs::read(copy.path().join("a"))?, [0xff, 0, b'x']);
        assert!(!copy.path().join("b").exists());
        Ok(())
    }
}
