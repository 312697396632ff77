//! The machine-wide settings that Hugewise may change, each one file of /proc or /sys.
//!
//! Settings are named, read and validated here; only the crate hugewise-changes writes them, through its
//! journal.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    hugepages::{pools, thp},
    proc::limits,
    reading::Reason,
    root::{ReadError, Root},
    tracefs,
    units::PageSize,
};

const PAGES: &str = "a number of pages";
const NUMBER: &str = "a number";

/// A machine-wide setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// The size of the hugetlb pool of one page size (`nr_hugepages`), on one NUMA node or on all.
    Pool {
        /// The page size, in bytes.
        #[serde(rename = "page_size_bytes", alias = "page_size")]
        page_size: PageSize,
        /// The NUMA node; `null` for all nodes together.
        node: Option<u32>,
    },
    /// `enabled` of THP: always, madvise or never.
    ThpEnabled {
        /// A folio size, which may also be `inherit`; `null` for the machine's setting, which sizes with
        /// `inherit` follow.
        #[serde(rename = "page_size_bytes", alias = "page_size")]
        page_size: Option<PageSize>,
    },
    /// `shmem_enabled` of THP.
    ShmemEnabled {
        /// A folio size; `null` for the machine's setting.
        #[serde(rename = "page_size_bytes", alias = "page_size")]
        page_size: Option<PageSize>,
    },
    /// The maximum number of surplus pages (`nr_overcommit_hugepages`).
    Overcommit {
        /// The page size, in bytes.
        #[serde(rename = "page_size_bytes", alias = "page_size")]
        page_size: PageSize,
    },
    /// `defrag` of THP: when a page fault may reclaim or compact memory for a huge page.
    ThpDefrag,
    /// A setting of khugepaged.
    Khugepaged {
        /// The name of the setting.
        knob: Knob,
    },
    /// `vm.hugetlb_shm_group`: the group that may use SysV segments on huge pages.
    ShmGroup,
    /// `kernel.shmmax`: the maximum size of a SysV segment, in bytes.
    ShmMax,
    /// `kernel.shmall`: the maximum size of all SysV segments together, in base pages.
    ShmAll,
    /// `kernel.task_delayacct`: whether the kernel accounts delays of threads. Threads started while it is 0
    /// are never accounted.
    TaskDelayacct,
    /// A tracing instance of hugewise: `present` or `absent`.
    TraceInstance {
        /// The process id of the recorder.
        id: u32,
    },
}

/// A setting of khugepaged, see [`thp::Khugepaged`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // The names of the kernel's files.
pub enum Knob {
    Defrag,
    ScanSleepMillisecs,
    AllocSleepMillisecs,
    PagesToScan,
    MaxPtesNone,
    MaxPtesSwap,
    MaxPtesShared,
}

impl Knob {
    pub const ALL: [Knob; 7] = [
        Knob::Defrag,
        Knob::ScanSleepMillisecs,
        Knob::AllocSleepMillisecs,
        Knob::PagesToScan,
        Knob::MaxPtesNone,
        Knob::MaxPtesSwap,
        Knob::MaxPtesShared,
    ];

    /// The name of the file in `khugepaged/`.
    pub fn name(self) -> &'static str {
        match self {
            Knob::Defrag => "defrag",
            Knob::ScanSleepMillisecs => "scan_sleep_millisecs",
            Knob::AllocSleepMillisecs => "alloc_sleep_millisecs",
            Knob::PagesToScan => "pages_to_scan",
            Knob::MaxPtesNone => "max_ptes_none",
            Knob::MaxPtesSwap => "max_ptes_swap",
            Knob::MaxPtesShared => "max_ptes_shared",
        }
    }
}

impl FromStr for Knob {
    type Err = Reason;

    fn from_str(text: &str) -> Result<Knob, Reason> {
        Knob::ALL.into_iter().find(|knob| knob.name() == text).ok_or_else(|| {
            let names = Knob::ALL.map(Knob::name).join(", ");
            Reason::new(format!("khugepaged has no '{text}'; it has {names}"))
        })
    }
}

