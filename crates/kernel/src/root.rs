//! Where the machine's files are read: `/`, or a captured tree of another machine.

use std::{
    fs, io,
    path::{Path, PathBuf},
    str::FromStr,
};

/// The folder that stands for `/` of the machine looked at.
#[derive(Clone, Debug)]
pub struct Root(PathBuf);

/// A file that could not be read, or did not hold what it should.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// The content is not what the kernel documents.
    #[error("{}:{line}: expected {expected}, found '{found}'", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What should have stood there.
        expected: &'static str,
        /// What stood there.
        found: String,
    },
}

impl ReadError {
    /// Is it only that there is no such file?
    #[must_use]
    pub fn is_absent(&self) -> bool {
        // EOPNOTSUPP and the like are refusals: the file is there.
        matches!(self, ReadError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

impl Root {
    /// This machine.
    #[must_use]
    pub fn live() -> Root {
        Root(PathBuf::from("/"))
    }

    /// A captured tree, or one made for a test.
    pub fn at(dir: impl Into<PathBuf>) -> Root {
        Root(dir.into())
    }

    /// Is this the machine we run on, so that system calls speak of it too?
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// Where `path` (relative to `/`, without a leading slash) lies.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.0.join(path)
    }

    /// The whole file as text; bytes that are not UTF-8 are replaced.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<String, ReadError> {
        self.read_bytes(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The whole file.
    pub fn read_bytes(&self, path: impl AsRef<Path>) -> Result<Vec<u8>, ReadError> {
        let path = self.path(path);
        fs::read(&path).map_err(|source| ReadError::Io { path, source })
    }

    /// The whole file as one value, white space trimmed.
    pub fn value<T: FromStr>(&self, path: impl AsRef<Path>, expected: &'static str) -> Result<T, ReadError> {
        let text = self.read(path.as_ref())?;
        text.trim().parse().map_err(|_| self.content(path, 1, expected, text.trim()))
    }

    /// The chosen word of a list like `always [madvise] never`.
    pub fn choice(&self, path: impl AsRef<Path>) -> Result<String, ReadError> {
        let text = self.read(path.as_ref())?;
        text.split_once('[')
            .and_then(|(_, rest)| rest.split_once(']'))
            .map(|(chosen, _)| chosen.to_owned())
            .ok_or_else(|| self.content(path, 1, "one word in [brackets]", text.trim()))
    }

    /// The names in a folder, sorted.
    pub fn list(&self, path: impl AsRef<Path>) -> Result<Vec<String>, ReadError> {
        let path = self.path(path);
        let names = fs::read_dir(&path).and_then(|entries| {
            entries
                .map(|e| e.map(|e| e.file_name().to_string_lossy().into_owned()))
                .collect::<io::Result<Vec<_>>>()
        });
        let mut names = names.map_err(|source| ReadError::Io { path, source })?;
        names.sort();
        Ok(names)
    }

    /// An error about the content of a file.
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
