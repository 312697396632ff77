//! The calling thread: its CPU affinity, page faults and NUMA policy.

use std::{collections::BTreeSet, io, mem::MaybeUninit};

use libc::{c_int, c_ulong};

use super::checked;

/// Maximum number of CPUs or nodes: more than any kernel is built for.
const BITS: usize = 1 << 13;
const WORD: usize = c_ulong::BITS as usize;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Page faults without I/O.
    pub minor: u64,
    /// Page faults with I/O.
    pub major: u64,
}

/// Whether this process can start threads and wait for their end: glibc aborts it otherwise, if a filter of system calls
/// denies `futex(2)`, or `rseq(2)` after the first thread has used it.
pub fn can_start() -> bool {
    let word = 0u32;
    // SAFETY: wakes the threads that wait for a live word: none.
    let woken = unsafe {
        libc::syscall(libc::SYS_futex, &raw const word, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1)
    };
    checked(woken).is_ok() && (!has_rseq() || is_rseq_known())
}

/// Whether the C library has registered its area of `rseq(2)`: glibc from 2.35 on, if the kernel has the call.
fn has_rseq() -> bool {
    // SAFETY: looks up a string in the libraries of this process.
    let size: *const libc::c_uint =
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()) }.cast();
    // SAFETY: NULL, or a constant of glibc.
    unsafe { size.as_ref() }.is_some_and(|size| *size > 0)
}

fn is_rseq_known() -> bool {
    // SAFETY: no area is at this address, which the kernel refuses.
    let refused = checked(unsafe { libc::syscall(libc::SYS_rseq, 0, 0, 0, 0) });
    refused.is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL))
}

/// The page faults of the calling thread since its start.
pub fn faults() -> io::Result<Faults> {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the out-parameter is live and of the right type.
    checked(unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) })?;
    // SAFETY: zero is a valid rusage, and the call filled it.
    let usage = unsafe { usage.assume_init() };
    let count = |count: libc::c_long| u64::try_from(count).unwrap_or(0);
    Ok(Faults { minor: count(usage.ru_minflt), major: count(usage.ru_majflt) })
}

/// The CPUs that the calling thread may run on.
pub fn allowed_cpus() -> io::Result<BTreeSet<u32>> {
    let mut mask = [0 as c_ulong; BITS / WORD];
    // SAFETY: the kernel writes at most the given size; 0 is the calling thread.
    checked(unsafe { libc::sched_getaffinity(0, size_of_val(&mask), mask.as_mut_ptr().cast()) })?;
    Ok(members(&mask))
}

/// Restricts the calling thread to these CPUs.
pub fn set_affinity(cpus: &BTreeSet<u32>) -> io::Result<()> {
    set_affinity_of(0, cpus)
}

/// Restricts thread `tid` to these CPUs; 0 is the calling thread.
pub fn set_affinity_of(tid: u32, cpus: &BTreeSet<u32>) -> io::Result<()> {
    let mask = mask_of(cpus);
    let tid = tid as libc::pid_t;
    // SAFETY: the kernel only reads the mask, of the given size.
    checked(unsafe { libc::sched_setaffinity(tid, size_of_val(&mask), mask.as_ptr().cast()) }).map(drop)
}

/// The NUMA nodes that memory at an address is bound to or preferably allocated from (`mbind(2)`,
/// `set_mempolicy(2)`); empty for the default policy and for interleaving.
pub fn nodes_of_memory(address: u64) -> io::Result<BTreeSet<u32>> {
    const MPOL_F_ADDR: c_ulong = 2;
    const MPOL_MODE: c_int = 0xfff;
    const MPOL_PREFERRED_MANY: c_int = 5;
    let mut mode: c_int = 0;
    let mut mask = [0 as c_ulong; BITS / WORD];
    // SAFETY: one live int and a mask of the given size; the address is only looked up.
    checked(unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &raw mut mode,
            mask.as_mut_ptr(),
            BITS as c_ulong,
            address as c_ulong,
            MPOL_F_ADDR,
        )
    })?;
    let is_of_nodes =
        [libc::MPOL_PREFERRED, libc::MPOL_BIND, MPOL_PREFERRED_MANY].contains(&(mode & MPOL_MODE));
    Ok(if is_of_nodes { members(&mask) } else { BTreeSet::new() })
}

/// Interleaves future memory of the calling thread, and of threads that it starts, over these NUMA nodes.
/// ENOSYS on a kernel without NUMA.
pub fn interleave_memory(nodes: &BTreeSet<u32>) -> io::Result<()> {
    let mask = mask_of(nodes);
    // SAFETY: the kernel reads a mask of the given size.
    checked(unsafe {
        libc::syscall(libc::SYS_set_mempolicy, libc::MPOL_INTERLEAVE, mask.as_ptr(), BITS as c_ulong)
    })
    .map(drop)
}

fn mask_of(numbers: &BTreeSet<u32>) -> [c_ulong; BITS / WORD] {
    let mut mask = [0 as c_ulong; BITS / WORD];
    for &number in numbers {
        if let Some(word) = mask.get_mut(number as usize / WORD) {
            *word |= 1 << (number as usize % WORD);
        }
    }
    mask
}

/// The indices of the set bits.
fn members(mask: &[c_ulong]) -> BTreeSet<u32> {
    let is_set = |bit: &usize| mask[bit / WORD] & (1 << (bit % WORD)) != 0;
    (0..mask.len() * WORD).filter(is_set).filter_map(|bit| u32::try_from(bit).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{sys::memory::Mapping, units::Bytes};

    #[test]
    fn a_thread_stays_on_its_cpus() -> io::Result<()> {
        let all = allowed_cpus()?;
        let one: BTreeSet<u32> = all.iter().copied().take(1).collect();
        let stayed = std::thread::spawn({
            let one = one.clone();
            move || set_affinity(&one).and_then(|()| allowed_cpus())
        });
        assert_eq!(stayed.join().map_err(|_| io::Error::other("panicked"))??, one);
        assert_eq!(allowed_cpus()?, all);
        Ok(())
    }

    #[test]
    fn memory_without_a_policy_has_no_node() {
        let memory = 0u64;
        match nodes_of_memory((&raw const memory).addr() as u64) {
            Ok(nodes) => assert!(nodes.is_empty(), "{nodes:?}"),
            // A kernel without NUMA.
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOSYS)),
        }
        assert!(nodes_of_memory(8).is_err() || nodes_of_memory(8).is_ok_and(|nodes| nodes.is_empty()));
    }

    #[test]
    fn memory_is_taken_from_a_node_that_is_there() -> io::Result<()> {
        let taken = std::thread::spawn(|| {
            let first = interleave_memory(&BTreeSet::from([0]));
            (first, interleave_memory(&BTreeSet::from([8000])))
        });
        let (first, none) = taken.join().map_err(|_| io::Error::other("panicked"))?;
        // A kernel without NUMA, or a container without the permission.
        assert!(
            first.is_ok()
                || first.is_err_and(|e| [libc::ENOSYS, libc::EPERM].contains(&e.raw_os_error().unwrap_or(0)))
        );
        assert!(none.is_err());
        Ok(())
    }

    #[test]
    fn memory_bound_to_a_node_has_it() -> io::Result<()> {
        let memory = Mapping::anonymous(Bytes(1 << 20))?;
        if memory.bind(0).is_ok() {
            assert_eq!(nodes_of_memory(memory.address() + 5)?, BTreeSet::from([0]));
        } // Otherwise a kernel without NUMA, or a container without the permission.
        Ok(())
    }
}
