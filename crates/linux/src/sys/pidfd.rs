//! pidfds: descriptors of processes, which stay valid if a process id is reused.

use std::{fs::File, io, ops::Range, os::fd::AsRawFd, ptr, time::Duration};

use libc::{c_int, c_uint};

use super::{checked, owned, wait_readable};
use crate::units::PageSize;

// Not in every supported C library; the numbers are from include/uapi.
pub(super) const MADV_COLLAPSE: c_int = 25;
const PIDFD_SIGNAL_PROCESS_GROUP: c_uint = 1 << 2;

/// Opens process `pid`. ESRCH if it does not exist, ENOSYS before Linux 5.3.
pub fn open(pid: u32) -> io::Result<File> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    // SAFETY: returns a new descriptor, close-on-exec.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })
}

/// Waits at most `timeout` for the process of a pidfd to exit; true if it has exited.
pub fn has_ended(pidfd: &impl AsRawFd, timeout: Duration) -> io::Result<bool> {
    wait_readable(pidfd, timeout)
}

/// Sends SIGKILL to the process group whose id is that of the process of a pidfd, and that of no later process with the
/// same number. Succeeds if the group has no processes; EINVAL before Linux 6.9.
pub fn kill_group(pidfd: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: sends a signal through a pidfd that we own; no siginfo is passed.
    let sent = checked(unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            libc::SIGKILL,
            ptr::null::<libc::siginfo_t>(),
            PIDFD_SIGNAL_PROCESS_GROUP,
        )
    });
    match sent {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        sent => sent.map(drop),
    }
}

/// Advises the kernel on the memory of another process.
#[derive(Debug)]
pub struct Adviser(File);

impl Adviser {
    /// An adviser for the process of this pidfd.
    pub fn of(pidfd: File) -> Adviser {
        Adviser(pidfd)
    }

    /// True once the process has exited.
    pub fn has_ended(&self) -> bool {
        has_ended(&self.0, Duration::ZERO).unwrap_or(false)
    }

    /// Collapses the memory at `addresses` into huge pages (`MADV_COLLAPSE`), regardless of the machine's THP
    /// mode; contents stay.
    ///
    /// EPERM without CAP_SYS_NICE and the right to read its memory map; EINVAL before Linux 6.1 and for
    /// memory that cannot be huge; ENOMEM if no huge page is available or nothing is mapped; EBUSY if the
    /// limit of its control group is reached; EAGAIN if its pages are in use elsewhere; ESRCH if it has
    /// exited.
    pub fn collapse(&self, addresses: &Range<u64>) -> io::Result<()> {
        process_madvise(&self.0, Some(addresses), MADV_COLLAPSE)
    }

    /// Splits the huge page that begins at `address` into pages of the size `base`, by `MADV_COLD` on the
    /// first of them; contents stay. Base pages of anonymous memory that contain only zeros are freed, if the
    /// kernel knows `shrink_underused`.
    ///
    /// Success does not mean that it was split: the kernel skips huge pages that are pinned, or that another
    /// process maps. EPERM, ESRCH as for [`Adviser::collapse`]; EINVAL for locked memory; ENOMEM if nothing is
    /// mapped.
    pub fn split(&self, address: u64, base: PageSize) -> io::Result<()> {
        process_madvise(&self.0, Some(&(address..address.saturating_add(base.bytes().0))), libc::MADV_COLD)
    }
}

/// Whether the kernel permits [`Adviser::split`] for the process of this pidfd; a call without a range, which
/// changes nothing. ENOSYS before Linux 5.10.
pub fn may_split(pidfd: &impl AsRawFd) -> io::Result<()> {
    process_madvise(pidfd, None, libc::MADV_COLD)
}

fn process_madvise(pidfd: &impl AsRawFd, range: Option<&Range<u64>>, advice: c_int) -> io::Result<()> {
    let vector = range.map(|range| libc::iovec {
        iov_base: range.start as *mut libc::c_void,
        iov_len: range.end.saturating_sub(range.start) as usize,
    });
    // SAFETY: a pointer to as many live iovecs as given, none or one; the addresses belong to the other process
    // and are not touched here.
    checked(unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            pidfd.as_raw_fd(),
            vector.as_ref().map_or(ptr::null(), ptr::from_ref),
            vector.iter().len(),
            advice,
            0 as c_uint,
        )
    })
    .map(drop)
}

/// True if the kernel has `MADV_COLLAPSE` (Linux 6.1, with THP).
pub fn can_collapse() -> bool {
    // SAFETY: an empty range; the kernel only checks the advice.
    unsafe { libc::madvise(ptr::null_mut(), 0, MADV_COLLAPSE) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_descriptor() -> io::Result<()> {
        let mut child = std::process::Command::new("true").spawn()?;
        let pidfd = open(child.id())?;
        child.wait()?;
        assert!(has_ended(&pidfd, Duration::from_secs(10))?);
        let adviser = Adviser::of(pidfd);
        assert!(adviser.has_ended() && adviser.collapse(&(0..2 << 20)).is_err());
        assert_eq!(may_split(&adviser.0).map_err(|error| error.raw_os_error()), Err(Some(libc::ESRCH)));
        assert!(!has_ended(&open(std::process::id())?, Duration::ZERO)?);
        assert!(open(u32::MAX).is_err());
        Ok(())
    }
}
