//! What is said of a recording, in any form.

use hugewise_measure::{
    pauses::{Because, Explanation, Gathered, Verdict, Wait, advice::What},
    recording::{Ending, Evidence},
};

use crate::{
    report::record::{counted, duration},
    terminal::plain,
};

/// Seconds since the begin of the recording.
pub fn since_begin_s(gathered: &Gathered, ns: u64) -> f64 {
    (ns as f64 - gathered.header.began_ns as f64) / 1e9
}

/// The verdict in a few words.
pub fn verdict(explanation: &Explanation) -> &'static str {
    match explanation.decision.verdict {
        Verdict::None if explanation.totals.pauses == 0 => "nothing: no thread waited for huge pages",
        Verdict::Thp => "transparent huge pages: threads waited for the kernel to make them",
        Verdict::FirstTouch => "first touch: pauses touched memory that nobody had touched before",
        Verdict::Other => "something else than huge pages or first touch",
        Verdict::None => "nothing: the kernel had no part in the pauses that matters",
        Verdict::CouldNotTell => "could not tell",
    }
}

pub fn waiting(wait: Wait) -> &'static str {
    match wait {
        Wait::Compaction => "compaction",
        Wait::Reclaim => "reclaim",
    }
}

fn share(ns: u64, of_ns: u64) -> String {
    if of_ns == 0 { "0 %".to_owned() } else { format!("{:.0} %", 100.0 * ns as f64 / of_ns as f64) }
}

/// Why, in sentences.
pub fn why(explanation: &Explanation) -> Vec<String> {
    let gathered = &explanation.gathered;
    let name = |thread: usize| {
        let tid = gathered.threads.get(thread).map_or(0, |thread| thread.tid);
        format!("{} {tid}", plain(gathered.name(thread)))
    };
    match &explanation.decision.because {
        Because::HugePagesInPauses { ns, of_ns, worst } => {
            let mut said = vec![format!(
                "In {} of {} of pauses, and of reaching them, at least one thread waited for compaction or \
                 reclaim, to get a huge page: {}.",
                duration(*ns),
                duration(*of_ns),
                share(*ns, *of_ns)
            )];
            if let Some(pause) = explanation.pauses.get(*worst) {
                let stalled = pause.stalled_for_huge_ns.unwrap_or(0)
                    + pause.reaching.as_ref().map_or(0, |reaching| reaching.stalled_for_huge_ns);
                said.push(format!(
                    "The worst: {} at {:.3} s, {}; {} of it.",
                    plain(&pause.stop.kind),
                    since_begin_s(gathered, pause.stop.span.start),
                    duration(pause.with_reaching_ns()),
                    duration(stalled)
                ));
            }
            said
        }
        Because::AccountedInPauses { ns, of_ns } => vec![format!(
            "The kernel accounted the collector's threads for {} of compaction, in {} of pauses. Without \
             kernel events it is not known when, nor that it was for huge pages; hardly anything else needs \
             compaction.",
            duration(*ns),
            duration(*of_ns)
        )],
        Because::HugePagesOutside { outside, ns, worst_second_ns } => {
            let who = explanation.totals.outside.get(*outside).map_or_else(String::new, |at| name(at.thread));
            vec![format!(
                "Outside of pauses {who} waited for {} to get huge pages; in its worst second for {}. A log \
                 of pauses does not show that.",
                duration(*ns),
                duration(*worst_second_ns)
            )]
        }
        Because::Touch { ns, system_ns } => {
            let mut said = match system_ns {
                0 => format!("Getting and zeroing pages took up to {} in pauses.", duration(*ns)),
                system_ns => format!(
                    "Of {} in the kernel, getting and zeroing pages took up to {}.",
                    duration(*system_ns),
                    duration(*ns)
                ),
            };
            if gathered.has(Evidence::Events) {
                said += " No thread waited for compaction or reclaim to an extent that matters.";
            }
            vec![said]
        }
        Because::OtherWaiting { ns, of_ns, wait } => vec![format!(
            "In {} of {} of pauses, and of reaching them, threads waited for {}, and not for huge pages: \
             memory is short, or asked for in other sizes.",
            duration(*ns),
            duration(*of_ns),
            waiting(*wait)
        )],
        Because::System { ns, unexplained_ns } => vec![format!(
            "In pauses in which the kernel worked longer than the collector, it worked for {}; {}.",
            duration(*ns),
            match unexplained_ns {
                Some(ns) => {
                    format!("{} of that are neither compaction nor reclaim nor first touch", duration(*ns))
                }
                None => "how much of that is first touch is not known".to_owned(),
            }
        )],
        Because::Reaching { ns, of_ns } => vec![format!(
            "Of {}, {} were spent until the application's threads stood still, and none of them waited for \
             memory meanwhile: a long loop without a safepoint, or too few CPUs.",
            duration(*of_ns),
            duration(*ns)
        )],
        Because::Nothing => match explanation.totals.pauses {
            0 => vec!["There is no pause of a JVM in it.".to_owned()],
            _ => vec!["What took time in the pauses was the collector itself, in user space.".to_owned()],
        },
        Because::NoEvents => vec![
            "Nobody looked at what threads waited for, and the machine compacted or reclaimed memory for \
             somebody. Record as root, so that there are kernel events or at least delay accounting."
                .to_owned(),
        ],
        Because::Lost { count } => {
            let count = if *count == 0 { "events".to_owned() } else { counted(*count, "event") };
            vec![format!(
                "The kernel lost {count}, and in what is left there is no cause. Record again, on a less busy \
                 machine."
            )]
        }
        Because::NoLog => vec![
            "There is no log of the JVM in it, so nothing is known of its pauses. Start the program with \
             'hugewise record -- java …', or give it -Xlog:gc*,safepoint:file=gc.log:timenanos,level,tags."
                .to_owned(),
        ],
    }
}

