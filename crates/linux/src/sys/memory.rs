//! Memory mappings, unmapped on drop.

use std::{
    io,
    ops::Range,
    ptr::{self, NonNull},
    slice,
};

use libc::{c_int, c_ulong, c_void};

use super::{checked, no_memory};
use crate::units::{Bytes, PageSize};

const READ_WRITE: c_int = libc::PROT_READ | libc::PROT_WRITE;

/// Private, zeroed memory of this process, unmapped on drop.
///
/// Writing needs `&mut`, reading `&`, as for a boxed slice.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
    created_by: MappingCall,
}

/// The system call that created the mapping, which determines the one that removes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MappingCall {
    Mmap,
    Shmat,
}

/// The base page size of this process; needs no file.
pub fn base_page_size() -> io::Result<PageSize> {
    // SAFETY: no memory is involved.
    let bytes = checked(unsafe { libc::sysconf(libc::_SC_PAGESIZE) })?;
    PageSize::new(Bytes(bytes.unsigned_abs())).map_err(io::Error::other)
}

/// Whether the kernel has a hugetlb pool of `size`, also one without pages; needs no file. `None` if its answer does not
/// say, for example because the address space is limited.
pub fn has_pool(size: PageSize) -> Option<bool> {
    let flags = libc::MAP_HUGETLB | libc::MAP_NORESERVE | (size.log2() << libc::MAP_HUGE_SHIFT) as c_int;
    match Mapping::mmap(size.bytes(), libc::PROT_NONE, flags) {
        Ok(_) => Some(true),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Some(false),
        Err(_) => None,
    }
}

/// The default huge page size of the kernel, one of `sizes`, given from the smallest; needs no file.
pub fn default_huge_page_size(sizes: &[PageSize]) -> Option<PageSize> {
    let largest = sizes.last()?.bytes();
    // Address space around the page: nothing else is unmapped, whatever its size is.
    let around = Mapping::mmap(largest + largest, libc::PROT_NONE, libc::MAP_NORESERVE).ok()?;
    let at = around.address().next_multiple_of(largest.0) - around.address();
    let length = |size: Bytes| usize::try_from(size.0).ok();
    let start: *mut c_void = around.start.as_ptr().wrapping_add(length(Bytes(at))?).cast();
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_HUGETLB | libc::MAP_NORESERVE;
    let base = length(base_page_size().ok()?.bytes())?;
    // SAFETY: the kernel maps one page of that size, within the address space that was reserved for it.
    if unsafe { libc::mmap(start, base, libc::PROT_NONE, flags, -1, 0) } == libc::MAP_FAILED {
        return None;
    }
    // The kernel does not unmap a part of a huge page.
    let unmaps = |size: &&PageSize| {
        // SAFETY: within the same address space, which has no reference.
        length(size.bytes()).is_some_and(|length| unsafe { libc::munmap(start, length) } == 0)
    };
    sizes.iter().find(unmaps).copied()
}

/// Advice for `madvise`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Use THP (`MADV_HUGEPAGE`).
    HugePage,
    /// Do not use THP (`MADV_NOHUGEPAGE`).
    NoHugePage,
    /// Populate every page and keep the contents (`MADV_POPULATE_WRITE`, Linux 5.14).
    ///
    /// An error, not a SIGBUS, if memory or a cgroup limit is exhausted.
    PopulateWrite,
}

