//! Reasons why memory is on base pages: those of the mapping alone, then those of the settings and counters.

#[cfg(test)]
mod tests;

use std::ops::Range;

use hugewise_linux::{
    pages::{occupancy, reason},
    proc::smaps::{Memory, ThpAdvice},
    units::Bytes,
};

use super::MachineState;

pub use hugewise_linux::pages::reason::Reason;

/// Readings of one mapping, or of the part of it that belongs to a region.
#[derive(Clone, Debug)]
pub struct MappingReadings {
    pub addresses: Range<u64>,
    /// Offset in the mapped file, in bytes.
    pub offset: u64,
    pub memory: Memory,
    /// The madvise advice on huge pages.
    pub advice: ThpAdvice,
    /// `THPeligible`; `None` if the kernel does not report it.
    pub eligible: Option<bool>,
    /// Resident bytes on base pages, and on mTHP.
    pub small: Bytes,
    /// Bytes mapped by huge entries.
    pub thp: Bytes,
    /// Of `small`, bytes in whole THPs that base page table entries map.
    pub split: Bytes,
    /// Swapped-out bytes.
    pub swap: Bytes,
    /// Whether the process disabled THP by `prctl(PR_SET_THP_DISABLE)`.
    pub process_off: bool,
    /// Whether the process requested pages of a pool for this memory.
    pub wants_pool: bool,
}

/// A reason, and the possible causes if it is [`Reason::Eligible`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReasonWithCauses {
    pub reason: Reason,
    /// Whether huge-page allocations may have failed since boot; true if they are not counted.
    pub(super) fragmentation: bool,
    /// Whether huge pages may have been split since boot; true if splits are not counted.
    pub(super) split: bool,
}

impl ReasonWithCauses {
    /// Possible causes if the reason is [`Reason::Eligible`], otherwise empty.
    pub fn candidates(self) -> Vec<Reason> {
        let all = [
            (true, Reason::AdvisedAfterTouch),
            (self.fragmentation, Reason::FragmentationThen),
            (self.split, Reason::SplitSince),
        ];
        let all = all.into_iter().filter(|(possible, _)| *possible && self.reason == Reason::Eligible);
        all.map(|(_, reason)| reason).collect()
    }
}

/// Why the mapping has base pages; `None` if it has none.
pub fn judge(seen: &MappingReadings, machine: &MachineState) -> Option<ReasonWithCauses> {
    if seen.memory == Memory::Pool || seen.small + seen.swap == Bytes::ZERO {
        return None;
    }
    let mut judged = ReasonWithCauses {
        reason: Reason::Eligible,
        fragmentation: machine.fault_fallbacks != Some(0),
        split: machine.splits != Some(0),
    };
    judged.reason = reason(seen, machine);
    if judged.reason == Reason::Eligible && !judged.fragmentation && !judged.split {
        judged.reason = Reason::AdvisedAfterTouch;
    }
    Some(judged)
}

fn reason(seen: &MappingReadings, machine: &MachineState) -> Reason {
    let setting = match seen.memory {
        Memory::Shared => &machine.shared,
        _ => &machine.anonymous,
    };
    // Whether the place of shared memory suits transparent huge pages has no effect on pages of a pool.
    if seen.wants_pool && seen.memory == Memory::Shared {
        return Reason::PoolShortAtStart;
    }
    let Some(pmd) = machine.pmd() else { return Reason::OffGlobally };
    if let Some(reason) = reason::by_place(seen.memory, &seen.addresses, seen.offset, pmd) {
        return reason;
    }
    // If all aligned ranges of the mapping are huge, its base pages lie before and after them.
    let whole = occupancy::whole(&seen.addresses, pmd);
    if seen.thp.0 >= whole.end.saturating_sub(whole.start) {
        return Reason::NotAligned;
    }
    if seen.wants_pool {
        return Reason::PoolShortAtStart;
    }
    if let Some(reason) = reason::by_request(seen.process_off, seen.advice) {
        return reason;
    }
    match setting.as_ref().map(|(word, _)| word.as_str()) {
        None => return Reason::Unknown,
        Some("never" | "deny") => return Reason::OffGlobally,
        Some("madvise" | "advise") if seen.advice == ThpAdvice::None => return Reason::NeverAdvised,
        Some(_) => {}
    }
    if seen.split.0 > seen.small.0 / 2 {
        Reason::SplitSince
    } else if seen.swap > Bytes::ZERO {
        Reason::Swapped
    } else if seen.eligible == Some(false) {
        Reason::NotEligible
    } else {
        Reason::Eligible
    }
}
