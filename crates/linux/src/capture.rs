//! Records the files that were read, to write them as a tree for [`crate::root::Root::at`].

use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::{Component, Path, PathBuf},
};

use crate::sys::file::Folder;

/// The kind and content of a path when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    File(Vec<u8>),
    /// A file whose content was not read; possibly a program.
    Present,
    /// A symbolic link, with its target.
    Link(PathBuf),
}

/// Every file that a [`crate::root::Root`] read, with its content at that time.
#[derive(Clone, Debug, Default)]
pub struct Capture(BTreeMap<PathBuf, Entry>);

impl Capture {
    /// Takes a file, in place of one of the same path.
    pub fn file(&mut self, path: &Path, content: &[u8]) {
        self.0.insert(path.to_owned(), Entry::File(content.to_owned()));
    }

    pub(crate) fn present(&mut self, path: &Path) {
        self.0.entry(path.to_owned()).or_insert(Entry::Present);
    }

    /// The content of a file that was read.
    pub fn content(&self, path: &Path) -> Option<&[u8]> {
        match self.0.get(path) {
            Some(Entry::File(content)) => Some(content),
            _ => None,
        }
    }

    /// Replaces the content of each file whose path is accepted.
    pub fn edit(&mut self, accepts: impl Fn(&Path) -> bool, edited: impl Fn(&[u8]) -> Vec<u8>) {
        for (path, entry) in &mut self.0 {
            if let Entry::File(content) = entry {
                if accepts(path) {
                    *content = edited(content);
                }
            }
        }
    }

    pub fn link(&mut self, path: &Path, target: &Path) {
        self.0.insert(path.to_owned(), Entry::Link(target.to_owned()));
    }

    /// The number of files and links.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes all files below `dir`, which must be empty or not exist. What another user puts there in the meantime is
    /// not written to or followed.
    ///
    /// Links keep their targets; readers follow them inside the tree only. `private`: only their owner can read the files.
    pub fn write(&self, dir: &Path, private: bool) -> io::Result<()> {
        let (of_folder, of_file) = if private { (0o700, 0o600) } else { (0o755, 0o644) };
        let top = Folder::create_all(dir, of_folder)?;
        if !top.names()?.is_empty() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the folder is not empty"));
        }
        // A link in place of a folder that holds files would lead out of the tree.
        let folder = |path: &Path| self.0.keys().any(|other| other != path && other.starts_with(path));
        for (path, entry) in &self.0 {
            let is_inside = path.components().all(|part| matches!(part, Component::Normal(_)));
            let Some(name) = path.file_name().filter(|_| is_inside && !folder(path)) else { continue };
            let mut around = top.try_clone()?;
            for part in path.parent().into_iter().flatten() {
                around = around.folder(part, of_folder)?;
            }
            match entry {
                Entry::File(content) => around.create_new(name, of_file)?.write_all(content)?,
                Entry::Present => drop(around.create_new(name, 0o755)?),
                Entry::Link(target) => around.create_link(name, target)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_folder_with_something_in_it_is_left_alone() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        fs::write(dir.path().join("precious"), "x")?;
        let refused = Capture::default().write(dir.path(), false);
        assert_eq!(refused.map_err(|e| e.kind()), Err(io::ErrorKind::AlreadyExists));
        Ok(())
    }

    #[test]
    fn nothing_is_written_outside_of_the_folder() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let mut tape = Capture::default();
        tape.file(Path::new("../escaped"), b"x");
        tape.link(Path::new("out"), Path::new(".."));
        tape.file(Path::new("out/escaped"), b"x");
        tape.file(Path::new("proc/meminfo"), b"MemTotal: 1 kB\n");
        tape.write(&dir.path().join("tree"), false)?;
        assert!(!dir.path().join("escaped").exists());
        assert!(dir.path().join("tree/proc/meminfo").exists());
        Ok(())
    }
}
