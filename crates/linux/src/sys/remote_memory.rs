//! Reading memory of another process.

use std::io;

use super::checked;

/// Reads the memory of process `pid` at `address`. Returns the number of bytes read, which is less than the
/// buffer if later memory is not mapped.
///
/// The process runs at the same time, so the bytes may be from different times. EPERM if we may not trace the
/// process, EFAULT if nothing is mapped at `address`, ESRCH if the process has exited.
pub fn read(pid: u32, address: u64, into: &mut [u8]) -> io::Result<usize> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    let address = usize::try_from(address).map_err(|_| io::Error::from_raw_os_error(libc::EFAULT))?;
    let ours = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let theirs = libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: into.len() };
    // SAFETY: `ours` describes a buffer that we hold exclusively; `theirs` is read in the other process only.
    let read = checked(unsafe { libc::process_vm_readv(pid, &raw const ours, 1, &raw const theirs, 1, 0) })?;
    Ok(read.unsigned_abs().min(into.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_memory_is_read_and_a_hole_is_refused() -> io::Result<()> {
        let secret = *b"what is here";
        let mut seen = [0u8; 12];
        assert_eq!(read(std::process::id(), secret.as_ptr().addr() as u64, &mut seen)?, 12);
        assert_eq!(seen, secret);
        assert!(read(std::process::id(), 8, &mut seen).is_err());
        assert!(read(u32::MAX, secret.as_ptr().addr() as u64, &mut seen).is_err());
        Ok(())
    }
}
