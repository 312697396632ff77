//! The root of the files read: `/`, or a captured tree of another machine.

use std::{
    ffi::OsString,
    fs,
    io::{self, Read},
    path::{Component, Path, PathBuf},
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
};

use crate::capture::Capture;

/// The folder in place of `/`.
#[derive(Clone, Debug)]
pub struct Root {
    dir: PathBuf,
    tape: Option<Arc<Mutex<Capture>>>,
}

/// Maximum size of a file, in bytes: no file of the kernel is that large, including smaps of the largest
/// programs.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// Maximum number of links in a path, as in Linux (`path_resolution(7)`).
const MAX_LINKS: usize = 40;

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
    /// True if the file does not exist.
    pub fn is_absent(&self) -> bool {
        // EOPNOTSUPP and the like mean that the file exists.
        matches!(self, ReadError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

impl Root {
    /// The running machine.
    pub fn live() -> Root {
        Root::at("/")
    }

    /// A captured tree, or one made for a test.
    pub fn at(dir: impl Into<PathBuf>) -> Root {
        Root { dir: dir.into(), tape: None }
    }

    /// The same root, which records everything that is read: see [`Root::recorded`].
    #[must_use]
    pub fn recording(self) -> Root {
        Root { tape: Some(Arc::default()), ..self }
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
        self.read_bytes(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    pub fn read_bytes(&self, path: impl AsRef<Path>) -> Result<Vec<u8>, ReadError> {
        let inside = path.as_ref();
        let path = self.path(inside);
        // A captured tree may contain a pipe, on which a read would block forever.
        let content = fs::metadata(&path).and_then(|found| match found.is_file() {
            true if found.len() <= MAX_FILE_BYTES => fs::read(&path),
            true => Err(io::Error::other("larger than any file of the kernel")),
            false => Err(io::Error::other("not a regular file")),
        });
        let content = content.map_err(|source| ReadError::Io { path, source })?;
        self.record(|tape| tape.file(inside, &content));
        Ok(content)
    }

    /// Opens a file to be read piece by piece; not recorded.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<fs::File, ReadError> {
        let path = self.path(path);
        let file = fs::metadata(&path).and_then(|found| match found.is_file() {
            true => fs::File::open(&path),
            false => Err(io::Error::other("not a regular file")),
        });
        file.map_err(|source| ReadError::Io { path, source })
    }

    /// At most `length` bytes from the beginning of a file; not recorded.
    pub fn beginning(&self, path: impl AsRef<Path>, length: u64) -> Result<Vec<u8>, ReadError> {
        let path = path.as_ref();
        let mut bytes = Vec::new();
        let read = self.open(path)?.take(length).read_to_end(&mut bytes);
        read.map_err(|source| ReadError::Io { path: self.path(path), source })?;
        Ok(bytes)
    }

    /// True if there is a regular file at `path`.
    pub fn has_file(&self, path: impl AsRef<Path>) -> bool {
        let found = fs::metadata(self.path(path.as_ref())).is_ok_and(|found| found.is_file());
        if found {
            self.record(|tape| tape.present(path.as_ref()));
        }
        found
    }

    /// The target of `path` with all links followed, relative to `/`.
    ///
    /// Links of a captured tree are followed inside the tree, as they were on its machine.
    pub fn resolve(&self, path: impl AsRef<Path>) -> Result<PathBuf, ReadError> {
        let io_error = |path: &Path, source| ReadError::Io { path: self.path(path), source };
        let mut left: Vec<OsString> = parts(path.as_ref());
        let mut done = PathBuf::new();
        let mut links = 0;
        while let Some(part) = left.pop() {
            if part == ".." {
                done.pop();
                continue;
            }
            let next = done.join(&part);
            let kind = fs::symlink_metadata(self.path(&next)).map_err(|e| io_error(&next, e))?.file_type();
            if !kind.is_symlink() {
                done = next;
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                return Err(io_error(&next, io::Error::other("too many levels of symbolic links")));
            }
            let target = fs::read_link(self.path(&next)).map_err(|e| io_error(&next, e))?;
            self.record(|tape| tape.link(&next, &target));
            if target.is_absolute() {
                done = PathBuf::new();
            }
            left.extend(parts(&target));
        }
        Ok(done)
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
        let path = self.path(path);
        let names = fs::read_dir(&path).and_then(|entries| {
            entries.map(|e| Ok(e?.file_name().to_string_lossy().into_owned())).collect::<io::Result<_>>()
        });
        let mut names: Vec<String> = names.map_err(|source| ReadError::Io { path, source })?;
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

/// The parts of a path, last one first, without `/` and `.`.
fn parts(path: &Path) -> Vec<OsString> {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    });
    parts.rev().collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

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
        fs::File::create(dir.path().join("endless"))?.set_len(MAX_FILE_BYTES + 1)?;
        symlink("/dev/zero", dir.path().join("zero"))?;
        let root = Root::at(dir.path());
        assert!(root.read("endless").is_err() && root.read("zero").is_err() && root.read("").is_err());
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
        root.recorded().write(copy.path())?;
        assert_eq!(fs::read(copy.path().join("a"))?, [0xff, 0, b'x']);
        assert!(!copy.path().join("b").exists());
        Ok(())
    }
}
