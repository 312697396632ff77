//! What a machine offers: everything that is known of it, as one value.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    cgroup::{self, CgroupLimits},
    cpu::pmu::{self, Pmu},
    hugepages::{
        base_page,
        contiguity::{self, Contiguity, Scan},
        pools::{self, Pool},
        thp::{self, Thp},
    },
    proc::{
        limits::{self, Limits},
        meminfo::{self, Meminfo},
    },
    reading::Reading,
    root::Root,
    units::PageSize,
};

/// Where the kernel says which one it is.
pub const OSRELEASE: &str = "proc/sys/kernel/osrelease";

/// Everything known of a machine, as seen by the process that asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Facts {
    /// The release of the kernel.
    pub kernel: Reading<String>,
    /// The size of a base page.
    pub base_page: Reading<PageSize>,
    /// Memory as a whole.
    pub meminfo: Meminfo,
    /// The hugetlb pools, of the machine and of each node.
    pub pools: Reading<Vec<Pool>>,
    /// Transparent huge pages.
    pub thp: Thp,
    /// How many huge pages could be had.
    pub contiguity: Contiguity,
    /// What control groups allow the caller.
    pub cgroup: CgroupLimits,
    /// What else the caller may do.
    pub limits: Limits,
    /// The counters of the processor.
    pub pmu: Pmu,
}

impl Facts {
    /// Reads everything below `root`.
    #[must_use]
    pub fn gather(root: &Root, scan: Scan) -> Facts {
        let base_page = base_page::read(root);
        let meminfo = meminfo::read(root);
        let pools = Reading::from(pools::read(root));
        let thp = thp::read(root);
        let mut sizes: Vec<PageSize> =
            pools.known().into_iter().flatten().map(|pool| pool.page_size).collect();
        sizes.extend(meminfo.default_size.known());
        sizes.sort_unstable();
        sizes.dedup();
        let cgroup = cgroup::read(root, &sizes);
        // Transparent huge pages need the same contiguity, also where there are no pools.
        sizes.extend(thp.pmd_size.known());
        sizes.sort_unstable();
        sizes.dedup();
        let contiguity = contiguity::read(root, &base_page, &sizes, &meminfo.total, &meminfo.free, scan);
        Facts {
            kernel: root.value(OSRELEASE, "a release").into(),
            limits: limits::read(root),
            pmu: pmu::read(root),
            base_page,
            meminfo,
            pools,
            thp,
            contiguity,
            cgroup,
        }
    }

    /// Is there anything at all that could be read?
    #[must_use]
    pub fn any_known(&self) -> bool {
        self.meminfo.total.known().is_some()
            || self.pools.known().is_some()
            || self.thp.enabled.known().is_some()
    }

    /// The pools of the whole machine: of all sizes, or where /sys is missing of the default size.
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
