//! Causes of an early end, and the actions against them.

use hugewise_linux::{action::Action, cgroup::Limit, units::PageSize};
use hugewise_memory::collapse::{RESERVED_HUGE_PAGES, admission::AdmissionError, engine};

/// Changes that permit the collapse to start.
pub(super) fn before_beginning(refused: &AdmissionError, size: PageSize) -> Vec<Action> {
    let allow = Action::new(
        "Start anyway with --allow-reclaim: the kernel reclaims page cache and moves pages, and other programs may \
         have to wait",
    );
    match refused {
        AdmissionError::NoRoom { .. } => {
            vec![compact(format!("Compact free memory, for free blocks of {size}")), allow]
        }
        AdmissionError::Grows { .. } => {
            vec![Action::new("Skip sparse ranges with a higher --min-present"), allow]
        }
        AdmissionError::GroupLimit { limit, left, needed } => {
            let enough = limit.bytes + needed.saturating_sub(*left);
            vec![raise(limit, &format!(" to {enough} or more")).by(format!(
                "echo {} | sudo tee /{}",
                enough.0,
                limit.file.display()
            ))]
        }
        AdmissionError::Unknown { .. } => vec![allow],
    }
}

fn raise(limit: &Limit, to: &str) -> Action {
    let name = limit.file.file_name().unwrap_or_default().to_string_lossy();
    Action::new(format!("Raise {name} of the process's control group{to}"))
}

fn compact(change: impl Into<String>) -> Action {
    Action::new(change).by("echo 1 | sudo tee /proc/sys/vm/compact_memory").verified_by("hugewise check")
}

/// Why the collapse ended before all candidates were tried; `None` if all were tried.
pub fn cause(outcome: engine::CollapseOutcome) -> Option<String> {
    use engine::CollapseOutcome as Ended;
    let words = match outcome {
        Ended::Finished => return None,
        Ended::ProcessEnded => "the process ended",
        Ended::Interrupted => "interrupted",
        Ended::NoRoom => {
            return Some(format!(
                "no more huge pages are available without reclaiming or compacting memory \
                 ({RESERVED_HUGE_PAGES} free ones stay reserved for other programs)"
            ));
        }
        Ended::Fragmented => {
            "huge-page allocations failed repeatedly: memory is fragmented or used up, and each \
                              further attempt would compact without success"
        }
        Ended::GroupLimit => {
            "the memory limit of the process's control group is reached: a huge page is charged before \
                              its base pages are freed"
        }
        Ended::NotAllowed => {
            "the kernel does not permit the collapse: CAP_SYS_NICE is not effective here, as in a user \
                              namespace, or a security module or a seccomp filter forbids it"
        }
        Ended::MemoryPressure => "programs on this machine still waited for memory after a pause of 30 s",
    };
    Some(words.to_owned())
}

/// Changes that permit the collapse to continue.
pub(super) fn actions(outcome: engine::CollapseOutcome, pid: u32, limit: Option<&Limit>) -> Vec<Action> {
    use engine::CollapseOutcome as Ended;
    let again = format!("sudo hugewise collapse {pid}");
    let continues = |change: &str| Action::new(change).by(again.clone());
    match outcome {
        Ended::Finished | Ended::ProcessEnded => Vec::new(),
        Ended::Interrupted => vec![continues("Continue with the remaining candidates")],
        Ended::NoRoom => vec![
            compact("Compact free memory"),
            continues("Continue, or add --allow-reclaim at the cost of other programs"),
        ],
        Ended::Fragmented => vec![
            Action::new("Find the users of memory, and free some").by("hugewise inspect --all"),
            continues("Continue with the remaining candidates"),
        ],
        Ended::GroupLimit => vec![
            limit.map_or_else(
                || Action::new("Raise the memory limit of the process's control group by some MiB"),
                |limit| raise(limit, " by some MiB"),
            ),
            continues("Continue with the remaining candidates"),
        ],
        Ended::NotAllowed => {
            vec![continues("Run the command on the host, as root of the initial user namespace")]
        }
        Ended::MemoryPressure => vec![
            Action::new("Continue more slowly when the machine has free memory")
                .by(format!("{again} --rate 0.5")),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_early_end_has_a_cause() {
        use engine::CollapseOutcome as Ended;
        assert!(cause(Ended::Finished).is_none() && actions(Ended::Finished, 7, None).is_empty());
        for outcome in [
            Ended::Interrupted,
            Ended::NoRoom,
            Ended::Fragmented,
            Ended::GroupLimit,
            Ended::NotAllowed,
            Ended::MemoryPressure,
        ] {
            assert!(cause(outcome).is_some() && !actions(outcome, 7, None).is_empty(), "{outcome:?}");
        }
        assert!(cause(Ended::ProcessEnded).is_some());
    }
}
