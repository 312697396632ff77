//! Causes of an early end, and the actions against them.

use hugewise_linux::units::PageSize;
use hugewise_memory::collapse::{RESERVED_HUGE_PAGES, admission::Refused, engine};

/// The action if the collapse was not started.
pub(super) fn before_beginning(refused: &Refused, size: PageSize) -> String {
    let allow = "--allow-reclaim starts anyway and lets the kernel reclaim page cache and move pages; other \
                 programs may have to wait";
    match refused {
        Refused::NoRoom { .. } => format!(
            "free memory in blocks of {size}: 'echo 1 | sudo tee /proc/sys/vm/compact_memory' compacts free \
             memory, 'hugewise check' shows the free blocks; or {allow}"
        ),
        Refused::Grows { .. } => {
            format!("a higher --min-present skips sparse ranges; or {allow}")
        }
        Refused::NotTold { .. } => allow.to_owned(),
    }
}

/// Why it ended before every candidate was tried; `None` if all were tried.
pub fn cause(outcome: engine::Outcome) -> Option<String> {
    use engine::Outcome as Ended;
    let words = match outcome {
        Ended::Finished => return None,
        Ended::ProcessEnded => "the process ended".to_owned(),
        Ended::Interrupted => "interrupted".to_owned(),
        Ended::NoRoom => format!(
            "no more huge pages are available without reclaiming or compacting memory ({RESERVED_HUGE_PAGES} \
             free ones stay reserved for other programs)"
        ),
        Ended::Fragmented => {
            "huge-page allocations failed repeatedly: memory is fragmented or used up, and each \
                              further attempt would compact without success"
                .to_owned()
        }
        Ended::GroupLimit => {
            "the memory limit of its control group is reached: a huge page is charged before \
                              its base pages are freed"
                .to_owned()
        }
        Ended::NotAllowed => {
            "the kernel does not permit it: CAP_SYS_NICE is not effective here, as in a user \
                              namespace, or a security module or a seccomp filter forbids it"
                .to_owned()
        }
        Ended::MemoryPressure => {
            "programs on this machine still waited for memory after a pause of 30 s".to_owned()
        }
    };
    Some(words)
}

/// The action if it ended before every candidate was tried.
pub(super) fn next_step(outcome: engine::Outcome, pid: u32) -> Option<String> {
    use engine::Outcome as Ended;
    let again = format!("hugewise collapse {pid}");
    match outcome {
        Ended::Finished | Ended::ProcessEnded => None,
        Ended::Interrupted => Some(format!("'{again}' continues with the remaining candidates")),
        Ended::NoRoom => Some(format!(
            "'echo 1 | sudo tee /proc/sys/vm/compact_memory' compacts free memory; '{again}' continues, with \
             --allow-reclaim at the cost of other programs"
        )),
        Ended::Fragmented => Some(format!(
            "find the users of memory ('hugewise check', 'hugewise inspect --all'), free some, then '{again}'"
        )),
        Ended::GroupLimit => Some(format!("raise memory.max of its group by some MiB, then '{again}'")),
        Ended::NotAllowed => Some("run it on the host, as root of the first user namespace".to_owned()),
        Ended::MemoryPressure => Some(format!("'{again} --rate 0.5' when the machine has free memory")),
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
