//! Work in a child process that can be abandoned: for lookups and reads that another user may leave unanswered.
//!
//! A lookup below /proc/PID/root, or a read of memory that another process has mapped, may wait for a file system that
//! never answers, and then not even SIGKILL ends the wait. In a child process it delays nothing but that child: the
//! child has a session of its own, holds no descriptor and so no lock of this process, and is killed at the end of its
//! time, or with this process; nothing waits for its end.
//!
//! [`below`] reads files and connects to sockets below such a folder. [`ask`] returns bytes. [`ask_for_socket`] returns a
//! descriptor, which must not be of a file: closing one, or reading it, may wait as well. An [`Aside`] is a conversation
//! of several messages.
//!
//! The child is a copy of this process without its other threads. The work may allocate memory, open, read and send;
//! it must not print, and must not take a lock that another thread may have held. If it did, it would not answer in
//! time, which is an error like any other.

pub mod below;
mod channel;
mod reading;
#[cfg(test)]
mod tests;

use std::{
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use libc::{c_int, c_uint, c_ulong};

pub use self::{
    channel::{Answers, Deadline, Message},
    reading::limit_readings,
};
use super::{checked, file, wait_readable};

/// Children that did not answer and still exist, at most; they cost memory until they end, or this process does.
const MAX_ABANDONED: usize = 64;
/// Longest wait for the end of a child that was killed.
const END_TIME_LIMIT: Duration = Duration::from_millis(20);

/// The children that had not ended when they were killed.
static ABANDONED: Mutex<Vec<libc::pid_t>> = Mutex::new(Vec::new());

/// The answer of `work`, which runs in a child process without descriptors but `keep`; at most `limit` bytes.
///
/// `TimedOut` if there is none at the deadline, `Interrupted` at a signal to this process; the child is killed then.
pub fn ask(
    keep: &[BorrowedFd<'_>],
    deadline: &Deadline<'_>,
    limit: usize,
    work: impl FnOnce() -> io::Result<Vec<u8>>,
) -> io::Result<Vec<u8>> {
    let mut aside = Aside::start(keep, |answers| answers.send(work()?.as_slice(), None))?;
    Ok(aside.receive(limit, deadline)?.bytes)
}

/// Like [`ask`], for a socket that `work` opens. The file system that it is on may be another user's, the socket is
/// none of its files any more.
pub fn ask_for_socket(
    keep: &[BorrowedFd<'_>],
    deadline: &Deadline<'_>,
    work: impl FnOnce() -> io::Result<OwnedFd>,
) -> io::Result<OwnedFd> {
    let mut aside = Aside::start(keep, |answers| answers.send(&[], Some(work()?.as_fd())))?;
    let missing = || io::Error::other("the answer has no descriptor");
    aside.receive(0, deadline)?.descriptor.ok_or_else(missing)
}

/// A child process that works, and the messages to and from it. Dropping it kills the child.
#[derive(Debug)]
pub struct Aside {
    child: Child,
    channel: UnixStream,
}

impl Aside {
    /// Starts `work` in a child process without descriptors but `keep`. An error that it returns is received instead of
    /// an answer.
    pub fn start(
        keep: &[BorrowedFd<'_>],
        work: impl FnOnce(&mut Answers) -> io::Result<()>,
    ) -> io::Result<Aside> {
        let (ours, theirs) = UnixStream::pair()?;
        let kept = keep.iter().map(AsRawFd::as_raw_fd).chain([theirs.as_raw_fd()]);
        let mut kept: Vec<RawFd> = kept.collect();
        kept.sort_unstable();
        let child = Child::start(|| {
            close_all_but(&kept);
            let mut answers = Answers::new(theirs);
            if let Err(error) = work(&mut answers) {
                let _ = answers.send_error(&error);
            }
        })?;
        ours.set_nonblocking(true)?;
        Ok(Aside { child, channel: ours })
    }

    /// The next message, of at most `limit` bytes; an error if the work returned one. Errors as of [`ask`];
    /// `UnexpectedEof` if the work is done.
    pub fn receive(&mut self, limit: usize, deadline: &Deadline<'_>) -> io::Result<Message> {
        channel::receive(&self.channel, limit, deadline)
    }

    /// Waits for the begin of the next message, or the end of the work. Errors as of [`ask`]; the message can be received
    /// later, also after an error.
    pub fn wait(&self, deadline: &Deadline<'_>) -> io::Result<()> {
        deadline.wait(|time| wait_readable(&self.channel, time))
    }

    /// Sends bytes, which the work reads with [`Answers::receive`].
    pub fn send(&mut self, bytes: &[u8], deadline: &Deadline<'_>) -> io::Result<()> {
        channel::send(&self.channel, bytes, deadline)
    }

    /// The process id of the child.
    pub fn pid(&self) -> u32 {
        self.child.0.unsigned_abs()
    }
}

/// A child of this process that was not waited for.
#[derive(Debug)]
struct Child(libc::pid_t);

impl Child {
    /// Starts a copy of this process with its calling thread only, which runs `work` and exits.
    fn start(work: impl FnOnce()) -> io::Result<Child> {
        let abandoned = reap_abandoned();
        if abandoned >= MAX_ABANDONED {
            let error = format!("{abandoned} lookups in other processes were not answered");
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, error));
        }
        let parent = std::process::id();
        // SAFETY: the child never returns from this block. Beside system calls it runs `work`, for which the C libraries
        // that are supported keep their allocator usable after a fork; other locks that another thread holds now are
        // never released in the child, which then is killed at its deadline.
        let pid = checked(unsafe { libc::fork() })?;
        if pid != 0 {
            return Ok(Child(pid));
        }
        if become_separate(parent).is_ok() {
            let _ = catch_unwind(AssertUnwindSafe(work));
        }
        // SAFETY: ends this process without destructors and exit handlers, which are its parent's.
        unsafe { libc::_exit(0) }
    }

    /// Reaps the child if it has ended.
    fn has_ended(&self) -> bool {
        has_ended(self.0)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: sends a signal to a child that is not reaped, so its process id is not another's.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
        let begin = Instant::now();
        while !self.has_ended() {
            if begin.elapsed() > END_TIME_LIMIT {
                ABANDONED.lock().unwrap_or_else(PoisonError::into_inner).push(self.0);
                return;
            }
            thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Reaps a child if it has ended; true if it has.
fn has_ended(pid: libc::pid_t) -> bool {
    // SAFETY: writes no status; without a child of this id the call fails, as for one that was reaped.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) != 0 }
}

/// Reaps the abandoned children that have ended; returns the number of those that have not.
fn reap_abandoned() -> usize {
    let mut abandoned = ABANDONED.lock().unwrap_or_else(PoisonError::into_inner);
    abandoned.retain(|pid| !has_ended(*pid));
    abandoned.len()
}

/// Gives this process a session of its own, and its end with that of `parent`.
fn become_separate(parent: u32) -> io::Result<()> {
    // SAFETY: the calls take numbers only.
    unsafe {
        checked(libc::setsid())?;
        checked(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as c_ulong))?;
        // If the parent has already died, the kernel sends no signal.
        if libc::getppid() as u32 != parent {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
    }
    Ok(())
}

/// Closes all descriptors but `kept`, which are sorted; the standard ones are replaced by /dev/null.
///
/// Locks are on descriptors above the standard ones, whose closing may wait for a file system, and which come last.
fn close_all_but(kept: &[RawFd]) {
    let mut first = libc::STDERR_FILENO + 1;
    for &kept in kept.iter().filter(|kept| **kept > libc::STDERR_FILENO) {
        close_range(first, kept - 1);
        first = kept + 1;
    }
    close_range(first, c_int::MAX);
    let null = file::open_stream(Path::new("/dev/null"));
    for standard in (libc::STDIN_FILENO..=libc::STDERR_FILENO).filter(|fd| !kept.contains(fd)) {
        // SAFETY: replaces or closes a descriptor of this process, which uses none of these.
        unsafe {
            match &null {
                Ok(null) => libc::dup2(null.as_raw_fd(), standard),
                Err(_) => libc::close(standard),
            };
        }
    }
}

fn close_range(first: RawFd, last: RawFd) {
    if first > last {
        return;
    }
    let (from, to) = (first.unsigned_abs(), last.unsigned_abs());
    // SAFETY: closes descriptors of a process that uses none of them.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, from, to, 0 as c_uint) };
    if closed != 0 {
        // Before Linux 5.9: the descriptors below the usual limit.
        for fd in first..=last.min(1023) {
            // SAFETY: as above; closing a descriptor that is not open fails.
            unsafe { libc::close(fd) };
        }
    }
}