/// A change, in words.
pub fn change(what: What) -> &'static str {
    match what {
        What::PreTouch => {
            "-XX:+AlwaysPreTouch, with -Xms as large as -Xmx: the kernel's work is done before the \
             application starts, and not in its pauses"
        }
        What::FixedHeap => {
            "-Xms as large as -Xmx: the heap is touched at the start, but it grows later by memory that is not"
        }
        What::Defer => {
            "defrag=defer, for the whole machine: nobody waits for a huge page; they are made in the background"
        }
        What::DeferUnlessAsked => {
            "defrag=defer+madvise, for the whole machine: only programs that asked for huge pages wait for them"
        }
        What::Explicit => {
            "huge pages from a pool: they are made before the program starts, and never waited for"
        }
        What::ThpOff => "no transparent huge pages for this process alone; it gets base pages",
        What::Thp => "transparent huge pages: one fault for each of them, instead of hundreds",
    }
}

/// What whoever reads it should know of the recording.
pub fn remarks(gathered: &Gathered) -> Vec<String> {
    let mut said = Vec::new();
    if gathered.ending == Some(Ending::CutOff) {
        said.push("The recording is cut off: what came before counts.".to_owned());
    }
    for (of, (count, uncounted)) in &gathered.lost {
        let how_many = match (count, uncounted) {
            (0, _) => "Some".to_owned(),
            (count, true) => format!("{count} and more"),
            (count, false) => count.to_string(),
        };
        said.push(format!("{how_many} of the {of} were lost."));
    }
    if gathered.open_stalls > 0 {
        let open = counted(gathered.open_stalls, "wait");
        said.push(format!("{open} without a begin or an end: not counted, for nobody knows how long."));
    }
    if gathered.logs.iter().any(|log| !log.monotonic) {
        said.push(
            "The JVM's log has another clock than the kernel: its times are fitted by when its lines were \
             read, and can be wrong by a second. Only with timenanos they can be trusted."
                .to_owned(),
        );
    }
    let unread: u64 = gathered.logs.iter().map(|log| log.unread).sum();
    if unread > 0 {
        said.push(format!("{} of the JVM's log could not be understood.", counted(unread, "line")));
    }
    if let (count @ 1.., Some(first)) = &gathered.unread {
        let lines = counted(*count, "line");
        said.push(format!("{lines} of the recording could not be understood: {}", plain(first)));
    }
    for (evidence, reading) in &gathered.header.evidence {
        if let Some(reason) = reading.reason() {
            said.push(format!("Without {evidence}: {}", plain(reason)));
        }
    }
    if let Some(reason) = gathered.header.first_touch.reason() {
        said.push(format!("What first touch costs is not known: {}", plain(reason)));
    }
    said.extend(gathered.notes.iter().map(|note| plain(note)));
    said
}
