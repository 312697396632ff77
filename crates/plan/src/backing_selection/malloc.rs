//! Means by which malloc'd memory gets huge pages.

use std::path::PathBuf;

use hugewise_linux::{
    c_library::{Allocator, CLibrary},
    hugepages::backing::Backing,
    reading::Reason,
    units::{PageSize, Pages},
};

use super::{BackingRequest, SelectionFacts};
use crate::malloc::{JEMALLOC_THP, Malloc, MallocSettings, OffHeap};

/// First glibc whose malloc supports `glibc.malloc.hugetlb`.
const MIN_GLIBC_VERSION: (u32, u32) = (2, 35);
/// Largest number of CPUs for a single malloc arena: with more, its lock would be contended.
const MAX_CPUS_FOR_ONE_ARENA: usize = 8;

impl SelectionFacts {
    /// Means and reason for malloc'd memory; `None` if no backing was requested for it.
    pub(super) fn off_heap(
        &self,
        wanted: &BackingRequest,
        taken: &[(PageSize, Pages)],
    ) -> Option<Result<(MallocSettings, String), Reason>> {
        Some(match wanted.off_heap? {
            OffHeap::Hugetlb => self.pool_for_malloc(wanted.backing, taken),
            OffHeap::Thp => self.thp_for_malloc(wanted.malloc),
        })
    }

    fn pool_for_malloc(
        &self,
        backing: Option<Backing>,
        taken: &[(PageSize, Pages)],
    ) -> Result<(MallocSettings, String), Reason> {
        self.glibc()
            .or_else(|reason| Reason::err(format!("{reason}; only glibc's malloc takes pages of a pool")))?;
        let backing = backing.filter(|backing| matches!(backing, Backing::Hugetlb(_)));
        let backing = backing.unwrap_or(Backing::Hugetlb(None));
        let Some(size) = self.sizes.huge_page_of(backing) else {
            return Reason::err(self.sizes.missing(backing).unwrap_or_default());
        };
        let (available, why) = self.available(size);
        let heap = taken.iter().find(|(of, _)| *of == size).map_or(Pages(0), |(_, pages)| *pages);
        let left = available.saturating_sub(heap);
        if left == Pages(0) {
            return Reason::err(format!("no page of {size} is left for malloc ({why})"));
        }
        let why =
            format!("malloc'd memory on hugetlb: {left} pages of {size} ({}) are left for it", left * size);
        Ok((MallocSettings::glibc(backing, &self.sizes)?, why))
    }

    fn thp_for_malloc(&self, malloc: Malloc) -> Result<(MallocSettings, String), Reason> {
        let glibc = || {
            self.check_thp()?;
            let (major, minor) = self.glibc()?;
            let why = format!(
                "malloc'd memory on thp by glibc {major}.{minor} with one arena, whose lock all threads share"
            );
            Ok((MallocSettings::glibc(Backing::Thp, &self.sizes)?, why))
        };
        let jemalloc = || {
            self.check_thp()?;
            self.check_loader_reads_variables()?;
            match self.allocator {
                Some(Allocator::Jemalloc) => {
                    let why = "malloc'd memory on thp by the jemalloc that the program is linked with";
                    return Ok((MallocSettings::Jemalloc(JEMALLOC_THP), why.to_owned()));
                }
                Some(Allocator::BuiltIn(name)) => {
                    return Reason::err(format!(
                        "the program's malloc is {name}, in place of which no library is used"
                    ));
                }
                Some(Allocator::Other(_)) | None => {}
            }
            let library =
                self.jemalloc.as_ref().ok_or_else(|| Reason::new("the program finds no libjemalloc.so.2"))?;
            let why = format!("malloc'd memory on thp by a preloaded jemalloc (/{})", library.display());
            Ok((MallocSettings::Preload(PathBuf::from("/").join(library)), why))
        };
        let collapse = || match &self.collapse_obstacle {
            Some(reason) => Reason::err(format!("the program's memory cannot be collapsed: {reason}")),
            None => Ok((
                MallocSettings::Nothing,
                match self.allocator {
                    Some(Allocator::BuiltIn(name)) => {
                        format!(
                            "memory on thp by collapse, once it is resident: the program's malloc is {name}"
                        )
                    }
                    _ => "malloc'd memory on thp by collapse, once the memory is resident".to_owned(),
                },
            )),
        };
        match malloc {
            Malloc::Glibc => glibc(),
            Malloc::Jemalloc => jemalloc(),
            Malloc::Collapse => collapse(),
            Malloc::Auto => {
                let crowded = self.processors > MAX_CPUS_FOR_ONE_ARENA;
                let first = if crowded { jemalloc().or_else(|_| glibc()) } else { glibc() };
                first.or_else(|reason| {
                    let other = jemalloc().or_else(|_| collapse());
                    other.map_err(|also| Reason::new(format!("{reason}; {also}")))
                })
            }
        }
    }

    /// The version of a glibc that supports `glibc.malloc.hugetlb`, or why the program has none.
    pub(super) fn glibc(&self) -> Result<(u32, u32), Reason> {
        self.check_loader_reads_variables()?;
        if let Some(allocator) = self.allocator {
            return Reason::err(format!("the program's malloc is {}", allocator.name()));
        }
        Reason::err(match &self.c_library {
            Err(reason) => format!("the program's C library is unknown ({reason})"),
            Ok(CLibrary::Glibc { version: Some(version), .. }) if *version >= MIN_GLIBC_VERSION => {
                return Ok(*version);
            }
            Ok(CLibrary::Glibc { version: Some((major, minor)), .. }) => format!(
                "the program's malloc is that of glibc {major}.{minor}; huge pages need glibc 2.35 or later"
            ),
            Ok(CLibrary::Glibc { version: None, .. }) => {
                "the program's malloc is that of a glibc before 2.33; huge pages need glibc 2.35 or later"
                    .into()
            }
            Ok(CLibrary::Musl) => "the program's malloc is musl's, which does not support huge pages".into(),
            Ok(CLibrary::Static) => {
                "the program is linked statically: no variable configures its malloc".into()
            }
            Ok(CLibrary::Other(loader)) => format!("the program's loader {} is unknown", loader.display()),
        })
    }

    fn check_loader_reads_variables(&self) -> Result<(), Reason> {
        if self.privileged {
            return Reason::err(
                "the program is setuid or has file capabilities, so its loader ignores variables for malloc",
            );
        }
        Ok(())
    }

    pub(super) fn collapses(&self, off_heap: Option<OffHeap>, malloc: Option<&MallocSettings>) -> bool {
        off_heap == Some(OffHeap::Thp) && malloc.is_some() && self.collapse_obstacle.is_none()
    }
}
