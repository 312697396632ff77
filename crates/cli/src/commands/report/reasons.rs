//! The reasons for the verdict, as sentences.

use hugewise_record::{
    attribution::{Attribution, TouchTime, VerdictReason},
    recording::Evidence,
};

use super::words::{head, waiting, who};
use crate::output::{durations::duration, words::counted};

/// The reasons for the verdict, as sentences.
pub fn why(explanation: &Attribution) -> Vec<String> {
    let gathered = &explanation.gathered;
    match &explanation.decision.because {
        VerdictReason::HugePagesInPauses { ns, of_ns, worst } => {
            let mut said = vec![format!(
                "For {} of {} of pauses and time to safepoint ({}), at least one thread waited for compaction \
                 or reclaim to get a huge page.",
                duration(*ns),
                duration(*of_ns),
                share(*ns, *of_ns)
            )];
            if let Some(pause) = explanation.pauses.get(*worst) {
                let before = pause.time_to_safepoint.as_ref().map_or(0, |ttsp| ttsp.stalled_for_huge_ns);
                said.push(format!(
                    "Worst pause: {}, {}, of which {} waiting for huge pages.",
                    head(gathered, pause),
                    duration(pause.with_time_to_safepoint_ns()),
                    duration(before + pause.stalled_for_huge_ns.unwrap_or(0))
                ));
            }
            said
        }
        VerdictReason::AccountedInPauses { ns, of_ns } => vec![format!(
            "The kernel's delay accounting shows {} of compaction for the collector's threads, in {} of \
             pauses. Without kernel events it is unknown when they waited, and whether for huge pages; few \
             other allocations need compaction.",
            duration(*ns),
            duration(*of_ns)
        )],
        VerdictReason::HugePagesOutside { outside, ns, worst_second_ns } => {
            let who = explanation
                .totals
                .outside
                .get(*outside)
                .map_or_else(String::new, |at| who(gathered, at.thread));
            vec![format!(
                "Outside of pauses {who} waited {} for huge pages, {} of it within one second. A GC log does \
                 not show these waits.",
                duration(*ns),
                duration(*worst_second_ns)
            )]
        }
        VerdictReason::FirstTouch(time) => {
            let mut said = touch_time(*time);
            if gathered.has(Evidence::Events) {
                said += " No thread waited significantly for compaction or reclaim.";
            }
            vec![said]
        }
        VerdictReason::FirstTouchPossible(time) => vec![
            touch_time(*time),
            "The lower bound does not explain the pauses with more system time than user time, and the upper bound \
             might: the cause is not proven."
                .to_owned(),
        ],
        VerdictReason::OtherWaiting { ns, of_ns, wait } => vec![format!(
            "For {} of {} of pauses and time to safepoint, threads waited for {}, but not for huge pages: \
             memory is short, or requested in other sizes.",
            duration(*ns),
            duration(*of_ns),
            waiting(*wait)
        )],
        VerdictReason::SystemTime { ns, unexplained_ns } => vec![format!(
            "Pauses with more system time than user time have {} of system time; {}.",
            duration(*ns),
            match unexplained_ns {
                Some(ns) => {
                    format!("{} of it is neither compaction nor reclaim nor first touch", duration(*ns))
                }
                None => "how much of it is first touch is unknown".to_owned(),
            }
        )],
        VerdictReason::TimeToSafepoint { ns, of_ns } => vec![format!(
            "Of {} of pauses and time to safepoint, {} is time to safepoint in which no application thread \
             waited for memory: possible causes are a long loop without a safepoint poll, or too few CPUs.",
            duration(*of_ns),
            duration(*ns)
        )],
        VerdictReason::Nothing if explanation.totals.pauses == 0 => {
            vec!["The recording has no pause of a JVM.".to_owned()]
        }
        VerdictReason::Nothing if mostly_waits(explanation) => vec![
            "The collector used little CPU time in the pauses: its threads mostly waited, for something that was not \
             recorded. Possible causes are a write of the log to a busy disk, pages read from a file, a stopped or \
             throttled container, and a virtual machine that its host stopped."
                .to_owned(),
        ],
        VerdictReason::Nothing if explanation.totals.split.user_ns.is_some() => {
            vec!["The pauses are mostly the collector's own work in user space.".to_owned()]
        }
        VerdictReason::Nothing => vec![
            "No thread waited for the kernel or touched much new memory; the log does not contain the \
             collector's user time."
                .to_owned(),
        ],
        VerdictReason::NoEvents => vec![
            "The waits of threads were not recorded, and the machine compacted or reclaimed memory during the \
             recording. Record as root, with kernel events or at least delay accounting."
                .to_owned(),
        ],
        VerdictReason::Lost { count } => {
            let count = if *count == 0 { "events".to_owned() } else { counted(*count, "event") };
            vec![format!(
                "The kernel lost {count}, and the other events show no cause. Record again, with less load on \
                 the machine."
            )]
        }
        VerdictReason::TooLarge { .. } => vec![
            "The recording is too large, and its kept part shows no cause. Record for a shorter time.".to_owned(),
        ],
        VerdictReason::Empty => {
            vec!["The recording has no data after its header. Record again.".to_owned()]
        }
        VerdictReason::NoLog => vec![
            "The recording has no log of the JVM: the pauses are unknown. Start the program with 'hugewise \
             record -- java …', or with -Xlog:gc*,safepoint:file=gc.log:timenanos,level,tags."
                .to_owned(),
        ],
    }
}

/// Whether the CPU time and the recorded waits of the pauses explain less than half of them.
fn mostly_waits(explanation: &Attribution) -> bool {
    let totals = &explanation.totals;
    let Some(user_ns) = totals.split.user_ns else { return false };
    let ran_ns = user_ns.saturating_add(totals.split.other_system_ns.unwrap_or(0));
    ran_ns.saturating_add(totals.stalled_ns) < totals.paused_ns / 2
}

/// The bounds of the time of first touch in pauses, as a sentence.
fn touch_time(time: TouchTime) -> String {
    let of = match time.system_ns {
        0 => "In pauses".to_owned(),
        system_ns => format!("Of {} of system time in pauses", duration(system_ns)),
    };
    let least = time.least_ns.map_or_else(|| "an unknown time".to_owned(), duration);
    format!("{of}, allocating and zeroing pages took between {least} and {}.", duration(time.ns))
}

fn share(ns: u64, of_ns: u64) -> String {
    if of_ns == 0 { "0 %".to_owned() } else { format!("{:.0} %", 100.0 * ns as f64 / of_ns as f64) }
}
