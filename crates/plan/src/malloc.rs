//! Settings that put malloc'd memory on huge pages.

use std::{fmt, path::PathBuf, str::FromStr};

use hugewise_linux::{
    c_library::{Allocator, with_tunables},
    hugepages::{backing::Backing, page_sizes::PageSizes},
    reading::Reason,
    units::Bytes,
};

/// Largest block that glibc permits in an arena (`HEAP_MAX_SIZE / 2` on 64-bit machines).
const MAX_MMAP_THRESHOLD: Bytes = Bytes(32 << 20);

/// Options with which jemalloc uses transparent huge pages.
pub const JEMALLOC_THP: &str = "thp:always,metadata_thp:auto";

/// Pages for malloc'd memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffHeap {
    Thp,
    /// Pages of a hugetlb pool.
    Hugetlb,
}

impl From<OffHeap> for Backing {
    fn from(off_heap: OffHeap) -> Backing {
        match off_heap {
            OffHeap::Thp => Backing::Thp,
            OffHeap::Hugetlb => Backing::Hugetlb(None),
        }
    }
}

impl fmt::Display for OffHeap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Backing::from(*self).fmt(f)
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
    /// Options of the jemalloc that the program is linked with.
    Jemalloc(&'static str),
    /// No settings: another process collapses the memory.
    Nothing,
}

impl MallocSettings {
    /// Settings of the malloc of a program, whose own one is `allocator` if it is not glibc's, that put its memory on
    /// `backing`.
    pub fn of_program(
        allocator: Option<Allocator>,
        backing: Backing,
        sizes: &PageSizes,
    ) -> Result<MallocSettings, Reason> {
        match (allocator, backing) {
            (None, _) => MallocSettings::glibc(backing, sizes),
            (Some(Allocator::Jemalloc), Backing::Base) => Ok(MallocSettings::Jemalloc("thp:never")),
            (Some(Allocator::Jemalloc), Backing::Thp) => Ok(MallocSettings::Jemalloc(JEMALLOC_THP)),
            (Some(_), Backing::Base) => Ok(MallocSettings::Nothing),
            (Some(allocator), _) => Reason::err(format!(
                "the program's malloc is {}, which has no setting for {backing} that hugewise knows",
                allocator.name()
            )),
        }
    }

    /// Tunables of glibc that put malloc's memory on `backing`; an error if this machine does not have it, or
    /// malloc cannot use it.
    pub fn glibc(backing: Backing, sizes: &PageSizes) -> Result<MallocSettings, Reason> {
        let tunables = match backing {
            Backing::Base => vec![("glibc.malloc.hugetlb", "0".to_owned())],
            // glibc uses transparent huge pages in the main arena only, so `arena_max` permits no other
            // arena. By default, it maps large blocks one by one, not aligned to huge pages: the highest
            // threshold puts them into the arena. With a threshold that is set, glibc keeps 128 KiB of free
            // memory at the end of the arena; by default, twice the threshold.
            Backing::Thp => vec![
                ("glibc.malloc.hugetlb", "1".to_owned()),
                ("glibc.malloc.arena_max", "1".to_owned()),
                ("glibc.malloc.mmap_threshold", MAX_MMAP_THRESHOLD.0.to_string()),
                ("glibc.malloc.trim_threshold", (2 * MAX_MMAP_THRESHOLD.0).to_string()),
            ],
            // glibc maps a block that is smaller than a huge page on base pages, unless the threshold is
            // higher.
            Backing::Hugetlb(_) => {
                let missing = || Reason::new(sizes.missing(backing).unwrap_or_default());
                let size = sizes.huge_page_of(backing).ok_or_else(missing)?.bytes();
                // The size by its number: glibc does not find the default size on every machine.
                let value = size.0.to_string();
                vec![
                    ("glibc.malloc.hugetlb", value),
                    ("glibc.malloc.mmap_threshold", size.min(MAX_MMAP_THRESHOLD).0.to_string()),
                ]
            }
            Backing::Shm(_) => {
                return Reason::err("only a JVM has an option for SysV shared memory: try hugetlb");
            }
        };
        Ok(MallocSettings::Tunables(tunables))
    }

    /// Environment variables to set, merged with their present values, which `theirs` returns.
    pub fn variables(&self, theirs: &dyn Fn(&str) -> Option<String>) -> Vec<(&'static str, String)> {
        let value = |name| theirs(name).unwrap_or_default();
        match self {
            MallocSettings::Nothing => Vec::new(),
            MallocSettings::Tunables(ours) => {
                vec![("GLIBC_TUNABLES", with_tunables(&value("GLIBC_TUNABLES"), ours))]
            }
            // The last one of repeated options takes effect.
            MallocSettings::Jemalloc(options) => {
                vec![("MALLOC_CONF", joined(value("MALLOC_CONF"), ",", options))]
            }
            MallocSettings::Preload(library) => vec![
                ("LD_PRELOAD", joined(library.display().to_string(), ":", &value("LD_PRELOAD"))),
                ("MALLOC_CONF", joined(value("MALLOC_CONF"), ",", JEMALLOC_THP)),
            ],
        }
    }
}

/// `first` and `last` with `between` between them, if neither is empty.
fn joined(first: String, between: &str, last: &str) -> String {
    if first.is_empty() || last.is_empty() { first + last } else { first + between + last }
}