// SAFETY: a mapping is owned memory and not tied to the thread that created it.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference permits reading only.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Anonymous memory of `len` bytes, on page sizes of the kernel's choice.
    pub fn anonymous(len: Bytes) -> io::Result<Mapping> {
        Mapping::mmap(len, READ_WRITE, 0)
    }

    /// Anonymous memory from the hugetlb pool of `size`; `len` is a multiple of it.
    ///
    /// The kernel reserves the pages here: ENOMEM if the pool is too small, EINVAL for a size without a pool.
    /// A limit of the hugetlb cgroup takes effect only at the first touch.
    pub fn hugetlb(len: Bytes, size: PageSize) -> io::Result<Mapping> {
        Mapping::mmap(len, READ_WRITE, libc::MAP_HUGETLB | (size.log2() << libc::MAP_HUGE_SHIFT) as c_int)
    }

    fn mmap(len: Bytes, protection: c_int, flags: c_int) -> io::Result<Mapping> {
        let len = usize::try_from(len.0).map_err(|_| no_memory())?;
        let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(no_memory)?;
        Ok(Mapping { start, len, created_by: MappingCall::Mmap })
    }

    /// SysV shared memory from the hugetlb pool of `size`; `len` is a multiple of it.
    ///
    /// EPERM without CAP_IPC_LOCK or membership of `vm.hugetlb_shm_group`, EINVAL above `kernel.shmmax`,
    /// ENOSPC above `kernel.shmall`, ENOMEM if the pool is too small. The segment is marked for removal at
    /// once, so that it does not outlive this process.
    pub fn shared_hugetlb(len: Bytes, size: PageSize) -> io::Result<Mapping> {
        let len = usize::try_from(len.0).map_err(|_| no_memory())?;
        // Linux defines SHM_HUGE_SHIFT with the same value.
        let page_size = (size.log2() << libc::MAP_HUGE_SHIFT) as c_int;
        let flags = libc::SHM_HUGETLB | page_size | libc::IPC_CREAT | 0o600;
        // A segment that cannot be removed would outlive this process. No segment has the number -1.
        // SAFETY: IPC_RMID takes no buffer.
        let removal = checked(unsafe { libc::shmctl(-1, libc::IPC_RMID, ptr::null_mut()) });
        removal.or_else(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => Ok(0),
            _ => Err(error),
        })?;
        // SAFETY: creates a segment; no memory of ours is involved.
        let id = checked(unsafe { libc::shmget(libc::IPC_PRIVATE, len, flags) })?;
        // SAFETY: attaches the new segment at an address of the kernel's choice.
        let start = unsafe { libc::shmat(id, ptr::null(), 0) };
        let attached = if start as isize == -1 { Err(io::Error::last_os_error()) } else { Ok(start) };
        // SAFETY: IPC_RMID takes no buffer; the segment exists until the last detach.
        checked(unsafe { libc::shmctl(id, libc::IPC_RMID, ptr::null_mut()) })?;
        let start = NonNull::new(attached?.cast()).ok_or_else(no_memory)?;
        Ok(Mapping { start, len, created_by: MappingCall::Shmat })
    }

    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Always false: the kernel creates no empty mapping.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes of the mapping. Reading a page populates it.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is readable, `len` long, zeroed by the kernel, and valid as long as self.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and writable; `&mut self` excludes every other reference.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// Advises the kernel on `range`, given as byte offsets; the start is on a page boundary.
    pub fn advise(&self, range: Range<usize>, advice: Advice) -> io::Result<()> {
        let (start, len) = self.sub_range(&range)?;
        let advice = match advice {
            Advice::HugePage => libc::MADV_HUGEPAGE,
            Advice::NoHugePage => libc::MADV_NOHUGEPAGE,
            Advice::PopulateWrite => libc::MADV_POPULATE_WRITE,
        };
        // SAFETY: the range is within our mapping, and none of these kinds of advice changes contents.
        checked(unsafe { libc::madvise(start, len, advice) }).map(drop)
    }

    /// Binds all pages to one NUMA node (`mbind(2)`).
    ///
    /// EINVAL if the node does not exist or has no memory; ENOSYS on a kernel without NUMA. If the node runs
    /// out of memory, populating fails, and touching kills the process.
    pub fn bind(&self, node: u32) -> io::Result<()> {
        const WORD: usize = c_ulong::BITS as usize;
        let mut mask = [0 as c_ulong; 1024 / WORD];
        let word = mask.get_mut(node as usize / WORD);
        *word.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))? |= 1 << (node as usize % WORD);
        // SAFETY: the policy of our own mapping; the mask is live. The kernel reads one bit less than the
        // given number.
        checked(unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.start.as_ptr(),
                self.len,
                libc::MPOL_BIND,
                mask.as_ptr(),
                mask.len() * WORD + 1,
                0,
            )
        })
        .map(drop)
    }

    /// Names the mapping in /proc/PID/maps, if the kernel has names (`CONFIG_ANON_VMA_NAME`).
    pub fn name(&self, name: &std::ffi::CStr) -> io::Result<()> {
        // SAFETY: the kernel copies the name; the range is our own mapping.
        checked(unsafe {
            libc::prctl(
                libc::PR_SET_VMA,
                libc::PR_SET_VMA_ANON_NAME,
                self.start.as_ptr(),
                self.len,
                name.as_ptr(),
            )
        })
        .map(drop)
    }

    /// The addresses of `range`, given as byte offsets.
    pub fn addresses(&self, range: &Range<usize>) -> Range<u64> {
        self.address() + range.start as u64..self.address() + range.end as u64
    }

    /// Removes the mapping; returns it with the error if the kernel refuses, for example at `vm.max_map_count`.
    pub fn unmap(self) -> Result<(), (Mapping, io::Error)> {
        match self.remove() {
            Ok(()) => {
                std::mem::forget(self);
                Ok(())
            }
            Err(error) => Err((self, error)),
        }
    }

    fn remove(&self) -> io::Result<()> {
        let start: *mut c_void = self.start.as_ptr().cast();
        let removed = match self.created_by {
            // SAFETY: the values that mmap returned; the callers own the mapping and do not use it any more.
            MappingCall::Mmap => unsafe { libc::munmap(start, self.len) },
            // SAFETY: the value that shmat returned, as above.
            MappingCall::Shmat => unsafe { libc::shmdt(start) },
        };
        checked(removed).map(drop)
    }

    fn sub_range(&self, range: &Range<usize>) -> io::Result<(*mut c_void, usize)> {
        if range.start > range.end || range.end > self.len {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // SAFETY: the offset was just checked to be in the mapping (or one past its end).
        let start = unsafe { self.start.as_ptr().add(range.start) };
        Ok((start.cast(), range.end - range.start))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // If the kernel refuses, the memory stays mapped.
        let _ = self.remove();
    }
}