impl Setting {
    /// The file, relative to `/`.
    pub fn path(self) -> PathBuf {
        match self {
            Setting::Pool { page_size, node } => pools::folder(page_size, node).join("nr_hugepages"),
            Setting::ThpEnabled { page_size } => thp::path_of(page_size, "enabled"),
            Setting::ShmemEnabled { page_size } => thp::path_of(page_size, "shmem_enabled"),
            Setting::Overcommit { page_size } => {
                pools::folder(page_size, None).join("nr_overcommit_hugepages")
            }
            Setting::ThpDefrag => thp::path("defrag"),
            Setting::Khugepaged { knob } => thp::path("khugepaged").join(knob.name()),
            Setting::ShmGroup => limits::SHM_GROUP.into(),
            Setting::ShmMax => limits::SHMMAX.into(),
            Setting::ShmAll => limits::SHMALL.into(),
            Setting::TaskDelayacct => "proc/sys/kernel/task_delayacct".into(),
            Setting::TraceInstance { id } => {
                Path::new(tracefs::MOUNT_POINTS[0]).join("instances").join(tracefs::name(id))
            }
        }
    }

    /// True if the file lists the valid words.
    pub fn is_choice(self) -> bool {
        matches!(self, Setting::ThpEnabled { .. } | Setting::ShmemEnabled { .. } | Setting::ThpDefrag)
    }

    /// `value` in the form in which it is written, or why it is invalid: a word that the kernel's file lists,
    /// or a number.
    pub fn checked(self, root: &Root, value: &str) -> Result<Result<String, Reason>, ReadError> {
        let now = root.read(self.path())?;
        let value = value.trim();
        if self.is_choice() {
            let words: Vec<&str> = now.split_whitespace().map(|word| word.trim_matches(['[', ']'])).collect();
            return Ok(if words.contains(&value) {
                Ok(value.to_owned())
            } else {
                Reason::err(format!(
                    "'{value}' is not offered by this kernel, which has {}",
                    words.join(", ")
                ))
            });
        }
        let largest = match self {
            Setting::ShmGroup => u64::from(u32::MAX),
            Setting::Khugepaged { knob: Knob::Defrag } | Setting::TaskDelayacct => 1,
            _ => u64::MAX,
        };
        Ok(match value.parse::<u64>() {
            Ok(number) if number <= largest => Ok(number.to_string()),
            Ok(_) => Reason::err(format!("{value} is more than {largest}")),
            Err(_) => Reason::err(format!("'{value}' is not a whole number")),
        })
    }

    /// The value in the form in which it would be written back.
    ///
    /// For a pool it excludes surplus pages, which come and go with the processes that use them.
    pub fn read(self, root: &Root) -> Result<String, ReadError> {
        match self {
            Setting::Pool { .. } => {
                let surplus = self.surplus(root)?;
                let total: u64 = root.value(self.path(), PAGES)?;
                Ok(total.saturating_sub(surplus).to_string())
            }
            Setting::TraceInstance { id } => tracefs::presence(root, id).map(str::to_owned),
            _ if self.is_choice() => root.choice(self.path()),
            _ => Ok(root.value::<u64>(self.path(), NUMBER)?.to_string()),
        }
    }

    /// The surplus pages of a pool, which return to the system when their users exit; 0 for other settings.
    pub fn surplus(self, root: &Root) -> Result<u64, ReadError> {
        let Setting::Pool { page_size, node } = self else { return Ok(0) };
        match root.value(pools::folder(page_size, node).join("surplus_hugepages"), PAGES) {
            Err(error) if error.is_absent() => Ok(0),
            read => read,
        }
    }

