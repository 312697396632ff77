//! The THP settings of the machine.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    hugepages::pools::page_size,
    reading::Reading,
    root::{ReadError, Root},
    units::{Bytes, PageSize},
};

/// Path of the settings.
pub const THP: &str = "sys/kernel/mm/transparent_hugepage";

/// The THP settings of the machine, with the kernel's names and values.
///
/// Source: `Documentation/admin-guide/mm/transhuge.rst`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Thp {
    /// Mode for anonymous memory: `always`, `madvise` or `never`.
    pub enabled: Reading<String>,
    /// When a page fault may reclaim or compact memory for a huge page: `always`, `defer`, `defer+madvise`,
    /// `madvise`, `never`.
    pub defrag: Reading<String>,
    /// Mode for shared memory: `always`, `within_size`, `advise`, `never`, `deny` or `force`.
    pub shmem_enabled: Reading<String>,
    /// `hpage_pmd_size`: the size of a THP mapped by one PMD entry, in bytes.
    #[serde(rename = "pmd_page_size_bytes")]
    pub pmd_size: Reading<PageSize>,
    /// `use_zero_page`: a read fault maps a shared huge page of zeros.
    pub use_zero_page: Reading<bool>,
    /// `shrink_underused`: THPs with mostly zero pages are split under memory pressure; `null` if the kernel has no such
    /// setting (before Linux 6.12).
    pub shrink_underused: Reading<Option<bool>>,
    /// The settings of khugepaged.
    pub khugepaged: Khugepaged,
    /// All sizes of large folios, the smallest first; empty before Linux 6.8.
    pub sizes: Reading<Vec<ThpSize>>,
}

/// `khugepaged/`: settings of the kernel thread that collapses base pages into THPs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Khugepaged {
    /// Whether khugepaged may compact memory for a huge page.
    pub defrag: Reading<bool>,
    /// Interval between two scans, in milliseconds.
    pub scan_sleep_millisecs: Reading<u64>,
    /// Wait after a failed allocation of a huge page, in milliseconds.
    pub alloc_sleep_millisecs: Reading<u64>,
    /// Base pages per scan.
    pub pages_to_scan: Reading<u64>,
    /// Maximum number of absent base pages in a collapse; they become resident.
    pub max_ptes_none: Reading<u64>,
    /// Maximum number of swapped-out base pages in a collapse; `null` if the kernel has no such setting.
    pub max_ptes_swap: Reading<Option<u64>>,
    /// Maximum number of base pages shared with another process in a collapse; `null` if the kernel has no such setting
    /// (before Linux 5.8).
    pub max_ptes_shared: Reading<Option<u64>>,
}

/// `hugepages-<N>kB/`: the settings of one folio size (mTHP, and the PMD size).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThpSize {
    /// The folio size, in bytes.
    #[serde(rename = "page_size_bytes")]
    pub page_size: PageSize,
    /// `always`, `inherit` (the machine's `enabled`), `madvise` or `never`; `null` if anonymous memory cannot
    /// have this size.
    pub enabled: Reading<Option<String>>,
    /// `always`, `inherit`, `within_size`, `advise` or `never`; `null` if shared memory cannot have this size
    /// or the kernel is older than 6.11.
    pub shmem_enabled: Reading<Option<String>>,
    /// `stats/`: what the kernel counts for this size, by its names: since boot, but `nr_anon` and
    /// `nr_anon_partially_mapped` now. Empty before Linux 6.10, and if only the settings were read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub statistics: BTreeMap<String, Reading<u64>>,
}

pub fn read(root: &Root) -> Thp {
    let choice = |name: &str| root.choice(path(name)).into();
    let flag = |name: &str| root.value(path(name), "0 or 1").map(|value: u8| value != 0).into();
    let number = |name: &str| root.value(path(name), "a number").into();
    Thp {
        enabled: choice("enabled"),
        defrag: choice("defrag"),
        shmem_enabled: choice("shmem_enabled"),
        pmd_size: pmd_size(root),
        use_zero_page: flag("use_zero_page"),
        shrink_underused: if_present(
            root.value(path("shrink_underused"), "0 or 1").map(|value: u8| value != 0),
        ),
        khugepaged: Khugepaged {
            defrag: flag("khugepaged/defrag"),
            scan_sleep_millisecs: number("khugepaged/scan_sleep_millisecs"),
            alloc_sleep_millisecs: number("khugepaged/alloc_sleep_millisecs"),
            pages_to_scan: number("khugepaged/pages_to_scan"),
            max_ptes_none: number("khugepaged/max_ptes_none"),
            max_ptes_swap: if_present(root.value(path("khugepaged/max_ptes_swap"), "a number")),
            max_ptes_shared: if_present(root.value(path("khugepaged/max_ptes_shared"), "a number")),
        },
        sizes: root.list(THP).map(|names| read_sizes(root, &names)).into(),
    }
}

