//! What is said of a recording, in any form.

use hugewise_linux::reading::Reading;
use hugewise_record::{
    attribution::{
        Because, Explained as Pause, Explanation, Gathered, Outside, Split, ThreadPart, Totals, Verdict,
        Wait, actions::What,
    },
    recording::{Ending, Evidence},
};

use crate::{
    commands::{
        plan::formats::quote::shell_line,
        record::text::{counted, duration},
    },
    output::terminal::plain,
};

/// Reaching a safepoint is worth a line from here on.
pub const SLOW_NS: u64 = 10_000_000;

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

/// A thread, by its name and number.
pub fn who(gathered: &Gathered, thread: usize) -> String {
    let tid = gathered.threads.get(thread).map_or(0, |thread| thread.tid);
    format!("{} {tid}", plain(gathered.name(thread)))
}

/// What was recorded, and on what machine.
pub fn recording(gathered: &Gathered) -> [String; 2] {
    let header = &gathered.header;
    let thp = &header.machine.thp;
    let mode = |reading: &Reading<String>| {
        reading.known().map_or_else(|| "not known".to_owned(), |mode| plain(mode))
    };
    [
        format!("process {}: {}", header.pid, plain(&shell_line(&header.command))),
        format!(
            "{} · {} · THP enabled {}, defrag {}",
            duration(gathered.elapsed_ns()),
            counted(gathered.threads.len() as u64, "thread"),
            mode(&thp.enabled),
            mode(&thp.defrag)
        ),
    ]
}

/// Parts of a split: what, and the time of threads; nothing where it could not be told.
pub fn parts(split: &Split) -> [(&'static str, Option<u64>); 6] {
    [
        ("compaction", split.compaction_ns),
        ("reclaim", split.reclaim_ns),
        ("zeroing huge pages, at most", split.zeroing_ns),
        ("first touch, at most", split.first_touch_ns),
        ("other system time", split.other_system_ns),
        ("user time", split.user_ns),
    ]
}

/// What all pauses took: as [`parts`], and in how many of them that could not be told.
pub fn sums(explanation: &Explanation) -> Vec<(&'static str, Option<u64>, String)> {
    let untold = |part: usize| {
        let pauses = explanation.pauses.iter();
        pauses.filter(|pause| parts(&pause.split)[part].1.is_none()).count()
    };
    let all = explanation.pauses.len();
    let told = |(at, (what, ns)): (usize, (&'static str, Option<u64>))| match untold(at) {
        0 => (what, ns, String::new()),
        some if some == all => (what, None, "could not tell".to_owned()),
        // Nothing, of those few of which it is known.
        some => (what, ns.filter(|ns| *ns > 0), format!("could not tell in {some} of {all} pauses")),
    };
    parts(&explanation.totals.split).into_iter().enumerate().map(told).collect()
}

/// How many pauses, and how long.
pub fn totals(totals: &Totals) -> Vec<String> {
    let reaching = match totals.reaching_ns {
        0 => String::new(),
        ns => format!("; until all threads stood still, {} more", duration(ns)),
    };
    let pauses = counted(totals.pauses, "pause");
    let mut said = vec![format!("{pauses}, {} in all{reaching}", duration(totals.paused_ns))];
    let stalled = totals.stalled_ns + totals.reaching_stalled_ns;
    if stalled > 0 {
        said.push(format!("in {} of that at least one thread waited for the kernel", duration(stalled)));
    }
    said
}

/// The pause that the verdict rests on, or else the longest.
pub fn worst(explanation: &Explanation) -> Option<&Pause> {
    let at = match explanation.decision.because {
        Because::HugePagesInPauses { worst, .. } => Some(worst),
        _ => (0..explanation.pauses.len()).max_by_key(|at| explanation.pauses[*at].with_reaching_ns()),
    };
    explanation.pauses.get(at?)
}

/// What a thread of the collector did in a pause.
pub fn thread_part(part: &ThreadPart) -> String {
    let mut said = Vec::new();
    for (part, what) in [(part.compaction, "compaction"), (part.reclaim, "reclaim")] {
        if part.ns > 0 {
            let count = if part.count > 0 { format!(" ({} ×)", part.count) } else { String::new() };
            said.push(format!("{} in {what}{count}", duration(part.ns)));
        }
    }
    if part.huge_pages > 0 {
        said.push(format!("{} got", counted(part.huge_pages, "huge page")));
    }
    if part.huge_pages_failed > 0 {
        said.push(format!("{} asked for in vain", part.huge_pages_failed));
    }
    if part.base_faults > 0 {
        said.push(format!("{} touched first", counted(part.base_faults, "base page")));
    }
    said.join(", ")
}

/// What a thread waited for outside of pauses.
pub fn outside(gathered: &Gathered, at: &Outside) -> String {
    let sum = at.sum;
    let for_huge = match sum.for_huge_ns {
        0 => String::new(),
        ns if ns == sum.ns => ", for huge pages".to_owned(),
        ns => format!(", {} of it for huge pages", duration(ns)),
    };
    let all = if gathered.is_own(at.thread) { "" } else { ", for all processes" };
    format!(
        "{}{all}: {} in {} ({} ×, the longest {}){for_huge}",
        who(gathered, at.thread),
        duration(sum.ns),
        waiting(at.wait),
        sum.count,
        duration(sum.longest_ns)
    )
}

/// How much of what the kernel accounted for was found.
pub fn accounting(totals: &Totals) -> Vec<String> {
    let Some(sums) = totals.accounted.as_ref().filter(|_| !totals.found.is_empty()) else {
        return Vec::new();
    };
    let told = |wait: Wait| {
        let accounted = sums.get(&wait).copied().unwrap_or(0);
        let found = totals.found.get(&wait).map_or(0, |sum| sum.ns);
        ((accounted, found) != (0, 0)).then(|| {
            format!(
                "{}: {} in intervals of kernel events; the kernel's own accounting says {}",
                waiting(wait),
                duration(found),
                if accounted == 0 { "none".to_owned() } else { duration(accounted) }
            )
        })
    };
    [Wait::Compaction, Wait::Reclaim].into_iter().filter_map(told).collect()
}

/// Why, in sentences.
pub fn why(explanation: &Explanation) -> Vec<String> {
    let gathered = &explanation.gathered;
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
            let who = explanation
                .totals
                .outside
                .get(*outside)
                .map_or_else(String::new, |at| who(gathered, at.thread));
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
            _ => vec![
                match explanation.totals.split.user_ns {
                    Some(_) => "What took time in the pauses was the collector itself, in user space.",
                    None => {
                        "No thread waited for it or touched much memory first; how long the collector \
                             itself took is not in the log."
                    }
                }
                .to_owned(),
            ],
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
        Because::Empty => {
            vec!["There is nothing in the recording but what it is of. Record again.".to_owned()]
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
