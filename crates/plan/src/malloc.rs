//! What the malloc of a program is told, so that it uses huge pages.

use std::path::PathBuf;

use hugewise_linux::c_library::with_tunables;

/// Pages for malloc'd memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffHeap {
    /// Transparent huge pages.
    Thp,
    /// Pages of a pool.
    Hugetlb,
}

/// How malloc'd memory gets transparent huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Malloc {
    /// By what works here.
    #[default]
    Auto,
    /// By settings of glibc's own malloc.
    Glibc,
    /// By jemalloc, loaded in its place.
    Jemalloc,
    /// From outside, once it is there.
    Convert,
}

/// What a malloc is told, and so through which variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MallocMeans {
    /// glibc: tunables.
    Tunables(Vec<(&'static str, String)>),
    /// This jemalloc is loaded.
    Preload(PathBuf),
    /// Nothing: it is converted.
    Nothing,
}

impl MallocMeans {
    /// Variables to set, merged with what `theirs` says they are.
    #[must_use]
    pub fn variables(&self, theirs: &dyn Fn(&str) -> Option<String>) -> Vec<(&'static str, String)> {
        let value = |name| theirs(name).unwrap_or_default();
        match self {
            MallocMeans::Nothing => Vec::new(),
            MallocMeans::Tunables(ours) => {
                vec![("GLIBC_TUNABLES", with_tunables(&value("GLIBC_TUNABLES"), ours))]
            }
            MallocMeans::Preload(library) => {
                let joined = |name, ours: &str, between: &str| match value(name) {
                    theirs if theirs.is_empty() => (name, ours.to_owned()),
                    theirs if name == "MALLOC_CONF" => (name, format!("{theirs}{between}{ours}")),
                    theirs => (name, format!("{ours}{between}{theirs}")),
                };
                vec![
                    joined("LD_PRELOAD", &library.display().to_string(), ":"),
                    // Of an option that is given twice, the last one counts.
                    joined("MALLOC_CONF", "thp:always,metadata_thp:auto", ","),
                ]
            }
        }
    }
}