    /// The settings to restore instead of this one. A pool over all nodes is restored node by node: the
    /// kernel distributes its pages. On a machine with one node, that node's pool is the pool of the machine,
    /// so that no two parts hold the same pages.
    pub fn parts(self, root: &Root) -> Vec<Setting> {
        let Setting::Pool { page_size, node } = self else { return vec![self] };
        let pools = pools::read(root).unwrap_or_default();
        let of_nodes = pools.iter().filter(|pool| pool.page_size == page_size && pool.node.is_some());
        let parts: Vec<Setting> = of_nodes.map(|pool| Setting::Pool { page_size, node: pool.node }).collect();
        match (parts.len(), node) {
            // For a node that does not exist, reading the setting fails.
            (_, Some(_)) if !parts.contains(&self) => vec![self],
            (0 | 1, _) => vec![Setting::Pool { page_size, node: None }],
            (_, Some(_)) => vec![self],
            (_, None) => parts,
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Pool { page_size, node: None } => write!(f, "pool of {page_size} pages"),
            Setting::Pool { page_size, node: Some(node) } => {
                write!(f, "pool of {page_size} pages on node {node}")
            }
            Setting::Overcommit { page_size } => write!(f, "overcommit of {page_size} pages"),
            Setting::ShmGroup => f.write_str("vm.hugetlb_shm_group"),
            Setting::ShmMax => f.write_str("kernel.shmmax"),
            Setting::ShmAll => f.write_str("kernel.shmall"),
            Setting::TaskDelayacct => f.write_str("kernel.task_delayacct"),
            Setting::TraceInstance { id } => write!(f, "tracing instance {}", tracefs::name(*id)),
            Setting::ThpEnabled { .. }
            | Setting::ShmemEnabled { .. }
            | Setting::ThpDefrag
            | Setting::Khugepaged { .. } => {
                let path = self.path();
                let name = path.strip_prefix("sys/kernel/mm").unwrap_or(&path);
                write!(f, "{}", name.display())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{testing::tree, units::Bytes};

    #[test]
    fn only_what_the_kernel_offers_is_a_value() -> Result<(), Box<dyn std::error::Error>> {
        let (_dir, root) = tree(&[
            ("sys/kernel/mm/transparent_hugepage/defrag", "always defer defer+madvise [madvise] never\n"),
            ("sys/kernel/mm/transparent_hugepage/khugepaged/defrag", "1\n"),
            ("proc/sys/kernel/shmmax", "18446744073692774399\n"),
        ]);
        let defrag = Setting::ThpDefrag;
        assert_eq!(defrag.read(&root)?, "madvise");
        assert_eq!(defrag.checked(&root, "defer+madvise")?, Ok("defer+madvise".to_owned()));
        let refused = defrag.checked(&root, "sometimes")?.unwrap_or_else(String::from);
        assert!(refused.contains("always, defer, defer+madvise, madvise, never"), "{refused}");
        assert!(defrag.checked(&root, "")?.is_err() && defrag.checked(&root, "[madvise]")?.is_err());
        let knob = Setting::Khugepaged { knob: "defrag".parse()? };
        assert_eq!(knob.checked(&root, " 01")?, Ok("1".to_owned()));
        assert!(knob.checked(&root, "2")?.is_err());
        assert_eq!(Setting::ShmMax.read(&root)?, "18446744073692774399");
        assert!(Setting::ShmMax.checked(&root, "-1")?.is_err());
        assert!(Setting::ShmAll.checked(&root, "1").is_err_and(|error| error.is_absent()));
        assert!("scan".parse::<Knob>().is_err_and(|why| why.to_string().contains("pages_to_scan")));
        Ok(())
    }

    #[test]
    fn the_pool_of_the_only_node_is_that_of_the_machine() -> Result<(), Box<dyn std::error::Error>> {
        let page_size = PageSize::new(Bytes(2 << 20))?;
        let (machine, first, second) = (None, Some(0), Some(1));
        let pool = |node| Setting::Pool { page_size, node };
        let mut files = Vec::new();
        for node in [machine, first] {
            for file in ["nr_hugepages", "free_hugepages", "surplus_hugepages", "resv_hugepages"] {
                files.push((pools::folder(page_size, node).join(file), "0"));
            }
            files.push((pools::folder(page_size, node).join("nr_overcommit_hugepages"), "0"));
        }
        let files: Vec<_> = files.iter().map(|(path, text)| (path.to_str().unwrap_or(""), *text)).collect();
        let (_dir, root) = tree(&files);
        assert_eq!(pool(first).parts(&root), [pool(machine)]);
        assert_eq!(pool(machine).parts(&root), [pool(machine)]);
        assert_eq!(pool(second).parts(&root), [pool(second)], "a missing node is not the machine");
        Ok(())
    }
}
