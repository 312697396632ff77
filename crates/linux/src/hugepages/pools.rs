//! The hugetlb pools, by page size and NUMA node.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    root::{ReadError, Root},
    units::{Bytes, PageSize, Pages},
};

/// Path of the machine's pools, a folder per page size.
pub const POOLS: &str = "sys/kernel/mm/hugepages";
/// Path of the NUMA nodes, a folder each.
pub const NODES: &str = "sys/devices/system/node";

/// The hugetlb pool of one page size, on one NUMA node or on all.
///
/// Source: `Documentation/admin-guide/mm/hugetlbpage.rst`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pool {
    /// The page size, in bytes.
    #[serde(rename = "page_size_bytes")]
    pub page_size: PageSize,
    /// The NUMA node; `null` for all nodes together.
    pub node: Option<u32>,
    /// `nr_hugepages`: all pages, including surplus.
    pub total: Pages,
    /// `free_hugepages`: pages not in use, including reserved ones.
    pub free: Pages,
    /// `resv_hugepages`: pages reserved for a mapping and not yet faulted in. The kernel counts them for all
    /// nodes together: for one node, the number that this node may have to provide, if no other one does.
    pub reserved: Option<Pages>,
    /// `surplus_hugepages`: pages beyond the size of the pool, freed after use.
    pub surplus: Pages,
    /// `nr_overcommit_hugepages`: the maximum number of surplus pages; `null` for one node.
    pub overcommit: Option<Pages>,
}

impl Pool {
    /// Pages available to a new mapping: free and not reserved; for one of several nodes, a lower bound.
    pub fn available(&self) -> Pages {
        self.free.saturating_sub(self.reserved.unwrap_or_default())
    }

    /// Pages in use.
    pub fn used(&self) -> Pages {
        self.total.saturating_sub(self.free)
    }

    pub fn bytes(&self) -> Bytes {
        self.total * self.page_size
    }
}

/// The folder of a pool, relative to the root.
pub fn folder(page_size: PageSize, node: Option<u32>) -> PathBuf {
    let size = format!("hugepages-{}", page_size.sysfs());
    match node {
        None => Path::new(POOLS).join(size),
        Some(node) => Path::new(NODES).join(format!("node{node}/hugepages")).join(size),
    }
}

/// All pools by page size, smallest first: of the machine, then of each node.
///
/// Fails if the kernel has no hugetlb or /sys is not mounted ([`ReadError::is_absent`]).
pub fn read(root: &Root) -> Result<Vec<Pool>, ReadError> {
    let mut pools = read_folder(root, Path::new(POOLS), None)?;
    let reserved: Vec<_> = pools.iter().map(|pool| (pool.page_size, pool.reserved)).collect();
    let reserved_of = |size| reserved.iter().find(|(of, _)| *of == size).and_then(|(_, reserved)| *reserved);
    for name in root.list(NODES).unwrap_or_default() {
        let Some(node) = name.strip_prefix("node").and_then(|number| number.parse().ok()) else { continue };
        match read_folder(root, &Path::new(NODES).join(name).join("hugepages"), Some(node)) {
            Ok(found) => pools.extend(found.into_iter().map(|pool| {
                let reserved = reserved_of(pool.page_size);
                of_node(pool, reserved)
            })),
            // Some kernels have no such folder for a node without memory.
            Err(error) if error.is_absent() => {}
            Err(error) => return Err(error),
        }
    }
    pools.sort_by_key(|pool| (pool.page_size, pool.node));
    Ok(pools)
}

/// The pool of one page size; an error that [`ReadError::is_absent`] if the machine does not have it.
pub fn find(root: &Root, page_size: PageSize, node: Option<u32>) -> Result<Pool, ReadError> {
    let of_machine = read_pool(root, &folder(page_size, None), page_size, None)?;
    if node.is_none() {
        return Ok(of_machine);
    }
    let pool = read_pool(root, &folder(page_size, node), page_size, node)?;
    Ok(of_node(pool, of_machine.reserved))
}

/// The pool of a node, with the pages that are reserved on all nodes.
fn of_node(pool: Pool, reserved: Option<Pages>) -> Pool {
    Pool { reserved: reserved.map(|pages| pages.min(pool.free)), ..pool }
}

