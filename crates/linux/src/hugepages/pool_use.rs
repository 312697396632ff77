//! Users of the pages of hugetlb pools: files, processes and shared memory.
//!
//! Sources: Documentation/admin-guide/mm/hugetlbpage.rst, proc(5), sysvipc(7).

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{base_page, pools::Pool};
use crate::{
    proc::{
        mounts::{self, Mount},
        process, segments,
        smaps::{self, Vma},
    },
    root::Root,
    sys::file::{self, patient},
    units::{Bytes, PageSize},
};

/// Largest number of files that are listed.
const MAX_FILES: usize = 4096;
/// Largest depth of folders below a mount point.
const MAX_DEPTH: usize = 4;

/// Users of the pools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolUse {
    /// Files on hugetlbfs that have pages.
    pub files: Vec<PoolFile>,
    /// Private memory of processes.
    pub private: Vec<PoolMemory>,
    /// Shared memory without a file here: SysV segments, memfd, shared anonymous memory, deleted files.
    pub shared: Vec<PoolMemory>,
    /// SysV segments that are attached to no process, and that may use pages of a pool. The kernel does not show whether
    /// they do, so accounts leave them out.
    #[serde(default)]
    pub possible: Vec<PoolMemory>,
    /// Number of processes whose mappings could not be read.
    pub unread: usize,
}

/// A file on hugetlbfs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolFile {
    pub path: PathBuf,
    /// Page size, in bytes.
    pub page_size_bytes: PageSize,
    /// Allocated bytes.
    pub bytes: Bytes,
    /// Processes that map it.
    pub processes: Vec<u32>,
}

/// Memory on pages of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolMemory {
    /// Name of the mapping, as the kernel prints it.
    pub name: String,
    /// Page size, in bytes.
    pub page_size_bytes: PageSize,
    /// Resident bytes.
    pub bytes: Bytes,
    /// Processes that map it.
    pub processes: Vec<u32>,
}

/// The pages of a pool in use, by their users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolAccount {
    pub used: Bytes,
    pub private: Bytes,
    pub files: Bytes,
    pub shared: Bytes,
}

impl PoolAccount {
    /// Bytes in use whose user is unknown.
    pub fn remainder(&self) -> Bytes {
        self.used.saturating_sub(self.private + self.files + self.shared)
    }
}

impl PoolUse {
    /// The account of the pool `pool` of the whole machine.
    pub fn account(&self, pool: &Pool) -> PoolAccount {
        let size = pool.page_size;
        let sum = |memory: &[PoolMemory]| {
            memory.iter().filter(|one| one.page_size_bytes == size).map(|one| one.bytes).sum()
        };
        PoolAccount {
            used: pool.used() * size,
            private: sum(&self.private),
            files: self.files.iter().filter(|file| file.page_size_bytes == size).map(|file| file.bytes).sum(),
            shared: sum(&self.shared),
        }
    }

    /// Files that no process maps, as far as the mappings of all processes could be read.
    pub fn left_files(&self) -> impl Iterator<Item = &PoolFile> {
        self.files.iter().filter(|file| file.processes.is_empty())
    }
}

