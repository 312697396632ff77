//! Memory for the pointer chase: pages of one size, verified to be of that size.

use std::{collections::BTreeMap, io, path::Path, sync::atomic::Ordering::Relaxed};

use hugewise_linux::{
    hugepages::{backing::Backing, page_sizes::PageSizes},
    interrupt::Interrupt,
    pages::coverage::Coverage,
    proc::smaps,
    reading::{Reading, Reason},
    root::Root,
    sys::{aliases::AliasedMapping, file, pagemap},
    units::{Bytes, PageSize, Pages},
};

use crate::machine::Machine;

#[derive(Clone, Copy, Debug)]
pub struct PagesRequest {
    /// Pages to visit in one lap.
    pub most: Pages,
    /// Physical memory that the pages may occupy; further pages map the same memory at other addresses.
    pub memory: Bytes,
    /// Length of a cache line, in bytes.
    pub line: usize,
}

/// Mapped pages of one size.
#[derive(Debug)]
pub struct MappedPages {
    pub backing: Backing,
    pub page_size: PageSize,
    pub mapping: AliasedMapping,
    /// Number of pages with memory of their own; the others map the same memory again.
    pub distinct: Pages,
    /// Number of pages that can be visited in one lap.
    pub most: Pages,
    base: PageSize,
    line: usize,
}

/// Maps and populates the pages; the error says why that is not possible.
pub fn prepare(
    backing: Backing,
    request: PagesRequest,
    sizes: &PageSizes,
    machine: &mut Machine,
    interrupt: &Interrupt,
) -> Result<MappedPages, Reason> {
    if let Some(missing) = sizes.missing(backing) {
        return Reason::err(missing);
    }
    let page_size = sizes.huge_page_of(backing).unwrap_or(sizes.base);
    let fits = Pages(request.memory.whole_pages(page_size).0.min(request.most.0));
    if fits == Pages(0) {
        return Reason::err(format!("a page of {page_size} is larger than the {} allowed", request.memory));
    }
    let mut cause = Reason::new("");
    for distinct in halvings(fits) {
        match attempt(backing, distinct, request, page_size, sizes, machine, interrupt) {
            Ok(pool) => return Ok(pool),
            Err(error) => cause = error,
        }
        if interrupt.signal().is_some() {
            break;
        }
    }
    Err(cause)
}

/// `most`, then half as many pages down to 1: fragmented memory may provide one huge page and not 500.
fn halvings(most: Pages) -> impl Iterator<Item = Pages> {
    std::iter::successors(Some(most), |pages| (pages.0 > 1).then_some(Pages(pages.0 / 2)))
}

fn attempt(
    backing: Backing,
    distinct: Pages,
    request: PagesRequest,
    page_size: PageSize,
    sizes: &PageSizes,
    machine: &mut Machine,
    interrupt: &Interrupt,
) -> Result<MappedPages, Reason> {
    if backing.is_explicit() {
        machine.provide_pools(&BTreeMap::from([(page_size, distinct * page_size)]), interrupt)?;
    }
    let make = || {
        let most = repeatable(distinct, request.most, page_size, request.line);
        let mapping =
            AliasedMapping::new(page_size, backing.is_explicit(), distinct, most).map_err(|error| {
                Reason::new(format!("{most} pages of {page_size} on the memory of {distinct}: {error}"))
            })?;
        let (base, line) = (sizes.base, request.line);
        let pool = MappedPages { backing, page_size, mapping, distinct, most, base, line };
        match pool.fill() {
            Ok(()) => pool.proven().map(|()| pool),
            Err(error) => Reason::err(format!("populating {distinct} pages of {page_size}: {error}")),
        }
    };
    match make() {
        // A kernel that cannot collapse shared memory can still provide huge pages on first touch if
        // `shmem_enabled` allows it.
        Err(cause) if backing == Backing::Thp && distinct == Pages(1) => {
            machine.provide_thp(true).map_err(|refused| Reason::new(format!("{cause}; {refused}")))?;
            make()
        }
        made => made,
    }
}

/// Number of pages that one lap can visit when `distinct` of them have memory of their own: two lines on the
/// same memory must differ in their offset, and offsets are unique within `size / line` pages.
fn repeatable(distinct: Pages, most: Pages, size: PageSize, line: usize) -> Pages {
    let offsets = size.bytes().0 / line.max(1) as u64;
    Pages(most.0.min(distinct.0.max(offsets)))
}

