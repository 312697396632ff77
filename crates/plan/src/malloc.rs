//! Settings that put malloc'd memory on huge pages.

use std::{fmt, path::PathBuf, str::FromStr};

use hugewise_linux::{
    c_library::with_tunables,
    reading::Reason,
    units::{Bytes, PageSize},
};

/// Largest block that glibc permits in an arena (`HEAP_MAX_SIZE / 2` on 64-bit machines).
const MAX_MMAP_THRESHOLD: Bytes = Bytes(32 << 20);

/// Pages for malloc'd memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffHeap {
    Thp,
    /// Pages of a hugetlb pool.
    Hugetlb,
}

impl fmt::Display for OffHeap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            OffHeap::Thp => "thp",
            OffHeap::Hugetlb => "hugetlb",
        })
    }
}

impl FromStr for OffHeap {
    type Err = Reason;

    fn from_str(text: &str) -> Result<OffHeap, Reason> {
        match text {
            "thp" => Ok(OffHeap::Thp),
            "hugetlb" => Ok(OffHeap::Hugetlb),
            _ => Reason::err(format!(
                "'{text}' is not a backing of memory outside the heap: use thp or hugetlb"
            )),
        }
    }
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
    /// A tunable of glibc for base pages.
    pub fn glibc_base() -> MallocSettings {
        MallocSettings::Tunables(vec![("glibc.malloc.hugetlb", "0".to_owned())])
    }

    /// Tunables of glibc for transparent huge pages.
    ///
    /// Only the main arena uses them, so there is no other one. Blocks up to the largest threshold are in the arena,
    /// because the mapping of a single block is not aligned to huge pages. A threshold that is set does not raise the
    /// limit of free memory at the end of the arena, so that limit is set to what glibc would choose.
    pub fn glibc_thp() -> MallocSettings {
        MallocSettings::Tunables(vec![
            ("glibc.malloc.hugetlb", "1".to_owned()),
            ("glibc.malloc.arena_max", "1".to_owned()),
            ("glibc.malloc.mmap_threshold", MAX_MMAP_THRESHOLD.0.to_string()),
            ("glibc.malloc.trim_threshold", (2 * MAX_MMAP_THRESHOLD.0).to_string()),
        ])
    }

    /// Tunables of glibc for pages of a hugetlb pool, of the default size if `named` is `None`. `size` is the size of
    /// these pages: a block that is smaller is in the arena, because glibc would map it on base pages.
    pub fn glibc_hugetlb(named: Option<PageSize>, size: PageSize) -> MallocSettings {
        let value = named.map_or_else(|| "2".to_owned(), |size| size.bytes().0.to_string());
        let threshold = size.bytes().min(MAX_MMAP_THRESHOLD);
        MallocSettings::Tunables(vec![
            ("glibc.malloc.hugetlb", value),
            ("glibc.malloc.mmap_threshold", threshold.0.to_string()),
        ])
    }

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
