//! Settings that put malloc'd memory on huge pages.

use std::path::PathBuf;

use hugewise_linux::c_library::with_tunables;

/// Pages for malloc'd memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffHeap {
    Thp,
    /// Pages of a hugetlb pool.
    Hugetlb,
}

/// Source of transparent huge pages for malloc'd memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Malloc {
    /// The first of the others that works on this machine.
    #[default]
    Auto,
    /// Tunables of glibc's malloc.
    Glibc,
    /// jemalloc, preloaded in place of glibc's malloc.
    Jemalloc,
    /// Collapse by another process, once the memory is resident.
    Collapse,
}

/// Selected malloc, with its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MallocSettings {
    /// Tunables of glibc, by name.
    Tunables(Vec<(&'static str, String)>),
    /// Path of the jemalloc to preload.
    Preload(PathBuf),
    /// No settings: another process collapses the memory.
    Nothing,
}

impl MallocSettings {
    /// Environment variables to set, merged with their present values, which `theirs` returns.
    pub fn variables(&self, theirs: &dyn Fn(&str) -> Option<String>) -> Vec<(&'static str, String)> {
        let value = |name| theirs(name).unwrap_or_default();
        match self {
            MallocSettings::Nothing => Vec::new(),
            MallocSettings::Tunables(ours) => {
                vec![("GLIBC_TUNABLES", with_tunables(&value("GLIBC_TUNABLES"), ours))]
            }
            MallocSettings::Preload(library) => {
                let joined = |name, ours: &str, between: &str| match value(name) {
                    theirs if theirs.is_empty() => (name, ours.to_owned()),
                    theirs if name == "MALLOC_CONF" => (name, format!("{theirs}{between}{ours}")),
                    theirs => (name, format!("{ours}{between}{theirs}")),
                };
                vec![
                    joined("LD_PRELOAD", &library.display().to_string(), ":"),
                    // The last one of repeated options takes effect.
                    joined("MALLOC_CONF", "thp:always,metadata_thp:auto", ","),
                ]
            }
        }
    }
}
