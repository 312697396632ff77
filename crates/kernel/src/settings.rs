//! The machine-wide settings that Hugewise may change, each one file of /proc or /sys.
//!
//! Reading is free; writing is only possible through the [`crate::journal`].

use std::{fmt, fs, io, path::PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    pools,
    root::{ReadError, Root},
    thp,
    units::PageSize,
};

const PAGES: &str = "a number of pages";

/// One machine-wide setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// Pages in the hugetlb pool of one size (`nr_hugepages`), on one NUMA node or on all.
    Pool {
        /// Size of its pages.
        page_size: PageSize,
        /// The node; all nodes together where nothing is named.
        node: Option<u32>,
    },
    /// `enabled` of transparent huge pages: always, madvise or never.
    ThpEnabled {
        /// Of this size alone (`inherit` is possible, too); of all sizes that inherit where nothing
        /// is named.
        page_size: Option<PageSize>,
    },
    /// `shmem_enabled` of transparent huge pages.
    ShmemEnabled {
        /// As above.
        page_size: Option<PageSize>,
    },
}

impl Setting {
    /// Its file, relative to `/`.
    #[must_use]
    pub fn path(self) -> PathBuf {
        match self {
            Setting::Pool { page_size, node } => pools::folder(page_size, node).join("nr_hugepages"),
            Setting::ThpEnabled { page_size } => thp_path(page_size, "enabled"),
            Setting::ShmemEnabled { page_size } => thp_path(page_size, "shmem_enabled"),
        }
    }

    /// Its value, as it would be written back.
    ///
    /// Of a pool these are the pages that were set aside for good: surplus pages come and go with
    /// the processes that use them.
    pub fn read(self, root: &Root) -> Result<String, ReadError> {
        match self {
            Setting::Pool { .. } => {
                let surplus = self.surplus(root)?;
                Ok(root
                    .value(self.path(), PAGES)
                    .map(|total: u64| total.saturating_sub(surplus))?
                    .to_string())
            }
            Setting::ThpEnabled { .. } | Setting::ShmemEnabled { .. } => root.choice(self.path()),
        }
    }

    /// Of a pool: pages beyond its size, which return to the system when their users end.
    pub(crate) fn surplus(self, root: &Root) -> Result<u64, ReadError> {
        let Setting::Pool { page_size, node } = self else { return Ok(0) };
        match root.value(pools::folder(page_size, node).join("surplus_hugepages"), PAGES) {
            Err(error) if error.is_absent() => Ok(0),
            read => read,
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
        let pools = pools::read(root).unwrap_or_default();
        let of_nodes = pools.iter().filter(|pool| pool.page_size == page_size && pool.node.is_some());
        let parts: Vec<Setting> = of_nodes.map(|pool| Setting::Pool { page_size, node: pool.node }).collect();
        if parts.len() < 2 { vec![self] } else { parts }
    }
}

fn thp_path(page_size: Option<PageSize>, name: &str) -> PathBuf {
    match page_size {
        Some(size) => thp::path(&format!("hugepages-{}", size.sysfs())).join(name),
        None => thp::path(name),
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Pool { page_size, node: None } => write!(f, "pool of {page_size} pages"),
            Setting::Pool { page_size, node: Some(node) } => {
                write!(f, "pool of {page_size} pages on node {node}")
            }
            Setting::ThpEnabled { .. } | Setting::ShmemEnabled { .. } => {
                let path = self.path();
                let name = path.strip_prefix("sys/kernel/mm").unwrap_or(&path);
                write!(f, "{}", name.display())
            }
        }
    }
}
