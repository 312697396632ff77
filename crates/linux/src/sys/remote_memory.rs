//! The memory of another process, read only.

use std::io;

use super::checked;

/// Reads the memory of process `pid` at `address` into `into`; answers how many bytes came, which
/// is less than all where the memory behind them is not there.
///
/// The process goes on meanwhile: what is read may be half of one state and half of the next.
/// EPERM where we may not trace the process, EFAULT where nothing is at `address`, ESRCH where the
/// process has ended.
pub fn read(pid: u32, address: u64, into: &mut [u8]) -> io::Result<usize> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    let address = usize::try_from(address).map_err(|_| io::Error::from_raw_os_error(libc::EFAULT))?;
    let ours = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let theirs = libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: into.len() };
    // SAFETY: `ours` describes a buffer that we hold exclusively; of `theirs` the kernel reads in the
    // other process, and nothing of ours through it.
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
