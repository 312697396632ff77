//! A reservation's demand on the machine, and the cause, with figures and remedy, if it cannot be met.

use std::io;

use hugewise_linux::{
    cgroup::{self, Limit},
    hugepages::{
        backing::Backing,
        pools::{self, Pool},
    },
    root::Root,
    units::{Bytes, PageSize},
};

const EPERM: i32 = 1;
const EAGAIN: i32 = 11;
const ENOMEM: i32 = 12;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;

/// The demand of one region on one backing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    pub backing: Backing,
    /// A multiple of the page size.
    pub len: Bytes,
    pub page_size: PageSize,
    pub node: Option<u32>,
}

impl Demand {
    /// Why a limit of the caller's control groups is too low; `None` if the limits suffice or are unknown.
    /// The kernel maps more memory than the limit and later kills the process that touches it: by SIGBUS on a
    /// pool, otherwise by the OOM killer.
    pub fn beyond_limits(&self, root: &Root) -> Option<String> {
        let explicit = self.backing.is_explicit();
        let sizes = if explicit { vec![self.page_size] } else { Vec::new() };
        let limits = cgroup::read(root, &sizes);
        if let Some(Some(limit)) = limits.hugetlb.first().and_then(|of_size| of_size.touch.known()) {
            if let Some(left) = limit.left.known().filter(|left| explicit && self.len > **left) {
                return Some(self.above(limit, *left, "of pages of the pool"));
            }
        }
        let charged = !explicit || limits.memory_counts_hugetlb.known().copied().unwrap_or(false);
        if let Some(Some(limit)) = limits.memory.known().filter(|_| charged).map(Option::as_ref) {
            if let Some(left) = limit.left.known().filter(|left| self.len > **left) {
                return Some(self.above(limit, *left, "of memory"));
            }
        }
        None
    }

    fn above(&self, limit: &Limit, left: Bytes, what: &str) -> String {
        format!(
            "the control group is limited to {} {what}, of which {left} are left, and {} are requested: \
             raise /{}, or reserve less",
            limit.bytes,
            self.len,
            limit.file.display()
        )
    }

    /// The meaning of the kernel's error for this demand.
    pub fn explain(&self, error: &io::Error, root: &Root) -> String {
        let why = match (self.backing, error.raw_os_error()) {
            (Backing::Hugetlb(_) | Backing::Shm(_), Some(ENOMEM)) => {
                match pools::find(root, self.page_size, None) {
                    Ok(pool) => self.short(&pool),
                    Err(unknown) => {
                        let pages = self.len.pages_needed(self.page_size);
                        format!(
                            "pool of {} pages: {pages} wanted, the number available is unknown ({unknown})",
                            self.page_size
                        )
                    }
                }
            }
            (Backing::Hugetlb(_), Some(EINVAL)) => {
                format!("this machine has no pool of {} pages", self.page_size)
            }
            (Backing::Thp, Some(EINVAL)) => "this kernel has no transparent huge pages".to_owned(),
            (_, Some(EAGAIN)) => {
                "the process locks its memory (mlockall), up to the limit RLIMIT_MEMLOCK".to_owned()
            }
            (Backing::Shm(_), Some(EPERM)) => {
                "needs CAP_IPC_LOCK, or a group named in vm.hugetlb_shm_group".to_owned()
            }
            (Backing::Shm(_), Some(EINVAL)) => {
                format!("kernel.shmmax is below {}, or this machine has no such pool", self.len)
            }
            (Backing::Shm(_), Some(ENOSPC)) => format!("kernel.shmall does not allow {} more", self.len),
            (_, Some(ENOMEM)) => format!("{} of address space or memory are not available", self.len),
            _ => return error.to_string(),
        };
        format!("{error}: {why}")
    }

    /// Why the pool on the requested node is too small; `None` if it suffices. The kernel reserves pages of
    /// all nodes together, and kills a process that touches a page missing on its node.
    pub fn beyond_node(&self, root: &Root) -> Option<String> {
        let node = self.node.filter(|_| self.backing.is_explicit())?;
        let pool = pools::find(root, self.page_size, Some(node)).ok()?;
        (pool.available() < self.len.pages_needed(self.page_size)).then(|| self.short(&pool))
    }

