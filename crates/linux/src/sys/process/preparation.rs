//! What a child does between fork and exec: it takes its place among the processes, becomes its user, closes files.
//!
//! Everything that needs memory is prepared before the fork, because only async-signal-safe calls are permitted after
//! it.

use std::{ffi::CString, io, os::unix::fs::FileExt};

use libc::{c_int, c_long, c_uint, c_ulong};

use super::super::{checked, file};
use crate::users::Account;

/// Permissions that new files of another user never have: group and others do not write.
const UMASK: libc::mode_t = 0o022;
/// Highest number of a signal.
const MAX_SIGNAL: c_int = 64;
/// `struct sigaction` of the kernel with `SIG_DFL`, no flags and an empty mask.
const DEFAULT_ACTION: [u64; 4] = [0; 4];
/// First descriptor behind standard error.
const FIRST_DESCRIPTOR: c_int = 3;
/// Source: include/uapi/linux/keyctl.h.
const KEYCTL_JOIN_SESSION_KEYRING: c_long = 1;
/// Source: include/uapi/linux/capability.h.
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// The process group and session of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Those of its starter, with its terminal.
    OfStarter,
    /// A process group of its own in the session of its starter.
    Group,
    /// A session of its own, without a terminal.
    Session,
}

/// The steps of one child.
#[derive(Debug)]
pub(super) struct Preparation {
    pub place: Place,
    /// Whether its parent is not its starter but process 1.
    pub is_orphan: bool,
    /// Process id of the starter, with whose thread the child ends; `None` if it lives on.
    pub dies_with: Option<u32>,
    /// `None` for the user of the starter.
    pub identity: Option<Identity>,
    pub thp_disabled: bool,
    /// Descriptors to close; `None` if the child inherits those without the flag close-on-exec.
    pub closed: Option<Vec<c_int>>,
    /// Descriptors that the child inherits in any case.
    pub kept: Vec<c_int>,
    /// Seccomp filter under which the starter traces the child; `None` if it does not.
    pub filter: Option<Vec<libc::sock_filter>>,
}

impl Preparation {
    /// # Safety
    ///
    /// Only in a child between fork and exec.
    pub(super) unsafe fn run(&mut self) -> io::Result<()> {
        // SAFETY: all calls are async-signal-safe; pointers are to `self`, to literals and to locals, which outlive
        // the calls. The middle process of an orphan only exits.
        unsafe {
            if self.is_orphan && checked(libc::fork())? != 0 {
                libc::_exit(0);
            }
            match self.place {
                Place::OfStarter => {}
                Place::Group => drop(checked(libc::setpgid(0, 0))?),
                Place::Session => drop(checked(libc::setsid())?),
            }
            if self.thp_disabled {
                set(libc::PR_SET_THP_DISABLE, 1)?;
            }
            if self.filter.is_some() {
                checked(libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0))?;
            }
            if let Some(identity) = &mut self.identity {
                identity.assume()?;
            }
            if let Some(closed) = &self.closed {
                close_at_exec(closed)?;
            }
            for descriptor in &self.kept {
                checked(libc::fcntl(*descriptor, libc::F_SETFD, 0))?;
            }
            if self.identity.is_some() || self.filter.is_some() {
                set(libc::PR_SET_NO_NEW_PRIVS, 1)?;
            }
            if let Some(filter) = &self.filter {
                let program =
                    libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
                checked(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program))?;
            }
            if let Some(starter) = self.dies_with {
                // Last: a change of the user clears it.
                set(libc::PR_SET_PDEATHSIG, libc::SIGKILL as c_ulong)?;
                // If the starter has already died, the kernel sends no signal.
                if libc::getppid().unsigned_abs() != starter {
                    return Err(io::Error::from_raw_os_error(libc::ESRCH));
                }
            }
        }
        Ok(())
    }
}

/// The user of a child.
#[derive(Debug)]
pub(super) struct Identity {
    uid: libc::uid_t,
    gid: libc::gid_t,
    /// Supplementary groups.
    groups: Vec<libc::gid_t>,
    /// Memory for the groups that the kernel reports.
    reported: Vec<libc::gid_t>,
    /// Where it starts, if the user may enter it; absolute.
    folder: CString,
}

impl Identity {
    pub(super) fn new(account: &Account, folder: CString) -> Identity {
        let mut groups = account.groups.clone();
        groups.sort_unstable();
        groups.dedup();
        let reported = vec![0; groups.len() + 1];
        Identity { uid: account.user.uid, gid: account.user.gid, groups, reported, folder }
    }

    /// Becomes the user, and leaves what belongs to the one before.
    ///
    /// # Safety
    ///
    /// As for [`Preparation::run`].
    unsafe fn assume(&mut self) -> io::Result<()> {
        // SAFETY: as in [`Preparation::run`].
        unsafe {
            limit_oom_protection()?;
            leave_session_keyring()?;
            checked(libc::setgroups(self.groups.len(), self.groups.as_ptr()))?;
            checked(libc::setresgid(self.gid, self.gid, self.gid))?;
            checked(libc::setresuid(self.uid, self.uid, self.uid))?;
            if self.uid != 0 {
                // With some `securebits`, a change of the user does not remove them.
                drop_capabilities()?;
            }
            if !self.is_assumed()? {
                return Err(io::Error::from_raw_os_error(libc::EPERM));
            }
            libc::umask(libc::umask(UMASK) | UMASK);
            for signal in 1..=MAX_SIGNAL {
                // Not by libc, which reserves two of them. Fails for those that cannot be ignored either.
                libc::syscall(libc::SYS_rt_sigaction, signal, DEFAULT_ACTION.as_ptr(), 0 as c_long, 8);
            }
            // By its path: a folder may only be reached by the user before.
            if libc::chdir(self.folder.as_ptr()) != 0 {
                checked(libc::chdir(c"/".as_ptr()))?;
            }
        }
        Ok(())
    }