/// Reads the PMD size only: one file instead of dozens.
pub fn pmd_size(root: &Root) -> Reading<PageSize> {
    Reading::from(root.value(path("hpage_pmd_size"), "a size in bytes").map(Bytes)).and_then(PageSize::new)
}

impl Thp {
    /// The mode for anonymous memory and pages of PMD size, and its file (relative to the root): the setting
    /// of the size, or the machine's if the size inherits or has none. `None` if unknown.
    pub fn pmd_enabled(&self) -> Option<(&str, PathBuf)> {
        self.decided("enabled", |size| &size.enabled, &self.enabled)
    }

    /// Like [`Thp::pmd_enabled`], for shared memory.
    pub fn pmd_shmem_enabled(&self) -> Option<(&str, PathBuf)> {
        match self.shmem_enabled.known().map(String::as_str) {
            // These two override the settings of the sizes.
            Some(word @ ("deny" | "force")) => Some((word, path("shmem_enabled"))),
            _ => self.decided("shmem_enabled", |size| &size.shmem_enabled, &self.shmem_enabled),
        }
    }

    fn decided<'a>(
        &'a self,
        name: &str,
        own: impl Fn(&ThpSize) -> &Reading<Option<String>>,
        machine: &'a Reading<String>,
    ) -> Option<(&'a str, PathBuf)> {
        let mut sizes = self.sizes.known().into_iter().flatten();
        match sizes.find(|size| Some(&size.page_size) == self.pmd_size.known()).map(own) {
            Some(Reading::Unknown { .. }) => None,
            Some(Reading::Known(Some(word))) if word != "inherit" => {
                Some((word, path_of(self.pmd_size.known().copied(), name)))
            }
            _ => machine.known().map(|word| (word.as_str(), path(name))),
        }
    }
}

/// The smallest large folio of any anonymous memory on the machine; `Some(None)` if there is none, `None` if
/// unknown (before Linux 6.13).
pub fn smallest_anonymous_folio(root: &Root) -> Option<Option<PageSize>> {
    let names = root.list(THP).ok()?;
    let mut sizes: Vec<(PageSize, &String)> =
        names.iter().filter_map(|name| Some((page_size(name)?, name))).collect();
    sizes.sort_unstable();
    let mut counted = false;
    for (size, name) in sizes {
        match root.value::<u64>(path(name).join("stats/nr_anon"), "a number") {
            Ok(0) => counted = true,
            Ok(_) => return Some(Some(size)),
            // A size for shared memory only.
            Err(error) if error.is_absent() => {}
            Err(_) => return None,
        }
    }
    counted.then_some(None)
}

/// The path of the setting `name`, relative to the root.
pub fn path(name: &str) -> PathBuf {
    Path::new(THP).join(name)
}

/// Like [`path`], for the setting of one folio size; `None` for that of the machine.
pub fn path_of(page_size: Option<PageSize>, name: &str) -> PathBuf {
    match page_size {
        Some(size) => path(&format!("hugepages-{}", size.sysfs())).join(name),
        None => path(name),
    }
}

/// The value of a setting that not every kernel has.
fn if_present<T>(read: Result<T, ReadError>) -> Reading<Option<T>> {
    match read {
        Ok(value) => Reading::Known(Some(value)),
        Err(error) if error.is_absent() => Reading::Known(None),
        Err(error) => Reading::unknown(error),
    }
}

fn read_sizes(root: &Root, names: &[String]) -> Vec<ThpSize> {
    let setting = |folder: &str, name: &str| if_present(root.choice(path(folder).join(name)));
    let sizes = names.iter().filter_map(|name| {
        Some(ThpSize {
            page_size: page_size(name)?,
            enabled: setting(name, "enabled"),
            shmem_enabled: setting(name, "shmem_enabled"),
            statistics: BTreeMap::new(),
        })
    });
    let mut sizes: Vec<ThpSize> = sizes.collect();
    sizes.sort_by_key(|size| size.page_size);
    sizes
}

/// The settings, and what the kernel counts for each size: dozens of files more.
pub fn read_with_statistics(root: &Root) -> Thp {
    let count = |mut size: ThpSize| {
        size.statistics = statistics(root, size.page_size);
        size
    };
    let settings = read(root);
    Thp { sizes: settings.sizes.map(|sizes| sizes.into_iter().map(count).collect()), ..settings }
}

