//! SysV shared memory segments.
//!
//! Source: sysvipc(7), ipc/shm.c (`sysvipc_shm_proc_show`).

use std::fmt;

use crate::{
    root::Root,
    units::{Bytes, PageSize},
};

/// Path of the segments of the IPC namespace.
pub const PATH: &str = "proc/sysvipc/shm";

/// A SysV segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its number, as in `ipcs -m`.
    pub id: u64,
    /// Its key; 0 if it is private.
    pub key: i32,
    /// Its owner.
    pub user: u32,
    /// Number of times that it is attached.
    pub attached: u64,
    size: Bytes,
    /// Resident bytes, as the kernel prints them.
    printed: Bytes,
    base: PageSize,
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SysV segment {} (key 0x{:08x}, user {})", self.id, self.key, self.user)
    }
}

impl Segment {
    /// Resident bytes if its pages are of a pool of pages of this size, of which `used` bytes are in use.
    pub fn resident_on(&self, page: PageSize, used: Bytes) -> Bytes {
        let is_possible = self.printed <= self.size.min(used);
        let times = if is_possible { 1 } else { page.bytes().0 / self.base.bytes().0 };
        Bytes(self.printed.0 / times.max(1))
    }

    /// Whether its pages can be of a pool of pages of this size.
    pub fn may_be_on(&self, page: PageSize) -> bool {
        let resident = self.resident_on(page, self.size);
        resident > Bytes::ZERO && resident <= self.size && resident.whole_pages(page) * page == resident
    }

    /// Whether the kernel prints more resident bytes than the segment has. Linux 6.18 does so for pages of pools only: it
    /// counts base pages, and multiplies by the size of a page of the pool.
    pub fn is_counted_twice(&self) -> bool {
        self.printed > self.size
    }
}

/// The segments of the IPC namespace; none if they cannot be read, or the kernel has no SysV shared memory.
pub fn read(root: &Root, base: PageSize) -> Vec<Segment> {
    let text = root.read(PATH).unwrap_or_default();
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
    let segment = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let word = |name: &str| words.get(header.iter().position(|column| *column == name)?).copied();
        Some(Segment {
            id: word("shmid")?.parse().ok()?,
            key: word("key")?.parse().ok()?,
            user: word("uid")?.parse().ok()?,
            attached: word("nattch")?.parse().ok()?,
            size: Bytes(word("size")?.parse().ok()?),
            printed: Bytes(word("rss")?.parse().ok()?),
            base,
        })
    };
    lines.filter_map(segment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tree;

    #[test]
    fn resident_pages_of_a_pool_are_counted_once() -> Result<(), Box<dyn std::error::Error>> {
        // Printed by Linux 6.18 for 4 MiB on two pages of 2 MiB, and for 2 MiB and 1 MiB on base pages.
        let text = "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime                   rss                  swap
         0     393256   600               4194304 2626974 2626974      0     0     0     0     0 1795934007 1795934007 1795934007            2147483648                     0
         0     393257   600               2097152 2626974 2626974      0     0     0     0     0 1795934007 1795934007 1795934007               2097152                     0
         0     393258   600               1048576 2626974 2626974      0     0     0     0     0 1795934007 1795934007 1795934007               1048576                     0
";
        let (_dir, root) = tree(&[(PATH, text)]);
        let (page, large, base): (PageSize, PageSize, PageSize) =
            ("2m".parse()?, "1g".parse()?, "4k".parse()?);
        let segments = read(&root, base);
        let on = |page| -> Vec<(u64, bool)> {
            segments.iter().map(|one| (one.resident_on(page, one.size).0, one.may_be_on(page))).collect()
        };
        assert_eq!(on(page), [(4 << 20, true), (2 << 20, true), (1 << 20, false)]);
        assert!(on(large).iter().all(|(_, may)| !may), "{:?}", on(large));
        // One page of a segment of 4 GiB is printed as 1 GiB: more than is in use of the pool.
        let sparse = Segment { size: Bytes(4 << 30), printed: Bytes(1 << 30), ..segments[0].clone() };
        assert_eq!(sparse.resident_on(page, Bytes(6 << 20)), Bytes(2 << 20));
        let twice: Vec<bool> = segments.iter().map(Segment::is_counted_twice).collect();
        assert_eq!(twice, [true, false, false]);
        Ok(())
    }
}