impl MappedPages {
    /// Populates all pages, on huge pages if the backing has them.
    fn fill(&self) -> io::Result<()> {
        match self.backing {
            // A kernel without THP rejects the advice and provides base pages anyway.
            Backing::Base => drop(self.mapping.advise_huge(false)),
            Backing::Thp => {
                self.mapping.advise_huge(true)?;
                self.touch(self.mapping.populate_once(), self.distinct)?;
                // The page table shows whether it succeeded.
                let _ = self.mapping.collapse();
            }
            Backing::Hugetlb(_) | Backing::Shm(_) => {}
        }
        self.touch(self.mapping.populate(), self.most)
    }

    /// Writes to every base page of the first `pages` if the kernel lacks `MADV_POPULATE_WRITE`.
    fn touch(&self, populated: io::Result<()>, pages: Pages) -> io::Result<()> {
        match populated {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                let words = (pages * self.page_size).0 as usize / size_of::<u64>();
                let stride = self.base.bytes().0 as usize / size_of::<u64>();
                for word in self.mapping.words().iter().take(words).step_by(stride) {
                    word.fetch_add(0, Relaxed);
                }
                Ok(())
            }
            done => done,
        }
    }

    /// Share of all addresses that is mapped by pages of the requested size, 0 to 1.
    pub fn share(&self) -> Reading<f64> {
        Reading::from(self.scanned().or_else(|_| self.read_smaps())).and_then(|coverage| {
            let share = match self.backing {
                Backing::Base => coverage.share().map(|huge| 1.0 - huge),
                _ => coverage.share_on(self.page_size),
            };
            share.ok_or("nothing is resident")
        })
    }

    fn scanned(&self) -> Result<Coverage, Reason> {
        let scan = pagemap::scan(&file::open(Path::new("/proc/self/pagemap"))?, self.mapping.addresses())?;
        let mut seen = Coverage::none("PAGEMAP_SCAN of /proc/self/pagemap");
        seen.resident = scan.present;
        seen.huge.insert(self.page_size, scan.huge);
        Ok(seen)
    }

    /// For kernels without `PAGEMAP_SCAN`.
    fn read_smaps(&self) -> Result<Coverage, Reason> {
        let ours = self.mapping.addresses();
        let vmas = smaps::read(&Root::live(), "self")?;
        let inside = vmas.iter().filter(|vma| ours.contains(&vma.addresses.start));
        Ok(smaps::coverage(inside, Some(self.page_size)))
    }

    /// Checks that all pages are of the requested size.
    pub fn proven(&self) -> Result<(), Reason> {
        match self.share() {
            Reading::Known(1.0) => Ok(()),
            Reading::Known(share) => {
                let (percent, size) = (100.0 * share, self.page_size);
                Reason::err(format!("only {percent:.1} % of the memory is on pages of {size}"))
            }
            Reading::Unknown { unknown } => {
                Reason::err(format!("it is unknown whether the pages are of {}: {unknown}", self.page_size))
            }
        }
    }

    /// Number of base-page-sized parts with memory of their own.
    pub fn distinct_base_pages(&self) -> usize {
        (self.distinct * self.page_size).whole_pages(self.base).0 as usize
    }

    /// Number of packed lines that fit.
    pub fn lines(&self) -> usize {
        (self.distinct * self.page_size).0 as usize / self.line
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::tlb::chase::Layout;

    proptest! {
        #[test]
        fn no_two_lines_share_memory(distinct in 1u64..600, most in 1u64..9000, log in 12u32..22) {
            let size = PageSize::new(Bytes(1 << log)).map_err(|e| TestCaseError::fail(e.to_string()))?;
            let page = 1usize << log;
            let most = repeatable(Pages(distinct), Pages(most), size, 64);
            let layout = Layout { page: Some(page), line: 64 };
            let copy = distinct as usize * page;
            let mut seen = BTreeSet::new();
            for index in 0..most.0 as usize {
                prop_assert!(seen.insert(layout.offset(index) % copy), "line {index}");
            }
        }
    }

    #[test]
    fn fewer_pages_are_tried_if_many_are_unavailable() {
        let tried = |most| halvings(Pages(most)).map(|pages| pages.0).collect::<Vec<_>>();
        assert_eq!(tried(12), [12, 6, 3, 1]);
        assert_eq!(tried(1), [1]);
    }
}