fn statistics(root: &Root, size: PageSize) -> BTreeMap<String, Reading<u64>> {
    let stats = path_of(Some(size), "stats");
    let names = root.list(&stats).unwrap_or_default();
    let count = |name: String| {
        let count = root.value(stats.join(&name), "a number").into();
        (name, count)
    };
    names.into_iter().map(count).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::tree;

    #[test]
    fn settings_and_sizes_are_read() {
        let (_dir, root) = tree(&[
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152\n"),
            ("sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none", "511\n"),
            ("sys/kernel/mm/transparent_hugepage/shrink_underused", "1\n"),
            ("sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled", "always inherit madvise [never]\n"),
            ("sys/kernel/mm/transparent_hugepage/hugepages-64kB/stats/collapse_alloc", "7\n"),
            ("sys/kernel/mm/transparent_hugepage/hugepages-64kB/stats/split", "many\n"),
            ("sys/kernel/mm/transparent_hugepage/hugepages-8kB/shmem_enabled", "always [inherit] never\n"),
        ]);
        let thp = read_with_statistics(&root);
        assert_eq!(read(&root).sizes.known().map(|sizes| sizes[1].statistics.len()), Some(0));
        assert_eq!(thp.enabled.known().map(String::as_str), Some("madvise"));
        assert_eq!(thp.pmd_size.known().map(|size| size.log2()), Some(21));
        assert_eq!(thp.khugepaged.max_ptes_none, Reading::Known(511));
        assert_eq!(thp.shrink_underused, Reading::Known(Some(true)));
        assert_eq!(thp.khugepaged.max_ptes_shared, Reading::Known(None));
        assert!(thp.defrag.reason().is_some());
        let sizes = thp.sizes.known().cloned().unwrap_or_default();
        assert_eq!(sizes.iter().map(|s| s.page_size.log2()).collect::<Vec<_>>(), [13, 16]);
        assert_eq!(sizes[0].enabled, Reading::Known(None));
        assert!(sizes[0].statistics.is_empty());
        assert_eq!(sizes[1].statistics.get("collapse_alloc"), Some(&Reading::Known(7)));
        assert!(sizes[1].statistics.get("split").is_some_and(|count| count.reason().is_some()));
        assert_eq!(sizes[1].enabled, Reading::Known(Some("never".to_owned())));
    }

    #[test]
    fn folios_are_counted_where_the_kernel_counts_them() {
        let stats = |size, name| format!("{THP}/hugepages-{size}kB/stats/{name}");
        let smallest = |files: &[(&str, &str)]| {
            let (_dir, root) = tree(files);
            smallest_anonymous_folio(&root)
        };
        let (small, large, other) = (stats(64, "nr_anon"), stats(2048, "nr_anon"), stats(8, "split"));
        let found = smallest(&[(&small, "0"), (&large, "3"), (&other, "1")]).flatten();
        assert_eq!(found.map(PageSize::log2), Some(21));
        assert_eq!(smallest(&[(&small, "0")]), Some(None));
        assert_eq!(smallest(&[(&other, "0")]), None);
    }

    #[test]
    fn a_kernel_without_thp_is_unknown_not_never() {
        let (_dir, root) = tree(&[]);
        let thp = read(&root);
        assert!(thp.enabled.known().is_none() && thp.sizes.known().is_none());
    }

    #[test]
    fn a_size_decides_for_itself_or_inherits() {
        let dir = "sys/kernel/mm/transparent_hugepage";
        for (own, word, file) in [
            ("[always] inherit madvise never", "always", "hugepages-2048kB/enabled"),
            ("always [inherit] madvise never", "never", "enabled"),
        ] {
            let (_dir, root) = tree(&[
                (&format!("{dir}/enabled"), "always madvise [never]"),
                (&format!("{dir}/shmem_enabled"), "always never [deny]"),
                (&format!("{dir}/hpage_pmd_size"), "2097152"),
                (&format!("{dir}/hugepages-2048kB/enabled"), own),
                (&format!("{dir}/hugepages-2048kB/shmem_enabled"), "[always] never"),
            ]);
            let thp = read(&root);
            assert_eq!(thp.pmd_enabled(), Some((word, path(file))));
            assert_eq!(thp.pmd_shmem_enabled(), Some(("deny", path("shmem_enabled"))));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn nothing_makes_it_panic(text in any::<String>()) {
            let (_dir, root) = tree(&[
                ("sys/kernel/mm/transparent_hugepage/enabled", &text),
                ("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", &text),
                ("sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled", &text),
            ]);
            let _ = read(&root);
        }
    }
}
