//! The machine-wide settings that Hugewise may change, each one file of /proc or /sys.
//!
//! Reading is free; writing is only possible through the [`crate::journal`].

use std::{fmt, fs, io};

use serde::{Deserialize, Serialize};

use crate::{
    root::{ReadError, Root},
    units::PageSize,
};

const THP: &str = "sys/kernel/mm/transparent_hugepage";

/// One machine-wide setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// Pages in the hugetlb pool of one size (`nr_hugepages`), on one NUMA node or on all.
    Pool {
        /// Size of its pages.
        page_size: PageSize,
        /// The node; all nodes together where nothing is named.
        node: Option<u32>,
    },
    /// `transparent_hugepage/enabled`: always, madvise or never.
    ThpEnabled,
    /// `transparent_hugepage/shmem_enabled`.
    ShmemEnabled,
}

impl Setting {
    /// Its file, relative to `/`.
    #[must_use]
    pub fn path(self) -> String {
        match self {
            Setting::Pool { page_size, node: None } => {
                format!("sys/kernel/mm/hugepages/hugepages-{}/nr_hugepages", page_size.sysfs())
            }
            Setting::Pool { page_size, node: Some(node) } => format!(
                "sys/devices/system/node/node{node}/hugepages/hugepages-{}/nr_hugepages",
                page_size.sysfs()
            ),
            Setting::ThpEnabled => format!("{THP}/enabled"),
            Setting::ShmemEnabled => format!("{THP}/shmem_enabled"),
        }
    }

    /// Its value, as it would be written back.
    pub fn read(self, root: &Root) -> Result<String, ReadError> {
        match self {
            Setting::Pool { .. } => {
                root.value::<u64>(self.path(), "a number of pages").map(|n| n.to_string())
            }
            Setting::ThpEnabled | Setting::ShmemEnabled => root.choice(self.path()),
        }
    }

    /// Writes it. The kernel may do less than it was told: read it back.
    pub(crate) fn write(self, root: &Root, value: &str) -> io::Result<()> {
        // Never creates a file: a machine without the setting answers ENOENT.
        fs::OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(root.path(self.path()))
            .and_then(|mut file| io::Write::write_all(&mut file, value.as_bytes()))
    }

    /// The settings that must be put back for this one to be as it was: a pool over all nodes is
    /// the pools of each node, for the kernel spreads and takes pages as it likes.
    #[must_use]
    pub fn parts(self, root: &Root) -> Vec<Setting> {
        let Setting::Pool { page_size, node: None } = self else { return vec![self] };
        let nodes: Vec<u32> = root
            .list("sys/devices/system/node")
            .unwrap_or_default()
            .iter()
            .filter_map(|name| name.strip_prefix("node")?.parse().ok())
            .filter(|node| Setting::Pool { page_size, node: Some(*node) }.read(root).is_ok())
            .collect();
        if nodes.len() < 2 {
            return vec![self];
        }
        nodes.into_iter().map(|node| Setting::Pool { page_size, node: Some(node) }).collect()
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Pool { page_size, node: None } => write!(f, "pool of {page_size} pages"),
            Setting::Pool { page_size, node: Some(node) } => {
                write!(f, "pool of {page_size} pages on node {node}")
            }
            Setting::ThpEnabled => write!(f, "transparent_hugepage/enabled"),
            Setting::ShmemEnabled => write!(f, "transparent_hugepage/shmem_enabled"),
        }
    }
}
