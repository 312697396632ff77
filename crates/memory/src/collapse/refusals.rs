//! What could not be converted, and why.

use std::{io, ops::Range};

use hugewise_linux::units::Bytes;

/// Why a huge page was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// EINVAL: the kernel takes this memory for unsuitable.
    Unsuitable,
    /// EBUSY: its control group may have no more memory.
    GroupLimit,
    /// EAGAIN, twice: its pages are held by somebody.
    Held,
    /// ENOMEM: no huge page could be made.
    NoMemory,
    /// EPERM.
    NotAllowed,
    /// ESRCH: the process has ended.
    NoProcess,
    /// ENOSYS: something keeps the call from the kernel.
    NoSuchCall,
    /// Any other answer, by its number.
    Other(i32),
    /// Everything ended before its turn.
    NotTried,
}

impl Reason {
    /// What the kernel's answer means.
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

    /// In the field's terms.
    #[must_use]
    pub fn words(self) -> String {
        match self {
            Reason::Unsuitable => {
                "EINVAL: not fit for a huge page: advised against or given up by prctl since, \
                                   unmapped in part, or registered with userfaultfd"
                    .to_owned()
            }
            Reason::GroupLimit => "EBUSY: the memory limit of its control group leaves no room".to_owned(),
            Reason::Held => {
                "EAGAIN, twice: pages of it are held: pinned for I/O (io_uring, RDMA, vmsplice), \
                             locked, or being moved"
                    .to_owned()
            }
            Reason::NoMemory => "ENOMEM: no huge page could be made: too little contiguous memory".to_owned(),
            Reason::NotAllowed => "EPERM: CAP_SYS_NICE is missing, or does not count here".to_owned(),
            Reason::NoProcess => "ESRCH: the process has ended".to_owned(),
            Reason::NoSuchCall => {
                "ENOSYS: process_madvise is kept from us, as by the seccomp filter of a container".to_owned()
            }
            Reason::Other(number) => io::Error::from_raw_os_error(number).to_string(),
            Reason::NotTried => "not tried: everything ended before".to_owned(),
        }
    }
}

/// Addresses that were refused for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// From and to.
    pub addresses: Range<u64>,
    /// Why.
    pub reason: Reason,
}

impl Refusal {
    /// How much that is.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        Bytes(self.addresses.end.saturating_sub(self.addresses.start))
    }
}

/// Adds one; neighbours of the same reason become one.
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
