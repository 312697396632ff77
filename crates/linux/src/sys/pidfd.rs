//! Processes by descriptor: whatever becomes of process numbers, a pidfd means the same one.

use std::{
    fs::File,
    io,
    ops::Range,
    os::fd::{AsRawFd, FromRawFd},
    ptr,
    time::Duration,
};

use libc::{c_int, c_uint};

use super::checked;

// Not in every C library that we build for; the number is the kernel's (include/uapi).
pub(super) const MADV_COLLAPSE: c_int = 25;

/// Opens the process of this number. ESRCH where there is none, ENOSYS before Linux 5.3.
pub fn open(pid: u32) -> io::Result<File> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    // SAFETY: returns a new descriptor, close-on-exec.
    let fd = checked(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { File::from_raw_fd(fd as c_int) })
}

/// Waits for the end of the process behind a pidfd; has it ended?
pub fn has_ended(pidfd: &impl AsRawFd, patience: Duration) -> io::Result<bool> {
    let mut poll = libc::pollfd { fd: pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let milliseconds = c_int::try_from(patience.as_millis()).unwrap_or(c_int::MAX);
    // SAFETY: one live pollfd.
    match checked(unsafe { libc::poll(&raw mut poll, 1, milliseconds) }) {
        Ok(ready) => Ok(ready > 0),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        Err(error) => Err(error),
    }
}

/// Advises the kernel on the memory of another process: the only one who changes anything there.
#[derive(Debug)]
pub struct Adviser(File);

impl Adviser {
    /// Of the process behind this pidfd.
    #[must_use]
    pub fn of(pidfd: File) -> Adviser {
        Adviser(pidfd)
    }

    /// Has the process ended?
    #[must_use]
    pub fn has_ended(&self) -> bool {
        has_ended(&self.0, Duration::ZERO).unwrap_or(false)
    }

    /// Makes the memory at `addresses` into whole huge pages (`MADV_COLLAPSE`), whatever the machine's
    /// THP setting; contents stay.
    ///
    /// EPERM without CAP_SYS_NICE and the right to read its memory map; EINVAL before Linux 6.1 and for
    /// memory that cannot be huge; ENOMEM where no huge page could be had, or nothing is mapped; EBUSY
    /// where its control group may have no more; EAGAIN where its pages are in use elsewhere right now;
    /// ESRCH where it has ended.
    pub fn collapse(&self, addresses: &Range<u64>) -> io::Result<()> {
        let length = addresses.end.saturating_sub(addresses.start) as usize;
        let range = libc::iovec { iov_base: addresses.start as *mut libc::c_void, iov_len: length };
        // SAFETY: one live iovec; the addresses belong to the other process and are not touched by us.
        checked(unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                self.0.as_raw_fd(),
                &raw const range,
                1usize,
                MADV_COLLAPSE,
                0 as c_uint,
            )
        })
        .map(drop)
    }
}

/// Does this kernel know `MADV_COLLAPSE`? It came with Linux 6.1, and needs THP to be built in.
#[must_use]
pub fn can_collapse() -> bool {
    // SAFETY: no bytes are advised on; the kernel tells whether it knows the advice.
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
        assert!(!has_ended(&open(std::process::id())?, Duration::ZERO)?);
        assert!(open(u32::MAX).is_err());
        Ok(())
    }
}