    /// The pool's state now, which may differ from that at the error.
    fn short(&self, pool: &Pool) -> String {
        let (pages, size) = (self.len.pages_needed(self.page_size), self.page_size);
        let (total, available) = (pool.total, pool.available());
        let at = pool.node.map(|node| format!("@{node}")).unwrap_or_default();
        let has = format!("pool of {size}{at} pages: {pages} wanted, {available} available of {total}");
        match pages.saturating_sub(available) {
            missing if missing.0 > 0 => {
                format!("{has}; 'sudo hugewise apply --pool {size}{at}=+{missing}' adds them")
            }
            _ => format!(
                "{has}; the control group limits reservations to fewer pages, or another process reserved \
                 them"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{error::Error, fs};

    use hugewise_linux::units::Pages;

    use super::*;

    const SIZE: &str = "2MiB";

    fn demand(backing: &str, mib: u64) -> Result<Demand, Box<dyn Error>> {
        Ok(Demand { backing: backing.parse()?, len: Bytes(mib << 20), page_size: SIZE.parse()?, node: None })
    }

    fn pool(total: u64, free: u64, reserved: u64) -> Result<Pool, Box<dyn Error>> {
        Ok(Pool {
            page_size: SIZE.parse()?,
            node: None,
            total: Pages(total),
            free: Pages(free),
            reserved: Some(Pages(reserved)),
            surplus: Pages(0),
            overcommit: None,
        })
    }

    #[test]
    fn a_short_pool_is_reported_with_its_numbers() -> Result<(), Box<dyn Error>> {
        let wanted = demand("hugetlb", 256)?;
        assert_eq!(
            wanted.short(&pool(100, 30, 10)?),
            "pool of 2MiB pages: 128 wanted, 20 available of 100; 'sudo hugewise apply --pool 2MiB=+108' adds them"
        );
        assert!(wanted.short(&pool(500, 300, 10)?).contains("the control group limits reservations"));
        let nowhere = tempfile::tempdir()?;
        let unread = wanted.explain(&io::Error::from_raw_os_error(ENOMEM), &Root::at(nowhere.path()));
        assert!(unread.contains("128 wanted, the number available is unknown (/"), "{unread}");
        Ok(())
    }

    #[test]
    fn pages_of_a_node_must_be_on_it() -> Result<(), Box<dyn Error>> {
        let on_node = |mib| demand("hugetlb", mib).map(|demand| Demand { node: Some(1), ..demand });
        let node = "sys/devices/system/node/node1/hugepages/hugepages-2048kB";
        let all = "sys/kernel/mm/hugepages/hugepages-2048kB";
        let mut files = Vec::new();
        for (folder, pages) in [(node, "3\n"), (all, "9\n")] {
            for file in ["nr_hugepages", "free_hugepages"] {
                files.push((format!("{folder}/{file}"), pages));
            }
            files.push((format!("{folder}/surplus_hugepages"), "0\n"));
            files.push((format!("{folder}/resv_hugepages"), "0\n"));
            files.push((format!("{folder}/nr_overcommit_hugepages"), "0\n"));
        }
        let (_dir, root) = tree(&files)?;
        assert_eq!(on_node(6)?.beyond_node(&root), None);
        assert_eq!(demand("hugetlb", 8)?.beyond_node(&root), None);
        let cause = on_node(8)?.beyond_node(&root).unwrap_or_default();
        assert!(
            cause.contains("4 wanted, 3 available of 3; 'sudo hugewise apply --pool 2MiB@1=+1'"),
            "{cause}"
        );
        Ok(())
    }

    fn tree(files: &[(impl AsRef<str>, &str)]) -> Result<(tempfile::TempDir, Root), Box<dyn Error>> {
        let dir = tempfile::tempdir()?;
        for (path, text) in files {
            let path = dir.path().join(path.as_ref());
            fs::create_dir_all(path.parent().unwrap_or(dir.path()))?;
            fs::write(path, text)?;
        }
        let root = Root::at(dir.path());
        Ok((dir, root))
    }

    const CGROUP: &str = "1:hugetlb,memory:/app\n";
    const MOUNTS: &str = "30 20 0:30 / /sys/fs/cgroup/all rw - cgroup cgroup rw,hugetlb,memory\n";

    fn refused(backing: &str, mib: u64, files: &[(&str, &str)]) -> Result<Option<String>, Box<dyn Error>> {
        let mut all = vec![
            (cgroup::CGROUP, CGROUP),
            (cgroup::MOUNTINFO, MOUNTS),
            ("sys/fs/cgroup/all/app/cgroup.procs", ""),
        ];
        all.extend(files);
        let (_dir, root) = tree(&all)?;
        Ok(demand(backing, mib)?.beyond_limits(&root))
    }

    #[test]
    fn a_limit_of_memory_below_the_demand_refuses_it() -> Result<(), Box<dyn Error>> {
        // 1 GiB, of which 768 MiB are used, 256 MiB of them by file cache.
        let files = [
            ("sys/fs/cgroup/all/app/memory.limit_in_bytes", "1073741824\n"),
            ("sys/fs/cgroup/all/app/memory.usage_in_bytes", "805306368\n"),
            (
                "sys/fs/cgroup/all/app/memory.stat",
                "inactive_file 0\ntotal_inactive_file 134217728\ntotal_active_file 134217728\n",
            ),
        ];
        for backing in ["base", "thp"] {
            assert_eq!(refused(backing, 512, &files)?, None);
            assert_eq!(
                refused(backing, 514, &files)?.as_deref(),
                Some(
                    "the control group is limited to 1GiB of memory, of which 512MiB are left, and 514MiB are \
                     requested: raise /sys/fs/cgroup/all/app/memory.limit_in_bytes, or reserve less"
                )
            );
        }
        // This limit does not count pages of a pool.
        assert_eq!(refused("hugetlb", 514, &files)?, None);
        Ok(())
    }

    #[test]
    fn a_limit_of_pages_below_the_demand_refuses_it() -> Result<(), Box<dyn Error>> {
        let files = [
            ("sys/fs/cgroup/all/app/hugetlb.2MB.limit_in_bytes", "8388608\n"),
            ("sys/fs/cgroup/all/app/hugetlb.2MB.usage_in_bytes", "2097152\n"),
        ];
        assert_eq!(refused("hugetlb", 6, &files)?, None);
        let cause = refused("shm:2m", 8, &files)?.unwrap_or_default();
        assert!(cause.contains("limited to 8MiB of pages of the pool, of which 6MiB are left"), "{cause}");
        assert_eq!(refused("thp", 8, &files)?, None);
        Ok(())
    }

    #[test]
    fn without_groups_nothing_is_refused() -> Result<(), Box<dyn Error>> {
        let nowhere = tempfile::tempdir()?;
        assert_eq!(demand("base", 1 << 40)?.beyond_limits(&Root::at(nowhere.path())), None);
        Ok(())
    }
}
