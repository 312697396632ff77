//! The page sizes of this machine: read, never a constant.

use serde::Serialize;

use crate::{
    backing::Backing,
    root::{ReadError, Root},
    sys,
    units::{Bytes, PageSize},
};

/// The page sizes that memory can be asked for on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PageSizes {
    /// The base page size.
    pub base: PageSize,
    /// The size of a whole (PMD-mapped) THP; nothing where the kernel has no THP.
    pub thp: Option<PageSize>,
    /// The sizes that have a hugetlb pool, smallest first.
    pub hugetlb: Vec<PageSize>,
    /// The size that `hugetlb` means where none is named.
    pub default_hugetlb: Option<PageSize>,
}

impl PageSizes {
    /// Reads them. The base page size is that of the running kernel, whatever the root.
    pub fn read(root: &Root) -> Result<PageSizes, ReadError> {
        let io = |source| ReadError::Io { path: "sysconf(_SC_PAGESIZE)".into(), source };
        let thp = root
            .value::<u64>("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "a number of bytes")
            .ok()
            .and_then(|bytes| PageSize::new(Bytes(bytes)).ok());
        let mut hugetlb: Vec<PageSize> = root
            .list("sys/kernel/mm/hugepages")
            .unwrap_or_default()
            .iter()
            .filter_map(|name| name.strip_prefix("hugepages-")?.parse().ok())
            .collect();
        hugetlb.sort_unstable();
        let default_hugetlb = root.read("proc/meminfo").ok().and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("Hugepagesize:"))?;
            line.parse().ok()
        });
        Ok(PageSizes { base: sys::memory::base_page_size().map_err(io)?, thp, hugetlb, default_hugetlb })
    }

    /// The size of the huge pages that `backing` means here; nothing for base pages, and for a
    /// backing that this machine has not.
    #[must_use]
    pub fn huge_page_of(&self, backing: Backing) -> Option<PageSize> {
        match backing {
            Backing::Base => None,
            Backing::Thp => self.thp,
            Backing::Hugetlb(named) | Backing::Shm(named) => {
                named.or(self.default_hugetlb).filter(|size| self.hugetlb.contains(size))
            }
        }
    }

    /// Why this machine cannot give `backing` at all; nothing where it may.
    #[must_use]
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
            None => "this kernel has no hugetlb pools, or /sys is not mounted".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{error::Error, fs};

    use super::*;

    #[test]
    fn a_backing_means_what_the_machine_has() -> Result<(), Box<dyn Error>> {
        let dir = tempfile::tempdir()?;
        fs::create_dir_all(dir.path().join("sys/kernel/mm/hugepages/hugepages-1048576kB"))?;
        fs::create_dir_all(dir.path().join("sys/kernel/mm/hugepages/hugepages-64kB"))?;
        fs::create_dir_all(dir.path().join("proc"))?;
        fs::write(dir.path().join("proc/meminfo"), "MemTotal: 1 kB\nHugepagesize:         64 kB\n")?;
        let sizes = PageSizes::read(&Root::at(dir.path()))?;
        assert_eq!(sizes.huge_page_of(Backing::Hugetlb(None)), Some("64k".parse()?));
        assert_eq!(sizes.missing("hugetlb:1g".parse()?), None);
        assert!(sizes.missing("shm:2m".parse()?).is_some_and(|why| why.contains("64KiB and 1GiB")));
        assert!(sizes.missing(Backing::Thp).is_some());
        Ok(())
    }
}
