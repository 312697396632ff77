//! For tests: machines made of plain files, and tests that can be skipped.

#[cfg(feature = "testing")]
pub mod trials;

use std::fs;

use tempfile::TempDir;

use crate::root::Root;

/// A tree with these files.
#[allow(clippy::unwrap_used)]
pub fn tree(files: &[(&str, &str)]) -> (TempDir, Root) {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let root = Root::at(dir.path());
    (dir, root)
}
