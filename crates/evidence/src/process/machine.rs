//! What of the machine the reasons need: read once, whatever number of processes.

use std::path::PathBuf;

use anyhow::Context;
use hugewise_linux::{
    hugepages::{
        page_sizes::PageSizes,
        pools::{self, Pool},
        thp::{self, Khugepaged},
    },
    proc::vmstat::VmStat,
    root::Root,
    units::PageSize,
};

/// The settings, counters and page sizes of the machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The page sizes.
    pub sizes: PageSizes,
    /// What holds for anonymous memory on pages of the PMD size, and the file that says so.
    pub anonymous: Option<(String, PathBuf)>,
    /// What holds for shared memory.
    pub shared: Option<(String, PathBuf)>,
    /// When a fault waits for a huge page: `defrag`.
    pub defrag: Option<String>,
    /// The thread that makes huge pages of small ones.
    pub khugepaged: Khugepaged,
    /// `thp_fault_fallback`: faults since boot that should have got a huge page, and got none.
    pub fault_fallbacks: Option<u64>,
    /// `thp_split_page` and `thp_split_pmd`: huge pages, and huge entries, that were split since boot.
    pub splits: Option<u64>,
    /// The pools of the whole machine.
    pub pools: Vec<Pool>,
}

impl Machine {
    /// Reads it.
    pub fn read(root: &Root) -> anyhow::Result<Machine> {
        let sizes = PageSizes::read(root).map_err(anyhow::Error::msg).context("the size of base pages")?;
        let thp = thp::read(root);
        let owned = |decided: Option<(&str, PathBuf)>| decided.map(|(word, file)| (word.to_owned(), file));
        let vmstat = VmStat::read(root).unwrap_or_default();
        let splits = vmstat.get("thp_split_page").zip(vmstat.get("thp_split_pmd"));
        Ok(Machine {
            sizes,
            anonymous: owned(thp.pmd_enabled()),
            shared: owned(thp.pmd_shmem_enabled()),
            defrag: thp.defrag.known().cloned(),
            khugepaged: thp.khugepaged,
            fault_fallbacks: vmstat.get("thp_fault_fallback"),
            splits: splits.map(|(pages, entries)| pages + entries),
            pools: pools::read(root)
                .map(|pools| pools.into_iter().filter(|pool| pool.node.is_none()).collect())
                .unwrap_or_default(),
        })
    }

    /// The size of a whole THP.
    pub fn pmd(&self) -> Option<PageSize> {
        self.sizes.thp
    }
}
