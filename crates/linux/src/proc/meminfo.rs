//! Memory of the whole machine: /proc/meminfo.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    hugepages::pools::Pool,
    proc::fields::Fields,
    reading::Reading,
    root::Root,
    units::{Bytes, PageSize, Pages},
};

pub const MEMINFO: &str = "proc/meminfo";

/// Path of the maximum number of surplus pages of the default size.
pub const OVERCOMMIT: &str = "proc/sys/vm/nr_overcommit_hugepages";

/// The relevant lines of /proc/meminfo, see `Documentation/filesystems/proc.rst`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Meminfo {
    /// `MemTotal`: usable memory, in bytes.
    #[serde(rename = "total_bytes")]
    pub total: Reading<Bytes>,
    /// `MemFree`: unused memory, in bytes.
    #[serde(rename = "free_bytes")]
    pub free: Reading<Bytes>,
    /// `MemAvailable`: the kernel's estimate of memory available without swapping, in bytes.
    #[serde(rename = "available_bytes")]
    pub available: Reading<Bytes>,
    /// `PageTables`: memory of the page tables of all processes, in bytes.
    #[serde(rename = "page_tables_bytes", default = "not_recorded")]
    pub page_tables: Reading<Bytes>,
    /// `SwapTotal`, in bytes.
    #[serde(rename = "swap_total_bytes", default = "not_recorded")]
    pub swap_total: Reading<Bytes>,
    /// `SwapFree`, in bytes.
    #[serde(rename = "swap_free_bytes", default = "not_recorded")]
    pub swap_free: Reading<Bytes>,
    /// `CommitLimit`: most memory that programs may commit if `vm.overcommit_memory` is 2, in bytes.
    #[serde(rename = "commit_limit_bytes", default = "not_recorded")]
    pub commit_limit: Reading<Bytes>,
    /// `Committed_AS`: memory that programs have committed, in bytes.
    #[serde(rename = "committed_bytes", default = "not_recorded")]
    pub committed: Reading<Bytes>,
    /// `Hugetlb`: memory of the pools of all sizes, in bytes.
    #[serde(rename = "hugetlb_bytes")]
    pub hugetlb: Reading<Bytes>,
    /// `AnonHugePages`: anonymous memory on THPs of PMD size, in bytes; `null` if the kernel does not count it.
    #[serde(rename = "anonymous_huge_bytes", default = "not_counted")]
    pub anonymous_huge: Reading<Option<Bytes>>,
    /// `ShmemHugePages`: shared memory and tmpfs on pages of PMD size, in bytes; `null` before Linux 4.8.
    #[serde(rename = "shared_huge_bytes", default = "not_counted")]
    pub shared_huge: Reading<Option<Bytes>>,
    /// `FileHugePages`: the page cache on pages of PMD size, in bytes; `null` before Linux 5.4.
    #[serde(rename = "file_huge_bytes", default = "not_counted")]
    pub file_huge: Reading<Option<Bytes>>,
    /// `Hugepagesize`: the default huge page size, in bytes.
    #[serde(rename = "default_page_size_bytes")]
    pub default_size: Reading<PageSize>,
    /// `HugePages_*` and `vm.nr_overcommit_hugepages`: the pool of the default size, of all nodes.
    pub default_pool: Reading<Pool>,
}

/// The value of a field that older recordings lack.
fn not_recorded() -> Reading<Bytes> {
    Reading::unknown("not recorded by this version of hugewise")
}

fn not_counted() -> Reading<Option<Bytes>> {
    not_recorded().map(Some)
}

pub fn read(root: &Root) -> Meminfo {
    let fields = Fields::read(root, MEMINFO);
    let default_size = fields.kib("Hugepagesize").and_then(PageSize::new);
    let default_pool = default_size.known().and_then(|size| default_pool(root, &fields, *size));
    let no_lines = || format!("{} has no HugePages_ lines", root.path(MEMINFO).display());
    Meminfo {
        total: fields.kib("MemTotal"),
        free: fields.kib("MemFree"),
        available: fields.kib("MemAvailable"),
        page_tables: fields.kib("PageTables"),
        swap_total: fields.kib("SwapTotal"),
        swap_free: fields.kib("SwapFree"),
        commit_limit: fields.kib("CommitLimit"),
        committed: fields.kib("Committed_AS"),
        hugetlb: fields.kib("Hugetlb"),
        anonymous_huge: fields.kib_if_present("AnonHugePages"),
        shared_huge: fields.kib_if_present("ShmemHugePages"),
        file_huge: fields.kib_if_present("FileHugePages"),
        default_size,
        default_pool: default_pool.ok_or_else(no_lines).into(),
    }
}

impl Meminfo {
    /// Swap in use; `None` if unknown.
    pub fn swapped(&self) -> Option<Bytes> {
        self.swap_total.known().zip(self.swap_free.known()).map(|(total, free)| total.saturating_sub(*free))
    }
}

fn default_pool(root: &Root, fields: &Fields<'_>, page_size: PageSize) -> Option<Pool> {
    let pages =
        |key| fields.get(key, "a number of pages", |value| value.parse().ok()).known().map(|n| Pages(*n));
    Some(Pool {
        page_size,
        node: None,
        total: pages("HugePages_Total")?,
        free: pages("HugePages_Free")?,
        surplus: pages("HugePages_Surp")?,
        reserved: Some(pages("HugePages_Rsvd")?),
        overcommit: root.value(OVERCOMMIT, "a number of pages").map(Pages).ok(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::tree;

    const TEXT: &str = "\
MemTotal:       24731708 kB
MemFree:        24117072 kB
MemAvailable:   24222088 kB
HugePages_Total:      12
HugePages_Free:       10
HugePages_Rsvd:        3
HugePages_Surp:        1
Hugepagesize:       2048 kB
Hugetlb:           24576 kB
FileHugePages:    190464 kB
";

    #[test]
    fn the_default_size_and_its_pool_are_read() {
        let (_dir, root) = tree(&[(MEMINFO, TEXT), (OVERCOMMIT, "5\n")]);
        let meminfo = read(&root);
        assert_eq!(meminfo.total, Reading::Known(Bytes::from_kib(24731708)));
        assert_eq!(meminfo.file_huge, Reading::Known(Some(Bytes::from_kib(190464))));
        assert_eq!(meminfo.shared_huge, Reading::Known(None));
        assert_eq!(meminfo.default_size.known().map(|s| s.sysfs()), Some("2048kB".to_owned()));
        assert_eq!(meminfo.default_pool.known().map(Pool::available), Some(Pages(7)));
        assert_eq!(meminfo.default_pool.known().and_then(|pool| pool.overcommit), Some(Pages(5)));
    }

    #[test]
    fn a_kernel_without_hugetlb_has_no_pool_of_zero_pages() {
        let (_dir, root) = tree(&[(MEMINFO, "MemTotal: 1 kB\nMemFree: many kB\n")]);
        let meminfo = read(&root);
        assert!(meminfo.default_pool.known().is_none() && meminfo.hugetlb.known().is_none());
        assert!(meminfo.free.reason().is_some_and(|r| r.contains("meminfo:2: expected an amount in kB")));
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in any::<String>()) {
            let (_dir, root) = tree(&[(MEMINFO, &text)]);
            let _ = read(&root);
        }
    }
}
