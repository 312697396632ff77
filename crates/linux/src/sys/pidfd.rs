//! pidfds: descriptors of processes, which stay valid if a process id is reused.

use std::{
    fs::File,
    io,
    ops::Range,
    os::fd::{AsFd, AsRawFd, RawFd},
    ptr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use libc::{c_int, c_uint};

use super::{
    aside::{self, Answers, Aside, Deadline},
    checked, owned, wait_readable,
};
use crate::{interrupt::Interrupt, units::PageSize};

// Not in every supported C library; the numbers are from include/uapi.
pub(super) const MADV_COLLAPSE: c_int = 25;
/// Longest call: a process that holds its address space lets it wait for ever, and no signal ends that wait.
const CALL_LIMIT: Duration = Duration::from_secs(60);
/// The same after a signal, when the memory is put back as it was.
const LAST_CALL_LIMIT: Duration = Duration::from_secs(5);
/// Longest call without a range.
const EMPTY_CALL_LIMIT: Duration = Duration::from_secs(1);
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
///
/// The calls are made in a child process, which is abandoned if one does not end: the error is ETIMEDOUT then, for all
/// further calls, too.
#[derive(Debug)]
pub struct Adviser {
    pidfd: File,
    calls: Mutex<Calls>,
}

/// The child process that makes the calls.
#[derive(Debug)]
enum Calls {
    NotStarted,
    Started(Aside),
    Abandoned,
}

impl Adviser {
    /// An adviser for the process of this pidfd.
    pub fn of(pidfd: File) -> Adviser {
        Adviser { pidfd, calls: Mutex::new(Calls::NotStarted) }
    }

    /// True once the process has exited.
    pub fn has_ended(&self) -> bool {
        has_ended(&self.pidfd, Duration::ZERO).unwrap_or(false)
    }

    /// Collapses the memory at `addresses` into huge pages (`MADV_COLLAPSE`), regardless of the machine's THP
    /// mode; contents stay.
    ///
    /// EPERM without CAP_SYS_NICE and the right to read its memory map; EINVAL before Linux 6.1 and for
    /// memory that cannot be huge; ENOMEM if no huge page is available or nothing is mapped; EBUSY if the
    /// limit of its control group is reached; EAGAIN if its pages are in use elsewhere; ESRCH if it has
    /// exited.
    pub fn collapse(&self, addresses: &Range<u64>) -> io::Result<()> {
        self.advise(addresses, MADV_COLLAPSE)
    }

    /// Splits the huge page that begins at `address` into pages of the size `base`, by `MADV_COLD` on the
    /// first of them; contents stay. Base pages of anonymous memory that contain only zeros are freed, if the
    /// kernel knows `shrink_underused`.
    ///
    /// Success does not mean that it was split: the kernel skips huge pages that are pinned, or that another
    /// process maps. EPERM, ESRCH as for [`Adviser::collapse`]; EINVAL for locked memory; ENOMEM if nothing is
    /// mapped.
    pub fn split(&self, address: u64, base: PageSize) -> io::Result<()> {
        self.advise(&(address..address.saturating_add(base.bytes().0)), libc::MADV_COLD)
    }

    fn advise(&self, range: &Range<u64>, advice: c_int) -> io::Result<()> {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = match &mut *calls {
            Calls::Abandoned => return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT)),
            // A child ends with the thread that started it.
            Calls::Started(aside) => match call(aside, range, advice) {
                Err(error) if is_gone(&error) => call(calls.start(&self.pidfd)?, range, advice),
                answer => answer,
            },
            Calls::NotStarted => call(calls.start(&self.pidfd)?, range, advice),
        };
        match answer {
            Ok(0) => Ok(()),
            Ok(number) => Err(io::Error::from_raw_os_error(number)),
            Err(_) => {
                *calls = Calls::Abandoned;
                Err(io::Error::from_raw_os_error(libc::ETIMEDOUT))
            }
        }
    }
}

impl Calls {
    fn start(&mut self, pidfd: &File) -> io::Result<&mut Aside> {
        let number = pidfd.as_raw_fd();
        *self = Calls::Started(Aside::start(&[pidfd.as_fd()], |answers| make_calls(number, answers))?);
        match self {
            Calls::Started(aside) => Ok(aside),
            _ => Err(io::Error::other("the calls were not started")),
        }
    }
}

/// True if the child process has ended.
fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

/// The error number of a call that the child process makes, or 0.
fn call(aside: &mut Aside, range: &Range<u64>, advice: c_int) -> io::Result<i32> {
    let mut request = [0; REQUEST_BYTES];
    request[..8].copy_from_slice(&range.start.to_ne_bytes());
    request[8..16].copy_from_slice(&range.end.to_ne_bytes());
    request[16..].copy_from_slice(&advice.to_ne_bytes());
    let last = || Deadline::after(LAST_CALL_LIMIT, None);
    aside.send(&request, &last())?;
    let signal = Interrupt::of_handlers();
    match aside.wait(&Deadline::after(CALL_LIMIT, signal)) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
        begun => begun?,
    }
    let answer = aside.receive(size_of::<i32>(), &last())?;
    let number = answer.bytes.try_into().map_err(|_| io::Error::other("not the number of an error"))?;
    Ok(i32::from_ne_bytes(number))
}

/// Start and end of a range, and the advice.
const REQUEST_BYTES: usize = 20;

/// Makes the calls that are requested, in the child process, until the adviser is dropped.
fn make_calls(pidfd: RawFd, answers: &mut Answers) -> io::Result<()> {
    loop {
        let mut request = [0; REQUEST_BYTES];
        answers.receive(&mut request)?;
        let number = |at: usize| request[at..at + 8].try_into().map_or(0, u64::from_ne_bytes);
        let advice = request[16..].try_into().map_or(0, c_int::from_ne_bytes);
        let called = process_madvise(&pidfd, Some(&(number(0)..number(8))), advice);
        let answer = called.map_or_else(|error| error.raw_os_error().unwrap_or(libc::EIO), |()| 0);
        answers.send(&answer.to_ne_bytes(), None)?;
    }
}

/// Whether the kernel permits [`Adviser::split`] for the process of this pidfd; a call without a range, which
/// changes nothing. ENOSYS before Linux 5.10, ETIMEDOUT if the process holds its address space.
pub fn may_split(pidfd: &File) -> io::Result<()> {
    let number = pidfd.as_raw_fd();
    let asked = aside::ask(&[pidfd.as_fd()], &Deadline::of_reading(EMPTY_CALL_LIMIT), 0, || {
        process_madvise(&number, None, libc::MADV_COLD).map(|()| Vec::new())
    });
    asked.map(drop).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => io::Error::from_raw_os_error(libc::ETIMEDOUT),
        _ => error,
    })
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
        assert_eq!(may_split(&adviser.pidfd).map_err(|error| error.raw_os_error()), Err(Some(libc::ESRCH)));
        assert!(!has_ended(&open(std::process::id())?, Duration::ZERO)?);
        assert!(open(u32::MAX).is_err());
        Ok(())
    }
}
