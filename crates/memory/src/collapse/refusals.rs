//! Candidates that were not collapsed, and why.

use std::{io, ops::Range};

use hugewise_linux::units::Bytes;

/// Why a candidate was not collapsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
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
    /// Any other error number.
    Other(i32),
    /// The work ended before its turn.
    NotTried,
}

impl Reason {
    /// Maps the kernel's error.
    #[must_use]
    pub fn of(error: &io::Error) -> Reason {
        // Numbers of include/uapi/asm-generic/errno.h.
        match error.raw_os_error().unwrap_or(0) {
            1 => Reason::NotAllowed,
            3 => Reason::NoProcess,
            11 => Reason::Held,
            12 => Reason::NoMemory,
            16 => Reason::GroupLimit,
            22 => Reason::Unsuitable,
            38 => Reason::NoSuchCall,
            other => Reason::Other(other),
        }
    }

    /// A phrase for messages.
    #[must_use]
    pub fn words(self) -> String {
        match self {
            Reason::Unsuitable => {
                "EINVAL: unsuitable for a huge page: disabled since by madvise or prctl, partly unmapped, or \
                 registered with userfaultfd"
                    .to_owned()
            }
            Reason::GroupLimit => "EBUSY: the memory limit of its control group is reached".to_owned(),
            Reason::Held => {
                "EAGAIN, twice: its pages are pinned for I/O (io_uring, RDMA, vmsplice), locked, or under \
                 migration"
                    .to_owned()
            }
            Reason::NoMemory => {
                "ENOMEM: no huge page could be allocated: too little contiguous memory".to_owned()
            }
            Reason::NotAllowed => {
                "EPERM: CAP_SYS_NICE is missing, or has no effect in this user namespace".to_owned()
            }
            Reason::NoProcess => "ESRCH: the process has ended".to_owned(),
            Reason::NoSuchCall => {
                "ENOSYS: process_madvise is blocked, for example by the seccomp filter of a container"
                    .to_owned()
            }
            Reason::Other(number) => io::Error::from_raw_os_error(number).to_string(),
            Reason::NotTried => "not tried: the collapse ended before".to_owned(),
        }
    }
}

/// Adjacent addresses refused for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Start and end address.
    pub addresses: Range<u64>,
    /// The reason.
    pub reason: Reason,
}

impl Refusal {
    /// The size of the range.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        Bytes(self.addresses.end.saturating_sub(self.addresses.start))
    }
}

/// Adds a refusal, merged with the last one if adjacent and for the same reason.
pub fn add(all: &mut Vec<Refusal>, addresses: Range<u64>, reason: Reason) {
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
            (2, Reason::Held),
            (3, Reason::Held),
            (4, Reason::NoMemory),
            (6, Reason::NoMemory),
            (7, Reason::NoMemory),
        ] {
            add(&mut all, start..start + 1, reason);
        }
        let merged: Vec<_> = all.iter().map(|one| (one.addresses.clone(), one.reason)).collect();
        assert_eq!(merged, [(2..4, Reason::Held), (4..5, Reason::NoMemory), (6..8, Reason::NoMemory)]);
        assert_eq!(all[2].bytes(), Bytes(2));
    }

    #[test]
    fn every_answer_has_its_words() {
        for number in 0..200 {
            assert!(!Reason::of(&io::Error::from_raw_os_error(number)).words().is_empty());
        }
        assert_eq!(Reason::of(&io::Error::other("?")), Reason::Other(0));
    }
}
