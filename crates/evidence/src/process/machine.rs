//! Settings and counters of the machine that the reasons depend on, read once for all processes.

use std::path::PathBuf;

use anyhow::Context;
use hugewise_linux::{
    facts::{OSRELEASE, kernel_version},
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
pub struct MachineState {
    pub sizes: PageSizes,
    /// First two numbers of the kernel release; `None` if they could not be read.
    pub kernel: Option<(u32, u32)>,
    /// THP mode for anonymous memory at the PMD size, and the file that sets it; `None` if it could not be
    /// read.
    pub anonymous: Option<(String, PathBuf)>,
    /// THP mode for shared memory at the PMD size, and the file that sets it; `None` if it could not be read.
    pub shared: Option<(String, PathBuf)>,
    /// `defrag`: when a page fault waits for a huge page.
    pub defrag: Option<String>,
    pub khugepaged: Khugepaged,
    /// `thp_fault_fallback`: page faults since boot whose huge-page allocation failed; `None` if not
    /// reported.
    pub fault_fallbacks: Option<u64>,
    /// `thp_split_page` + `thp_split_pmd`: huge pages and PMD entries split since boot; `None` if not
    /// reported.
    pub splits: Option<u64>,
    /// Pools of the whole machine, without those of single NUMA nodes.
    pub pools: Vec<Pool>,
}

impl MachineState {
    pub fn read(root: &Root) -> anyhow::Result<MachineState> {
        let sizes = PageSizes::read(root).map_err(anyhow::Error::msg).context("the size of base pages")?;
        let thp = thp::read(root);
        let owned = |decided: Option<(&str, PathBuf)>| decided.map(|(word, file)| (word.to_owned(), file));
        let vmstat = VmStat::read(root).unwrap_or_default();
        let splits = vmstat.get("thp_split_page").zip(vmstat.get("thp_split_pmd"));
        Ok(MachineState {
            sizes,
            kernel: root
                .value(OSRELEASE, "a release")
                .ok()
                .and_then(|release: String| kernel_version(&release)),
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

    /// Whether the kernel is this release or a later one; `None` if its release is unknown.
    pub fn since(&self, release: (u32, u32)) -> Option<bool> {
        self.kernel.map(|kernel| kernel >= release)
    }

    /// `None` if the kernel has no THP.
    pub fn pmd(&self) -> Option<PageSize> {
        self.sizes.thp
    }
}
