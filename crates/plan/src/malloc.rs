//! Settings that put malloc'd memory on huge pages.

use std::{fmt, path::PathBuf, str::FromStr};

use hugewise_linux::{c_library::with_tunables, reading::Reason, units::PageSize};

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
    /// Tunables of glibc for transparent huge pages. Only the main arena uses them, so there is no other one.
    pub fn glibc_thp() -> MallocSettings {
        let tunables = [("glibc.malloc.hugetlb", "1"), ("glibc.malloc.arena_max", "1")];
        MallocSettings::Tunables(tunables.map(|(name, value)| (name, value.to_owned())).to_vec())
    }

    /// Tunables of glibc for pages of a hugetlb pool, of the default size if `size` is `None`.
    pub fn glibc_hugetlb(size: Option<PageSize>) -> MallocSettings {
        let value = size.map_or_else(|| "2".to_owned(), |size| size.bytes().0.to_string());
        MallocSettings::Tunables(vec![("glibc.malloc.hugetlb", value)])
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
