//! What stood in the way, and what to do about it.

use hugewise_linux::units::PageSize;
use hugewise_memory::collapse::{RESERVED_HUGE_PAGES, admission::Refused, engine};

/// What to do where it is not begun.
pub(super) fn before_beginning(refused: &Refused, size: PageSize) -> String {
    let allow = "--allow-reclaim begins all the same, and lets the kernel take memory from the page cache and \
                 move pages; other programs may have to wait for it";
    match refused {
        Refused::NoRoom { .. } => format!(
            "free memory in blocks of {size}: 'echo 1 | sudo tee /proc/sys/vm/compact_memory' joins what is \
             free, 'hugewise check' tells how much that is; or {allow}"
        ),
        Refused::Grows { .. } => {
            format!("a higher --min-present leaves sparse ranges as they are; or {allow}")
        }
        Refused::NotTold { .. } => allow.to_owned(),
    }
}

/// Why it ended before everything was tried; nothing where it did not.
pub fn cause(outcome: engine::Outcome) -> Option<String> {
    use engine::Outcome as Ended;
    let words = match outcome {
        Ended::Finished => return None,
        Ended::ProcessEnded => "the process ended".to_owned(),
        Ended::Interrupted => "told to stop".to_owned(),
        Ended::NoRoom => format!(
            "no more huge pages can be had without reclaiming or compacting memory ({RESERVED_HUGE_PAGES} free ones are left \
             to others)"
        ),
        Ended::Fragmented => "the kernel can make no more huge pages: memory is fragmented or used up; each \
                              further try would be a futile compaction"
            .to_owned(),
        Ended::GroupLimit => {
            "the memory limit of its control group is reached: a huge page is charged before \
                              its base pages are given back"
                .to_owned()
        }
        Ended::NotAllowed => "the kernel does not allow it: CAP_SYS_NICE does not count here, as in a user \
                              namespace, or a security module or a seccomp filter forbids it"
            .to_owned(),
        Ended::MemoryPressure => {
            "programs on this machine went on waiting for memory for half a minute of pause".to_owned()
        }
    };
    Some(words)
}

/// What to do where it ended before everything was tried.
pub(super) fn next_step(outcome: engine::Outcome, pid: u32) -> Option<String> {
    use engine::Outcome as Ended;
    let again = format!("hugewise collapse {pid}");
    match outcome {
        Ended::Finished | Ended::ProcessEnded => None,
        Ended::Interrupted => Some(format!("'{again}' goes on with what is left")),
        Ended::NoRoom => Some(format!(
            "'echo 1 | sudo tee /proc/sys/vm/compact_memory' joins free memory; '{again}' goes on, with \
             --allow-reclaim at the cost of others"
        )),
        Ended::Fragmented => Some(format!(
            "find what holds memory ('hugewise check', 'hugewise inspect --all'), free some, then '{again}'"
        )),
        Ended::GroupLimit => Some(format!("raise memory.max of its group by some MiB, then '{again}'")),
        Ended::NotAllowed => Some("run it on the host, as root of the first user namespace".to_owned()),
        Ended::MemoryPressure => Some(format!("'{again}' when the machine is calm, with --rate")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_but_a_good_one_has_its_cause() {
        use engine::Outcome as Ended;
        assert!(cause(Ended::Finished).is_none() && next_step(Ended::Finished, 7).is_none());
        for outcome in [
            Ended::Interrupted,
            Ended::NoRoom,
            Ended::Fragmented,
            Ended::GroupLimit,
            Ended::NotAllowed,
            Ended::MemoryPressure,
        ] {
            assert!(cause(outcome).is_some() && next_step(outcome, 7).is_some(), "{outcome:?}");
        }
        assert!(cause(Ended::ProcessEnded).is_some());
    }
}