    /// Whether this process has no other user and group.
    unsafe fn is_assumed(&mut self) -> io::Result<bool> {
        let (mut uids, mut gids) = ([0; 3], [0; 3]);
        // SAFETY: writes to live numbers, and to at most as many groups as there are in `reported`.
        let groups = unsafe {
            let [real, effective, saved] = &mut uids;
            checked(libc::getresuid(real, effective, saved))?;
            let [real, effective, saved] = &mut gids;
            checked(libc::getresgid(real, effective, saved))?;
            checked(libc::getgroups(self.reported.len() as c_int, self.reported.as_mut_ptr()))?
        };
        let reported = self.reported.get(..groups.unsigned_abs() as usize).unwrap_or_default();
        Ok(uids == [self.uid; 3]
            && gids == [self.gid; 3]
            && reported.len() == self.groups.len()
            && reported.iter().all(|group| self.groups.contains(group)))
    }
}

/// Sets a property of this process.
unsafe fn set(property: c_int, value: c_ulong) -> io::Result<()> {
    let none = 0 as c_ulong;
    // SAFETY: prctl is async-signal-safe, and takes numbers only for these properties.
    checked(unsafe { libc::prctl(property, value, none, none, none) }).map(drop)
}

/// Closes all descriptors but the standard ones at the exec, not before: one of them reports its failure.
///
/// `listed` are the descriptors of the starter. Those that it has opened since have the flag already.
unsafe fn close_at_exec(listed: &[c_int]) -> io::Result<()> {
    let first = FIRST_DESCRIPTOR as c_uint;
    // SAFETY: takes numbers only.
    let marked =
        unsafe { libc::syscall(libc::SYS_close_range, first, c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    // Before Linux 5.11, or under a filter that does not know it.
    if marked == 0 { Ok(()) } else { close_listed_at_exec(listed) }
}

fn close_listed_at_exec(listed: &[c_int]) -> io::Result<()> {
    for descriptor in listed.iter().filter(|descriptor| **descriptor >= FIRST_DESCRIPTOR) {
        // SAFETY: takes numbers only.
        match checked(unsafe { libc::fcntl(*descriptor, libc::F_SETFD, libc::FD_CLOEXEC) }) {
            // Closed since.
            Err(error) if error.raw_os_error() != Some(libc::EBADF) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Ends a protection from the OOM killer that the starter has.
fn limit_oom_protection() -> io::Result<()> {
    // Without /proc nothing is known, and a score cannot be set.
    let Ok(score) = file::open_after_fork(c"/proc/self/oom_score_adj") else { return Ok(()) };
    let mut text = [0; 8];
    match score.read_at(&mut text, 0) {
        Ok(1..) if text[0] == b'-' => score.write_at(b"0", 0).map(drop),
        _ => Ok(()),
    }
}

/// Joins a new session keyring: the keys of the starter's would be possessed by the child, too.
unsafe fn leave_session_keyring() -> io::Result<()> {
    let name = 0 as c_long;
    // SAFETY: takes numbers only; no name is given.
    match checked(unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, name) }) {
        // A kernel without keys, or a container that may not use them.
        Err(error) if !matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM | libc::EACCES)) => {
            Err(error)
        }
        _ => Ok(()),
    }
}

unsafe fn drop_capabilities() -> io::Result<()> {
    // `struct __user_cap_header_struct`, and two of `struct __user_cap_data_struct`.
    let (header, none) = ([CAPABILITY_VERSION_3, 0], [0u32; 6]);
    // SAFETY: reads two live structs of the sizes that this version has.
    checked(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) }).map(drop)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        os::fd::{AsRawFd, FromRawFd, OwnedFd},
    };

    use super::*;

    fn flags(descriptor: c_int) -> io::Result<c_int> {
        // SAFETY: takes numbers only.
        checked(unsafe { libc::fcntl(descriptor, libc::F_GETFD) })
    }

    /// As on kernels without `close_range`, where limits above 1024 are usual.
    #[test]
    fn listed_descriptors_of_any_number_are_closed() -> io::Result<()> {
        let file = File::open("/dev/null")?;
        for number in [900, 1023, 1500] {
            // SAFETY: duplicates a descriptor to a free number from here on, and owns the result.
            let high = unsafe {
                OwnedFd::from_raw_fd(checked(libc::fcntl(file.as_raw_fd(), libc::F_DUPFD, number))?)
            };
            assert_eq!(flags(high.as_raw_fd())?, 0);
            // The last one is not open.
            close_listed_at_exec(&[0, high.as_raw_fd(), 1 << 20])?;
            assert_eq!(flags(high.as_raw_fd())?, libc::FD_CLOEXEC, "{number}");
        }
        assert_eq!(flags(0)?, 0);
        Ok(())
    }
}
