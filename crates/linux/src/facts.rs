//! The facts about a machine, as one value.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    at_boot::{self, BootSetting},
    cgroup::{self, CgroupLimits},
    cpu::pmu::{self, Pmu},
    hugepages::{
        base_page,
        contiguity::{self, Contiguity, Scan},
        pool_use::{self, PoolUse},
        pools::{self, Pool},
        thp::{self, Thp},
    },
    numa::{self, Allowed},
    proc::{
        limits::{self, Limits},
        meminfo::{self, Meminfo},
        overcommit::{self, Overcommit},
        vmstat::VmStat,
    },
    reading::{Reading, Reason},
    root::Root,
    units::PageSize,
};

/// Path of the kernel release.
pub const OSRELEASE: &str = "proc/sys/kernel/osrelease";

/// The first two numbers of a kernel release such as `6.18.44-generic`; `None` if it does not begin with them.
pub fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// The facts about a machine, as seen by this process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Facts {
    /// The kernel release.
    pub kernel: Reading<String>,
    /// The base page size, in bytes.
    #[serde(rename = "base_page_size_bytes")]
    pub base_page: Reading<PageSize>,
    /// Memory of the whole machine.
    pub meminfo: Meminfo,
    /// Whether the kernel limits the memory that programs commit.
    pub overcommit: Overcommit,
    /// `compact_stall`: direct compactions since boot, in which a program waited for contiguous memory.
    pub direct_compactions: Reading<u64>,
    /// The hugetlb pools, of the machine and of each NUMA node.
    pub pools: Reading<Vec<Pool>>,
    /// Users of the pools; empty if no page is in use.
    pub pool_use: PoolUse,
    /// Settings of huge pages that services, configuration files and the kernel's command line make at boot.
    pub at_boot: Vec<BootSetting>,
    /// The THP settings.
    pub thp: Thp,
    /// Available huge pages by size.
    pub contiguity: Contiguity,
    /// The control group limits of this process.
    pub cgroup: CgroupLimits,
    /// Resource limits, shared memory settings, identity and capabilities of this process.
    pub limits: Limits,
    /// The CPUs and NUMA nodes that this process may use.
    #[serde(default)]
    pub allowed: Allowed,
    /// The hardware performance counters.
    pub pmu: Pmu,
}

impl Facts {
    /// Reads all facts below `root`.
    pub fn gather(root: &Root, scan: Scan) -> Facts {
        let base_page = base_page::read(root);
        let meminfo = meminfo::read(root);
        let pools = Reading::from(pools::read(root));
        let thp = thp::read_with_statistics(root);
        let mut sizes: Vec<PageSize> =
            pools.known().into_iter().flatten().map(|pool| pool.page_size).collect();
        sizes.extend(meminfo.default_size.known());
        sizes.sort_unstable();
        sizes.dedup();
        let cgroup = cgroup::read(root, &sizes);
        // THP needs contiguous memory, too, with or without pools.
        sizes.extend(thp.pmd_size.known());
        sizes.sort_unstable();
        sizes.dedup();
        let contiguity = contiguity::read(root, &base_page, &sizes, &meminfo.total, &meminfo.free, scan);
        Facts {
            kernel: root.value(OSRELEASE, "a release").into(),
            limits: limits::read(root),
            allowed: numa::allowed(root),
            overcommit: overcommit::read(root),
            direct_compactions: VmStat::read(root)
                .map_err(Reason::from)
                .and_then(|stat| {
                    stat.get("compact_stall")
                        .ok_or(Reason::new("this kernel does not count direct compactions"))
                })
                .into(),
            pool_use: pool_use::read(root, pools.known().map_or(&[], Vec::as_slice)),
            at_boot: at_boot::read(root),
            pmu: pmu::read(root),
            base_page,
            meminfo,
            pools,
            thp,
            contiguity,
            cgroup,
        }
    }

    /// True if at least memory, pools or THP could be read.
    pub fn any_known(&self) -> bool {
        self.meminfo.total.known().is_some()
            || self.pools.known().is_some()
            || self.thp.enabled.known().is_some()
    }

    /// The pools of the whole machine; without /sys, only that of the default size.
    pub fn machine_pools(&self) -> impl Iterator<Item = &Pool> {
        let all = self.pools.known().map(|pools| pools.iter().filter(|pool| pool.node.is_none()));
        let default = self.meminfo.default_pool.known().filter(|_| all.is_none());
        all.into_iter().flatten().chain(default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tree;

    #[test]
    fn facts_survive_json() {
        let (_dir, nothing) = tree(&[]);
        for root in [Root::live(), nothing] {
            let facts = Facts::gather(&root, Scan::IfQuick);
            let json = serde_json::to_string(&facts).unwrap_or_default();
            assert_eq!(serde_json::from_str(&json).ok(), Some(facts), "{json}");
        }
    }

    #[test]
    fn a_machine_of_which_nothing_is_known_says_so() {
        let (_dir, root) = tree(&[]);
        let facts = Facts::gather(&root, Scan::IfQuick);
        assert!(!facts.any_known() && facts.machine_pools().next().is_none());
    }
}
