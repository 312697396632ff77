//! Orphans: processes whose parent has ended before them.

use std::{
    collections::BTreeSet,
    io,
    sync::{Mutex, PoisonError},
};

use libc::c_ulong;

use super::super::checked;

/// Children that this process started, and that were not reaped.
static STARTED: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Makes this process the parent of orphans among its descendants, in place of process 1: those that a program leaves
/// in a session of its own and without a variable of their own can still be found.
pub fn adopt() -> io::Result<()> {
    let none = 0 as c_ulong;
    // SAFETY: takes numbers only.
    checked(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1 as c_ulong, none, none, none) }).map(drop)
}

/// Whether this process started its child `pid`, and did not adopt it.
pub fn is_own(pid: u32) -> bool {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner).contains(&pid)
}

pub(super) fn note_start(pid: u32) {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner).insert(pid);
}

pub(super) fn note_end(pid: u32) {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner).remove(&pid);
}

/// Kills the adopted child `pid` (SIGKILL), and reaps it if it has ended. The children that it leaves are adopted.
pub fn end(pid: u32) {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return };
    // SAFETY: sends a signal, and waits without a result. The number of a child is not reused before it is reaped.
    unsafe {
        if libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) == 0 {
            libc::kill(pid, libc::SIGKILL);
        }
    }
}