/// The users of these pools. Nothing is read if all their pages are free.
pub fn read(root: &Root, pools: &[Pool]) -> PoolUse {
    let sizes: BTreeSet<PageSize> = pools
        .iter()
        .filter(|pool| pool.node.is_none() && pool.total > pool.free)
        .map(|pool| pool.page_size)
        .collect();
    if sizes.is_empty() {
        return PoolUse::default();
    }
    let files = if root.is_live() { files(root, &sizes) } else { BTreeMap::new() };
    let mut found = PoolUse::default();
    let mut mapped: BTreeMap<FileId, BTreeSet<u32>> = BTreeMap::new();
    let mut shared: BTreeMap<FileId, PoolMemory> = BTreeMap::new();
    let reader = root.clone();
    let read = move |pid: &u32| (*pid, hugetlb_mappings(&reader, *pid));
    for (pid, mappings) in patient::each(process::all(root).unwrap_or_default(), read) {
        let Some(mappings) = mappings else {
            found.unread += 1;
            continue;
        };
        let mut of_process: BTreeMap<FileId, Bytes> = BTreeMap::new();
        for vma in mappings {
            let id = (vma.device, vma.inode);
            let Ok(page_size_bytes) = PageSize::new(vma.kernel_page_size) else { continue };
            if !vma.is_shared {
                found.private.push(PoolMemory {
                    name: vma.name,
                    page_size_bytes,
                    bytes: vma.hugetlb,
                    processes: vec![pid],
                });
                continue;
            }
            mapped.entry(id).or_default().insert(pid);
            if files.contains_key(&id) {
                continue;
            }
            let bytes = of_process.entry(id).or_default();
            *bytes += vma.hugetlb;
            let memory = shared.entry(id).or_insert_with(|| PoolMemory {
                name: vma.name,
                page_size_bytes,
                bytes: Bytes::ZERO,
                processes: Vec::new(),
            });
            memory.bytes = memory.bytes.max(*bytes);
            if memory.processes.last() != Some(&pid) {
                memory.processes.push(pid);
            }
        }
    }
    found.private.retain(|memory| memory.bytes > Bytes::ZERO);
    let used = |size: PageSize| {
        let pool = pools.iter().find(|pool| pool.node.is_none() && pool.page_size == size);
        pool.map_or(Bytes::ZERO, |pool| pool.used() * size)
    };
    let base = base_page::read(root).known().copied();
    let segments = base.map_or_else(Vec::new, |base| segments::read(root, base));
    for ((_, inode), memory) in shared.iter_mut().filter(|(_, memory)| memory.name.starts_with("/SYSV")) {
        if let Some(segment) = segments.iter().find(|segment| segment.id == *inode) {
            memory.bytes = segment.resident_on(memory.page_size_bytes, used(memory.page_size_bytes));
        }
    }
    found.shared = shared.into_values().collect();
    for segment in segments.iter().filter(|segment| segment.attached == 0) {
        for page in sizes.iter().filter(|page| segment.may_be_on(**page)) {
            let certain = segment.is_counted_twice();
            let list = if certain { &mut found.shared } else { &mut found.possible };
            list.push(PoolMemory {
                name: segment.to_string(),
                page_size_bytes: *page,
                bytes: segment.resident_on(*page, Bytes(u64::MAX)),
                processes: Vec::new(),
            });
        }
    }
    found.files = files
        .into_iter()
        .map(|(id, file)| PoolFile {
            processes: mapped.get(&id).into_iter().flatten().copied().collect(),
            ..file
        })
        .collect();
    found.files.sort_by_key(|file| std::cmp::Reverse(file.bytes));
    found
}

/// Device and inode.
type FileId = ((u64, u64), u64);

/// The mappings of a process on pages of pools; `None` if they cannot be read.
fn hugetlb_mappings(root: &Root, pid: u32) -> Option<Vec<Vma>> {
    let rollup = root.read(format!("proc/{pid}/smaps_rollup"));
    // A kernel thread has no mappings.
    let Ok(rollup) = rollup else {
        return root.read(format!("proc/{pid}/maps")).ok().filter(String::is_empty).map(|_| Vec::new());
    };
    // A mapping of a file needs no resident page to keep the file in use.
    let resident = rollup.lines().any(|line| line.contains("_Hugetlb:") && !line.ends_with(" 0 kB"));
    let maps_file = || {
        root.read(format!("proc/{pid}/maps"))
            .is_ok_and(|maps| maps.contains("/hugepages") || maps.contains("/huge"))
    };
    if !resident && !maps_file() {
        return Some(Vec::new());
    }
    let all = smaps::read(root, &pid.to_string()).ok()?;
    Some(all.into_iter().filter(|vma| vma.is_hugetlb).collect())
}

/// The files on hugetlbfs that have pages of these sizes.
fn files(root: &Root, sizes: &BTreeSet<PageSize>) -> BTreeMap<FileId, PoolFile> {
    let mut found = BTreeMap::new();
    for mount in mounts::of_process(root, "self").into_iter().filter(|mount| mount.kind == "hugetlbfs") {
        let Some(size) = page_size(&mount).or(sizes.first().copied()).filter(|size| sizes.contains(size))
        else {
            continue;
        };
        below(&root.path(&mount.point), mount.device, size, MAX_DEPTH, &mut found);
    }
    found
}