/// A non-empty slice, so that every fraction of its length is a valid index.
#[derive(Clone, Copy, Debug)]
pub struct NonEmptyBytes<'a>(&'a [u8]);

impl<'a> NonEmptyBytes<'a> {
    /// `None` for an empty slice.
    pub fn new(bytes: &'a [u8]) -> Option<NonEmptyBytes<'a>> {
        (!bytes.is_empty()).then_some(NonEmptyBytes(bytes))
    }

    /// The byte at `fraction` / 2⁶⁴ of the length, read without a bounds check: in a measured loop the check
    /// would occupy slots in the CPU's instruction window and delay loads.
    #[inline]
    pub fn at(self, fraction: u64) -> u8 {
        let place = (u128::from(fraction) * self.0.len() as u128) >> 64;
        // SAFETY: fraction / 2⁶⁴ is below 1 and the length above 0, so the index, rounded down, is below the
        // length.
        unsafe { *self.0.get_unchecked(place as usize) }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::sys::{pagemap::scan, thread::nodes_of_memory};

    #[test]
    fn anonymous_memory_is_zeroed_written_and_scanned() -> io::Result<()> {
        let page = 1 << 16; // At least a base page, on every machine.
        let mut memory = Mapping::anonymous(Bytes(16 * page as u64))?;
        memory.advise(0..16 * page, Advice::NoHugePage)?;
        assert!(memory.bytes().iter().all(|b| *b == 0));
        memory.bytes_mut()[3 * page] = 7;
        let pagemap = File::open("/proc/self/pagemap")?;
        if let Ok(scan) = scan(&pagemap, memory.addresses(&(3 * page..4 * page))) {
            assert!(scan.present > Bytes::ZERO && scan.huge == Bytes::ZERO);
        }
        Ok(())
    }

    #[test]
    fn every_fraction_is_a_byte() {
        assert!(NonEmptyBytes::new(&[]).is_none());
        for len in [1usize, 2, 3, 1000] {
            let bytes: Vec<u8> = (0..len).map(|place| place as u8).collect();
            let Some(some) = NonEmptyBytes::new(&bytes) else { unreachable!() };
            assert_eq!((some.at(0), some.at(u64::MAX)), (0, (len - 1) as u8));
        }
    }

    #[test]
    fn memory_is_bound_to_a_node_that_there_is() -> io::Result<()> {
        let memory = Mapping::anonymous(Bytes(1 << 20))?;
        match memory.bind(0) {
            Ok(()) => assert!(nodes_of_memory(memory.address())?.contains(&0)),
            // A kernel without NUMA, or a container without the permission.
            Err(error) => {
                assert!(matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)), "{error}")
            }
        }
        assert!(memory.bind(1023).is_err() && memory.bind(1 << 20).is_err());
        Ok(())
    }

    #[test]
    fn pools_are_known_without_files() {
        let root = crate::root::Root::live();
        let Ok(pools) = crate::hugepages::pools::read(&root) else { return };
        let sizes: std::collections::BTreeSet<PageSize> = pools.iter().map(|pool| pool.page_size).collect();
        for size in (13..=34).filter_map(|log2| PageSize::new(Bytes(1 << log2)).ok()) {
            assert_eq!(has_pool(size), Some(sizes.contains(&size)), "{size}");
        }
        let default = crate::proc::meminfo::read(&root).default_size.known().copied();
        assert_eq!(default_huge_page_size(&sizes.into_iter().collect::<Vec<_>>()), default);
    }

    #[test]
    fn a_range_outside_is_refused() -> io::Result<()> {
        let memory = Mapping::anonymous(Bytes(1 << 16))?;
        for range in [0..(1 << 16) + 1, 1 << 16..1 << 17] {
            assert!(memory.advise(range, Advice::PopulateWrite).is_err());
        }
        Ok(())
    }

    #[test]
    fn an_impossible_mapping_is_an_error() {
        assert!(Mapping::anonymous(Bytes(0)).is_err());
        assert!(Mapping::anonymous(Bytes(1 << 60)).is_err());
    }
}
