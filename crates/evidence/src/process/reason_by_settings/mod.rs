//! Reasons why memory is on base pages: those of the mapping alone, then those of the settings and counters.

#[cfg(test)]
mod tests;

use std::ops::Range;

use hugewise_linux::{
    pages::{occupancy, reason},
    proc::{
        mounts::Huge,
        smaps::{Memory, ThpAdvice},
    },
    units::Bytes,
};

use super::{MachineState, names::STACKS_MARKED_SINCE};

pub use hugewise_linux::pages::reason::Reason;

/// The kernel with `PR_THP_DISABLE_EXCEPT_ADVISED`.
const UNLESS_ADVISED_SINCE: (u32, u32) = (6, 18);

/// Readings of one mapping, or of the part of it that belongs to a region.
#[derive(Clone, Debug)]
pub struct MappingReadings {
    pub addresses: Range<u64>,
    /// Offset in the mapped file, in bytes.
    pub offset: u64,
    pub memory: Memory,
    /// The mount option of the file's tmpfs; `None` if it is on none.
    pub tmpfs: Option<Huge>,
    /// Whether it is the stack of a thread.
    pub is_stack: bool,
    /// The madvise advice on huge pages.
    pub advice: ThpAdvice,
    /// `THPeligible`; `None` if the kernel does not report it.
    pub eligible: Option<bool>,
    /// Resident bytes on base pages, and on mTHP.
    pub small: Bytes,
    /// Bytes mapped by huge entries.
    pub thp: Bytes,
    /// Of `small`, bytes before the first and after the last aligned huge page; `None` if unknown.
    pub edges: Option<Bytes>,
    /// Of `small`, bytes in aligned ranges that lack pages.
    pub sparse: Bytes,
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

/// Why the mapping has base pages, with the bytes for which each reason holds; empty if it has none.
pub fn judge(seen: &MappingReadings, machine: &MachineState) -> Vec<(ReasonWithCauses, Bytes)> {
    let all = seen.small + seen.swap;
    if seen.memory == Memory::Pool || all == Bytes::ZERO {
        return Vec::new();
    }
    let mut left = all;
    let mut judged: Vec<(Reason, Bytes)> = Vec::new();
    let mut take = |reason, bytes: Bytes| {
        let bytes = bytes.min(left);
        left = left.saturating_sub(bytes);
        judged.push((reason, bytes));
    };
    if let Some(reason) = of_whole_mapping(seen, machine) {
        take(reason, all);
    } else {
        take(Reason::NotAligned, seen.edges.unwrap_or_default());
        match by_settings(seen, machine) {
            Some(reason) => take(reason, all),
            None => {
                take(Reason::SplitSince, seen.split);
                take(Reason::Swapped, seen.swap);
                let rest = if seen.eligible == Some(false) { Reason::NotEligible } else { Reason::Eligible };
                if rest == Reason::Eligible {
                    take(Reason::Holes, seen.sparse);
                }
                take(rest, all);
            }
        }
    }
    let with_causes = |reason| {
        let causes = ReasonWithCauses {
            reason,
            fragmentation: machine.fault_fallbacks != Some(0),
            split: machine.splits != Some(0),
        };
        let only_one = reason == Reason::Eligible && !causes.fragmentation && !causes.split;
        ReasonWithCauses { reason: if only_one { Reason::AdvisedAfterTouch } else { reason }, ..causes }
    };
    judged.retain(|(_, bytes)| *bytes > Bytes::ZERO);
    judged.into_iter().map(|(reason, bytes)| (with_causes(reason), bytes)).collect()
}

/// The reason for all base pages of the mapping: its kind and place, or the pool that it was to come from.
fn of_whole_mapping(seen: &MappingReadings, machine: &MachineState) -> Option<Reason> {
    // Whether the place of shared memory suits transparent huge pages has no effect on pages of a pool.
    if seen.wants_pool && seen.memory == Memory::Shared {
        return Some(Reason::PoolShortAtStart);
    }
    let Some(pmd) = machine.pmd() else { return Some(Reason::OffGlobally) };
    if let Some(reason) = reason::by_place(seen.memory, &seen.addresses, seen.offset, pmd) {
        return Some(reason);
    }
    // If all aligned ranges of the mapping are huge, its base pages lie before and after them.
    let whole = occupancy::whole(&seen.addresses, pmd);
    if seen.thp.0 >= whole.end.saturating_sub(whole.start) {
        return Some(Reason::NotAligned);
    }
    seen.wants_pool.then_some(Reason::PoolShortAtStart)
}

/// The reason that follows from calls of the program and from settings; `None` if they allow huge pages.
fn by_settings(seen: &MappingReadings, machine: &MachineState) -> Option<Reason> {
    let marks_stacks = machine.since(STACKS_MARKED_SINCE) == Some(true);
    match reason::by_request(seen.process_off, seen.advice) {
        Some(Reason::OffHere) if seen.is_stack && marks_stacks => return Some(Reason::ThreadStack),
        Some(reason) => return Some(reason),
        None => {}
    }
    let setting = match seen.memory {
        Memory::Shared => &machine.shared,
        _ => &machine.anonymous,
    };
    let word = setting.as_ref().map(|(word, _)| word.as_str());
    let is_advised = seen.advice == ThpAdvice::Huge;
    match (seen.tmpfs, word) {
        (_, None) => Some(Reason::Unknown),
        // These two settings hold for every mount.
        (_, Some("deny")) => Some(Reason::OffGlobally),
        (_, Some("force")) => None,
        (Some(Huge::Never), _) => Some(Reason::OffByMount),
        (Some(Huge::Advise), _) => (!is_advised).then_some(Reason::NeverAdvised),
        (Some(Huge::WithinSize | Huge::Always), _) => None,
        (None, Some("never")) => Some(Reason::OffGlobally),
        (None, Some("madvise" | "advise")) => (!is_advised).then_some(Reason::NeverAdvised),
        (None, Some("always")) => {
            let is_excluded = seen.memory == Memory::Anonymous && !is_advised && seen.eligible == Some(false);
            let can_exclude = machine.since(UNLESS_ADVISED_SINCE) == Some(true);
            (is_excluded && can_exclude).then_some(Reason::OffUnlessAdvised)
        }
        (None, Some(_)) => None,
    }
}