fn read_folder(root: &Root, dir: &Path, node: Option<u32>) -> Result<Vec<Pool>, ReadError> {
    let names = root.list(dir)?;
    let sizes = names.iter().filter_map(|name| Some((name, page_size(name)?)));
    sizes.map(|(name, page_size)| read_pool(root, &dir.join(name), page_size, node)).collect()
}

fn read_pool(root: &Root, dir: &Path, page_size: PageSize, node: Option<u32>) -> Result<Pool, ReadError> {
    let pages = |name: &str| root.value(dir.join(name), "a number of pages").map(Pages);
    let of_machine = |name| if node.is_none() { pages(name).map(Some) } else { Ok(None) };
    Ok(Pool {
        page_size,
        node,
        total: pages("nr_hugepages")?,
        free: pages("free_hugepages")?,
        reserved: of_machine("resv_hugepages")?,
        surplus: pages("surplus_hugepages")?,
        overcommit: of_machine("nr_overcommit_hugepages")?,
    })
}

/// The page size in the name of a folder: `hugepages-2048kB`.
pub(crate) fn page_size(folder: &str) -> Option<PageSize> {
    let kib = folder.strip_prefix("hugepages-")?.strip_suffix("kB")?;
    PageSize::new(Bytes::from_kib(kib.parse().ok()?)).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::tree;

    const SIZE: &str = "sys/kernel/mm/hugepages/hugepages-2048kB";
    const NODE: &str = "sys/devices/system/node/node1/hugepages/hugepages-2048kB";

    fn machine(total: &str) -> Vec<(String, String)> {
        let mut files = Vec::new();
        for (dir, names) in [
            (
                SIZE,
                &[
                    "nr_hugepages",
                    "free_hugepages",
                    "resv_hugepages",
                    "surplus_hugepages",
                    "nr_overcommit_hugepages",
                ][..],
            ),
            (NODE, &["nr_hugepages", "free_hugepages", "surplus_hugepages"][..]),
        ] {
            for (value, name) in names.iter().enumerate() {
                let value = if value == 0 { total.to_owned() } else { format!("{}\n", 10 - value) };
                files.push((format!("{dir}/{name}"), value));
            }
        }
        files
    }

    fn read_machine(total: &str) -> Result<Vec<Pool>, ReadError> {
        let files = machine(total);
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let (_dir, root) = tree(&files);
        read(&root)
    }

    #[test]
    fn pools_are_read_for_the_machine_and_for_each_node() {
        let pools = read_machine("20\n").unwrap_or_default();
        assert_eq!(pools.iter().map(|p| p.node).collect::<Vec<_>>(), [None, Some(1)]);
        assert_eq!(
            pools[0],
            Pool {
                page_size: pools[0].page_size,
                node: None,
                total: Pages(20),
                free: Pages(9),
                reserved: Some(Pages(8)),
                surplus: Pages(7),
                overcommit: Some(Pages(6)),
            }
        );
        assert_eq!((pools[0].available(), pools[0].used()), (Pages(1), Pages(11)));
        // The reservations of all nodes, which this node may have to provide.
        assert_eq!((pools[1].reserved, pools[1].available()), (Some(Pages(8)), Pages(1)));
        assert_eq!(folder(pools[1].page_size, Some(1)), Path::new(NODE));
    }

    #[test]
    fn one_pool_is_found_without_the_others() {
        let files = machine("20\n");
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let (_dir, root) = tree(&files);
        for pool in read(&root).unwrap_or_default() {
            assert_eq!(find(&root, pool.page_size, pool.node).ok(), Some(pool));
        }
        let absent = |size: PageSize, node| find(&root, size, node).is_err_and(|error| error.is_absent());
        assert!("1g".parse().is_ok_and(|size| absent(size, None)));
        assert!("2m".parse().is_ok_and(|size| absent(size, Some(0))));
    }

    #[test]
    fn no_hugetlb_is_not_an_empty_pool() {
        let (_dir, root) = tree(&[]);
        assert!(read(&root).is_err_and(|error| error.is_absent()));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn nothing_makes_it_panic(text in any::<String>()) {
            let _ = read_machine(&text);
            let _ = page_size(&text);
            let _ = page_size(&format!("hugepages-{text}kB"));
        }
    }
}
