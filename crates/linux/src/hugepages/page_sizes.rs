//! The page sizes of this machine, as read from it.

use std::io;

use serde::Serialize;

use crate::{
    hugepages::{backing::Backing, base_page, pools, thp},
    proc::meminfo,
    reading::Reason,
    root::Root,
    sys::memory,
    units::{Bytes, PageSize},
};

/// The page sizes that memory can be requested with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PageSizes {
    pub base: PageSize,
    /// The PMD size of THP; `None` without THP.
    pub thp: Option<PageSize>,
    /// The sizes of the hugetlb pools, smallest first.
    pub hugetlb: Vec<PageSize>,
    /// The size of `hugetlb` without SIZE; `None` without hugetlb.
    pub default_hugetlb: Option<PageSize>,
}

impl PageSizes {
    /// The page sizes of the running machine, for reservations by this process: asked by system calls, because a process
    /// may be unable to read files, also its own. Sizes of which the kernel does not say whether it has them are included.
    pub fn of_this_process() -> io::Result<PageSizes> {
        let root = Root::live();
        let base = memory::base_page_size()?;
        let possible = |log2: u32| PageSize::new(Bytes(1 << log2)).ok();
        let mut hugetlb: Vec<PageSize> = (base.log2() + 1..=MAX_LOG2).filter_map(possible).collect();
        hugetlb.retain(|size| memory::has_pool(*size) != Some(false));
        Ok(PageSizes {
            base,
            thp: thp::pmd_size(&root).known().copied().or_else(|| table_span(base)),
            default_hugetlb: memory::default_huge_page_size(&hugetlb)
                .or_else(|| meminfo::read(&root).default_size.known().copied()),
            hugetlb,
        })
    }

    /// Fails if the base page size is unknown.
    pub fn read(root: &Root) -> Result<PageSizes, Reason> {
        let pools = pools::read(root).unwrap_or_default();
        Ok(PageSizes {
            base: base_page::read(root).into_result()?,
            thp: thp::pmd_size(root).known().copied(),
            hugetlb: pools.iter().filter(|pool| pool.node.is_none()).map(|pool| pool.page_size).collect(),
            default_hugetlb: meminfo::read(root).default_size.known().copied(),
        })
    }

    /// The huge page size of `backing`; `None` for base pages and for a backing that this machine does not
    /// have.
    pub fn huge_page_of(&self, backing: Backing) -> Option<PageSize> {
        match backing {
            Backing::Base => None,
            Backing::Thp => self.thp,
            Backing::Hugetlb(named) | Backing::Shm(named) => {
                named.or(self.default_hugetlb).filter(|size| self.hugetlb.contains(size))
            }
        }
    }

    /// Why this machine does not have `backing`; `None` if it does.
    pub fn missing(&self, backing: Backing) -> Option<String> {
        if backing == Backing::Base || self.huge_page_of(backing).is_some() {
            return None;
        }
        Some(match backing.named_size() {
            _ if backing == Backing::Thp => {
                "this kernel has no transparent huge pages, or /sys is not mounted".to_owned()
            }
            Some(size) => {
                let sizes: Vec<String> = self.hugetlb.iter().map(ToString::to_string).collect();
                let has = if sizes.is_empty() { "none".to_owned() } else { sizes.join(" and ") };
                format!("this machine has no pool of {size} pages (it has: {has})")
            }
            None if !self.hugetlb.is_empty() => {
                "the default huge page size is unknown: name a size, like hugetlb:2MiB".to_owned()
            }
            None => "this kernel has no hugetlb pools, or /sys is not mounted".to_owned(),
        })
    }
}

/// Log2 of the largest page size of a pool, in bytes: 16 GiB, on arm64 and POWER.
const MAX_LOG2: u32 = 34;

/// The memory that one page of a page table maps, with entries of 8 bytes: the PMD size of x86-64 and arm64.
fn table_span(base: PageSize) -> Option<PageSize> {
    PageSize::new(Bytes(base.bytes().0.checked_mul(base.bytes().0 / 8)?)).ok()
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn a_backing_means_what_the_machine_has() -> Result<(), Box<dyn Error>> {
        let (small, large): (PageSize, PageSize) = ("64k".parse()?, "1g".parse()?);
        let sizes = PageSizes {
            base: "4k".parse()?,
            thp: None,
            hugetlb: vec![small, large],
            default_hugetlb: Some(small),
        };
        assert_eq!(sizes.huge_page_of(Backing::Hugetlb(None)), Some(small));
        assert_eq!(sizes.missing("hugetlb:1g".parse()?), None);
        assert!(sizes.missing("shm:2m".parse()?).is_some_and(|why| why.contains("64KiB and 1GiB")));
        assert!(sizes.missing(Backing::Thp).is_some());
        Ok(())
    }

    #[test]
    fn the_span_of_a_page_table_is_the_pmd_size() -> Result<(), Box<dyn Error>> {
        let span = |size: &str| size.parse().ok().and_then(table_span).map(|span| span.to_string());
        assert_eq!(
            ["4k", "16k", "64k"].map(span),
            ["2MiB", "32MiB", "512MiB"].map(|size| Some(size.to_owned()))
        );
        let sizes = PageSizes::read(&Root::live())?;
        assert!(sizes.thp.is_none_or(|thp| table_span(sizes.base) == Some(thp)));
        Ok(())
    }

    #[test]
    fn system_calls_answer_what_the_files_contain() -> Result<(), Box<dyn Error>> {
        let (read, asked) = (PageSizes::read(&Root::live())?, PageSizes::of_this_process()?);
        // Without files, that of a kernel that has none is unknown.
        let thp = read.thp.or(asked.thp);
        assert_eq!(asked, PageSizes { thp, ..read });
        Ok(())
    }

    #[test]
    fn this_machine_has_a_base_page() -> Result<(), Box<dyn Error>> {
        assert!(PageSizes::read(&Root::live())?.base.bytes().0 >= 4096);
        Ok(())
    }
}
