//! Candidates that were not collapsed, and why.

use std::{io, ops::Range};

use hugewise_linux::units::Bytes;

/// Why a candidate was not collapsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusalReason {
    /// EINVAL: the kernel considers this memory unsuitable.
    Unsuitable,
    /// EBUSY: the limit of its memory cgroup is reached.
    GroupLimit,
    /// EAGAIN, twice: its pages are pinned, locked or under migration.
    Held,
    /// ENOMEM: no huge page could be allocated.
    NoMemory,
    /// EPERM: missing capability.
    NotAllowed,
    /// ESRCH: the process has exited.
    NoProcess,
    /// ENOSYS: the call is blocked.
    NoSuchCall,
    /// ETIMEDOUT, of the call in a child process: the process holds its address space.
    NoAnswer,
    /// Any other error number.
    Other(i32),
    /// The work ended before its turn.
    NotTried,
}

impl RefusalReason {
    /// Maps the kernel's error.
    #[must_use]
    pub fn of(error: &io::Error) -> RefusalReason {
        // Numbers of include/uapi/asm-generic/errno.h.
        match error.raw_os_error().unwrap_or(0) {
            1 => RefusalReason::NotAllowed,
            3 => RefusalReason::NoProcess,
            11 => RefusalReason::Held,
            12 => RefusalReason::NoMemory,
            16 => RefusalReason::GroupLimit,
            22 => RefusalReason::Unsuitable,
            38 => RefusalReason::NoSuchCall,
            110 => RefusalReason::NoAnswer,
            other => RefusalReason::Other(other),
        }
    }

    /// A phrase for messages.
    #[must_use]
    pub fn words(self) -> String {
        let words = match self {
            RefusalReason::Unsuitable => {
                "EINVAL: unsuitable for a huge page: now disabled by madvise or prctl, partly unmapped, or \
                 registered with userfaultfd"
            }
            RefusalReason::GroupLimit => "EBUSY: the control group's memory limit is reached",
            RefusalReason::Held => {
                "EAGAIN, twice: the pages are pinned for I/O (io_uring, RDMA, vmsplice), locked, or under \
                 migration"
            }
            RefusalReason::NoMemory => {
                "ENOMEM: no huge page could be allocated: too little contiguous memory"
            }
            RefusalReason::NotAllowed => {
                "EPERM: CAP_SYS_NICE is missing, or has no effect in this user namespace"
            }
            RefusalReason::NoProcess => "ESRCH: the process has ended",
            RefusalReason::NoSuchCall => {
                "ENOSYS: process_madvise is blocked, for example by the seccomp filter of a container"
            }
            RefusalReason::NoAnswer => {
                "the call did not end: the process holds its address space, for example for a file system that \
                 hangs"
            }
            RefusalReason::Other(number) => return io::Error::from_raw_os_error(number).to_string(),
            RefusalReason::NotTried => "not tried: the work ended early",
        };
        words.to_owned()
    }
}

/// Adjacent addresses refused for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Start and end address.
    pub addresses: Range<u64>,
    /// The reason.
    pub reason: RefusalReason,
}

impl Refusal {
    /// The size of the range.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        Bytes(self.addresses.end.saturating_sub(self.addresses.start))
    }
}

/// Adds a refusal, merged with the last one if adjacent and for the same reason.
pub fn add(all: &mut Vec<Refusal>, addresses: Range<u64>, reason: RefusalReason) {
    match all.last_mut() {
        Some(last) if last.reason == reason && last.addresses.end == addresses.start => {
            last.addresses.end = addresses.end;
        }
        _ => all.push(Refusal { addresses, reason }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_one_reason_are_one() {
        let mut all = Vec::new();
        for (start, reason) in [
            (2, RefusalReason::Held),
            (3, RefusalReason::Held),
            (4, RefusalReason::NoMemory),
            (6, RefusalReason::NoMemory),
            (7, RefusalReason::NoMemory),
        ] {
            add(&mut all, start..start + 1, reason);
        }
        let merged: Vec<_> = all.iter().map(|one| (one.addresses.clone(), one.reason)).collect();
        assert_eq!(
            merged,
            [(2..4, RefusalReason::Held), (4..5, RefusalReason::NoMemory), (6..8, RefusalReason::NoMemory)]
        );
        assert_eq!(all[2].bytes(), Bytes(2));
    }

    #[test]
    fn every_answer_has_its_words() {
        for number in 0..200 {
            assert!(!RefusalReason::of(&io::Error::from_raw_os_error(number)).words().is_empty());
        }
        assert_eq!(RefusalReason::of(&io::Error::other("?")), RefusalReason::Other(0));
    }
}