/// The page size of a mount of hugetlbfs: `pagesize=2M`, which the kernel always prints.
fn page_size(mount: &Mount) -> Option<PageSize> {
    mount.options.split(',').find_map(|option| option.strip_prefix("pagesize="))?.parse().ok()
}

fn below(
    folder: &Path,
    device: (u64, u64),
    size: PageSize,
    depth: usize,
    found: &mut BTreeMap<FileId, PoolFile>,
) {
    for name in file::names(folder).unwrap_or_default() {
        if found.len() >= MAX_FILES {
            return;
        }
        let path = folder.join(name);
        // Of a link, the link itself.
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if metadata.is_dir() && depth > 0 {
            below(&path, device, size, depth - 1, found);
        }
        let bytes = Bytes(metadata.blocks() * 512);
        if metadata.is_file() && bytes > Bytes::ZERO {
            let file = PoolFile { path, page_size_bytes: size, bytes, processes: Vec::new() };
            found.insert((device, metadata.ino()), file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{testing::tree, units::Pages};

    const SEGMENTS: &str = "key shmid perms size cpid nattch uid rss swap\n\
                            0 9 600 16777216 70 2 0 16777216 0\n\
                            77 12 600 8388608 71 0 26 4194304 0\n\
                            0 13 600 4096 72 0 26 4096 0\n";

    /// AT_PAGESZ 4096, and the end of the vector.
    const BASE_IS_4K: &str = "\u{6}\0\0\0\0\0\0\0\0\u{10}\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

    #[test]
    fn the_account_of_a_pool_has_a_remainder() -> Result<(), Box<dyn std::error::Error>> {
        const MIB: u64 = 1 << 20;
        let size: PageSize = "2m".parse()?;
        let pool = Pool {
            page_size: size,
            node: None,
            total: Pages(100),
            free: Pages(40),
            surplus: Pages(0),
            reserved: Some(Pages(0)),
            overcommit: None,
        };
        let smaps = |name: &str, mode: &str, inode: u64, mib: u64| {
            format!(
                "200000000-210000000 {mode} 00000000 00:0f {inode} {name}\nKernelPageSize: 2048 kB\n\
                 Private_Hugetlb: {} kB\nVmFlags: rd wr {} ht \n",
                mib << 10,
                if mode.ends_with('s') { "sh" } else { "mr" }
            )
        };
        let rollup = "1-2 ---p 0 0:0 0 [rollup]\nRss: 0 kB\nShared_Hugetlb:        0 kB\nPrivate_Hugetlb:     2048 kB\n";
        let segment =
            |pid: u32| (format!("proc/{pid}/smaps"), smaps("/SYSV00000000 (deleted)", "rw-s", 9, 8));
        let mut files = vec![
            segment(7),
            segment(8),
            ("proc/9/smaps".to_owned(), smaps("/anon_hugepage (deleted)", "rw-p", 3, 20)),
        ];
        files.extend([7, 8, 9].map(|pid| (format!("proc/{pid}/smaps_rollup"), rollup.to_owned())));
        files.push((segments::PATH.to_owned(), SEGMENTS.to_owned()));
        files.push((base_page::AUXV.to_owned(), BASE_IS_4K.to_owned()));
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let (_dir, root) = tree(&files);
        let found = read(&root, std::slice::from_ref(&pool));
        let account = found.account(&pool);
        let expected = PoolAccount {
            used: Bytes(120 * MIB),
            private: Bytes(20 * MIB),
            files: Bytes::ZERO,
            // All pages of the segment, mapped or not, once for both processes.
            shared: Bytes(16 * MIB),
        };
        assert_eq!((account, found.unread), (expected, 0), "{found:?}");
        assert_eq!(account.remainder(), Bytes(84 * MIB));
        let possible: Vec<&str> = found.possible.iter().map(|memory| memory.name.as_str()).collect();
        assert_eq!(possible, ["SysV segment 12 (key 0x0000004d, user 26)"], "one is smaller than a page");
        assert_eq!(read(&root, &[Pool { free: Pages(100), ..pool }]), PoolUse::default());
        Ok(())
    }
}
