//! Figures and sentences shared by the text and the HTML page.

use std::cmp::Reverse;

use hugewise_linux::{action::Action, reading::Reading, shell};
use hugewise_record::{
    attribution::{
        Attribution, Outside, Pause, RecordingData, ThreadPart, TimeByActivity, Totals, Verdict,
        VerdictReason, Wait,
        actions::{ChangeKind, ProposedChange},
    },
    recording::Ending,
};

use crate::output::{
    durations::{duration, milliseconds},
    terminal::plain,
    words::counted,
};

/// Shortest time to safepoint that is listed, in nanoseconds.
const MIN_LISTED_TTSP_NS: u64 = 10_000_000;

/// Seconds since the start of the recording; negative before it.
pub fn since_begin_s(gathered: &RecordingData, ns: u64) -> f64 {
    (ns as f64 - gathered.header.began_ns as f64) / 1e9
}

/// The verdict as a short phrase.
pub fn verdict(explanation: &Attribution) -> &'static str {
    match explanation.decision.verdict {
        Verdict::None if explanation.totals.pauses == 0 => "none: no thread waited for huge pages",
        Verdict::Thp => "transparent huge pages: threads waited for the kernel to allocate them",
        Verdict::FirstTouch => "first touch: page faults on new memory in pauses",
        Verdict::Other => "a cause other than huge pages and first touch",
        Verdict::None => "none: the kernel had no significant part in the pauses",
        Verdict::Inconclusive => "inconclusive",
    }
}

pub fn waiting(wait: Wait) -> &'static str {
    match wait {
        Wait::Compaction => "compaction",
        Wait::Reclaim => "reclaim",
    }
}

/// Name and thread id.
pub fn who(gathered: &RecordingData, thread: usize) -> String {
    let tid = gathered.threads.get(thread).map_or(0, |thread| thread.tid);
    format!("{} {tid}", plain(gathered.name(thread)))
}

/// The process, the duration, and the THP settings of the machine.
pub fn recording(gathered: &RecordingData) -> [String; 2] {
    let header = &gathered.header;
    let thp = &header.machine.thp;
    let mode =
        |reading: &Reading<String>| reading.known().map_or_else(|| "unknown".to_owned(), |mode| plain(mode));
    [
        format!("process {}: {}", header.pid, plain(&shell::line(&header.command))),
        format!(
            "{} · {} · THP enabled {}, defrag {}",
            duration(gathered.elapsed_ns()),
            counted(gathered.threads.len() as u64, "thread"),
            mode(&thp.enabled),
            mode(&thp.defrag)
        ),
    ]
}

/// Milliseconds; a question mark if unknown.
pub fn ms(ns: Option<u64>) -> String {
    ns.map_or_else(|| "?".to_owned(), milliseconds)
}

/// Start in seconds; duration, time to safepoint and stalled time in milliseconds.
pub fn figures(gathered: &RecordingData, pause: &Pause) -> [String; 4] {
    let span = &pause.stop.span;
    [
        format!("{:.3}", since_begin_s(gathered, span.start)),
        milliseconds(span.end - span.start),
        ms(pause.time_to_safepoint.as_ref().map(|ttsp| ttsp.ns)),
        ms(pause.stalled_ns),
    ]
}

/// The parts of a pause: name, and time of threads in nanoseconds, `None` if unknown.
pub fn parts(split: &TimeByActivity) -> [(&'static str, Option<u64>); 6] {
    [
        ("compaction", split.compaction_ns),
        ("reclaim", split.reclaim_ns),
        ("zeroing, upper bound", split.zeroing_ns),
        ("first touch, upper bound", split.first_touch_ns),
        ("other system time", split.other_system_ns),
        ("user time", split.user_ns),
    ]
}

/// The parts of all pauses, as [`parts`], with a remark on the pauses in which they are unknown.
pub fn sums(explanation: &Attribution) -> Vec<(&'static str, Option<u64>, String)> {
    let unknown = |part: usize| {
        let pauses = explanation.pauses.iter();
        pauses.filter(|pause| parts(&pause.split)[part].1.is_none()).count()
    };
    let all = explanation.pauses.len();
    let reported = |(at, (what, ns)): (usize, (&'static str, Option<u64>))| match unknown(at) {
        0 => (what, ns, String::new()),
        some if some == all => (what, None, "unknown".to_owned()),
        // A zero of the known pauses is not shown: the others may have more.
        some => (what, ns.filter(|ns| *ns > 0), format!("unknown in {some} of {all} pauses")),
    };
    parts(&explanation.totals.split).into_iter().enumerate().map(reported).collect()
}

/// Number and total duration of the pauses.
pub fn totals(totals: &Totals) -> Vec<String> {
    let time_to_safepoint = match totals.time_to_safepoint_ns {
        0 => String::new(),
        ns => format!(", plus {} time to safepoint", duration(ns)),
    };
    let pauses = counted(totals.pauses, "pause");
    let mut said = vec![format!("{pauses}, {} in total{time_to_safepoint}", duration(totals.paused_ns))];
    let stalled = totals.stalled_ns + totals.time_to_safepoint_stalled_ns;
    if stalled > 0 {
        said.push(format!("for {} of this at least one thread waited for the kernel", duration(stalled)));
    }
    said
}

/// The pauses, the longest with its time to safepoint first.
pub fn longest_first(explanation: &Attribution) -> Vec<&Pause> {
    let mut order: Vec<&Pause> = explanation.pauses.iter().collect();
    order.sort_by_key(|pause| Reverse(pause.with_time_to_safepoint_ns()));
    order
}

/// The pause on which the verdict is based, or else the longest; `None` without pauses.
pub fn worst(explanation: &Attribution) -> Option<&Pause> {
    match explanation.decision.because {
        VerdictReason::HugePagesInPauses { worst, .. } => explanation.pauses.get(worst),
        _ => explanation.pauses.iter().max_by_key(|pause| pause.with_time_to_safepoint_ns()),
    }
}

/// `Young (Normal) at 12.345 s`
pub fn head(gathered: &RecordingData, pause: &Pause) -> String {
    let kind = plain(&pause.stop.kind);
    format!("{kind} at {:.3} s", since_begin_s(gathered, pause.stop.span.start))
}

/// The collector threads of a pause.
pub fn threads(gathered: &RecordingData, pause: &Pause) -> Vec<String> {
    let thread = |part: &ThreadPart| format!("{}: {}", who(gathered, part.thread), thread_part(part));
    pause.threads.iter().map(thread).collect()
}

/// The time to safepoint of a pause, and the threads that delayed it; `None` if it is too short to be listed.
pub fn listed_ttsp(gathered: &RecordingData, pause: &Pause) -> Option<(String, Vec<String>)> {
    let ttsp = pause.time_to_safepoint.as_ref().filter(|ttsp| ttsp.ns >= MIN_LISTED_TTSP_NS)?;
    let blockers = ttsp.blockers.iter().map(|(thread, wait, ns)| {
        format!("{}: {} in {}", who(gathered, *thread), duration(*ns), waiting(*wait))
    });
    Some((duration(ttsp.ns), blockers.collect()))
}

/// Waits, huge pages and page faults of a collector thread in a pause.
fn thread_part(part: &ThreadPart) -> String {
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
        said.push(counted(part.huge_pages_failed, "failed huge-page allocation"));
    }
    if part.base_faults > 0 {
        said.push(counted(part.base_faults, "base page fault"));
    }
    said.join(", ")
}

/// Waits of a thread outside of pauses.
pub fn outside(gathered: &RecordingData, at: &Outside) -> String {
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

/// Waits in kernel events compared with the kernel's delay accounting.
pub fn accounting(totals: &Totals) -> Vec<String> {
    let Some(sums) = totals.accounted.as_ref().filter(|_| !totals.found.is_empty()) else {
        return Vec::new();
    };
    let reported = |wait: Wait| {
        let accounted = sums.get(&wait).copied().unwrap_or(0);
        let found = totals.found.get(&wait).map_or(0, |sum| sum.ns);
        ((accounted, found) != (0, 0)).then(|| {
            format!(
                "{}: {} in kernel events; {} by the kernel's delay accounting",
                waiting(wait),
                duration(found),
                if accounted == 0 { "none".to_owned() } else { duration(accounted) }
            )
        })
    };
    [Wait::Compaction, Wait::Reclaim].into_iter().filter_map(reported).collect()
}

const FRAGMENTED_WARNING: &str = "; verify it on a test machine: --fragmented takes all of its memory";

/// The change, with its commands as lines for a shell.
pub fn action(change: &ProposedChange) -> Action {
    let line = |words: &Vec<String>| shell::line(words);
    let takes_all =
        change.proof.as_ref().is_some_and(|words| words.iter().any(|word| word == "--fragmented"));
    Action {
        change: sentence(change.what).to_owned() + if takes_all { FRAGMENTED_WARNING } else { "" },
        command: change.command.as_ref().map(line),
        verify: change.proof.as_ref().map(line),
    }
}

fn sentence(what: ChangeKind) -> &'static str {
    match what {
        ChangeKind::PreTouch => {
            "Use -XX:+AlwaysPreTouch with -Xms equal to -Xmx: the page faults of the heap happen before the \
             application starts, not in pauses"
        }
        ChangeKind::FixedHeap => {
            "Set -Xms equal to -Xmx: pre-touch at the start covers the initial heap only, not its growth"
        }
        ChangeKind::Defer => {
            "Set defrag=defer for the whole machine: no page fault waits; the kernel compacts in the background"
        }
        ChangeKind::DeferUnlessMadvised => {
            "Set defrag=defer+madvise for the whole machine: only page faults in memory with MADV_HUGEPAGE wait"
        }
        ChangeKind::Explicit => {
            "Use huge pages from a pool: they are allocated before the program starts, so page faults do not wait"
        }
        ChangeKind::ThpOff => {
            "Disable transparent huge pages for this process only, by hugewise run --backing base: it gets base pages"
        }
        ChangeKind::Thp => {
            "Use transparent huge pages, by hugewise run --backing thp: one page fault for each, not one per base page"
        }
    }
}

/// Restrictions of the recording, as sentences.
pub fn remarks(gathered: &RecordingData) -> Vec<String> {
    let mut said = Vec::new();
    if gathered.ending == Some(Ending::CutOff) {
        said.push("The recording is truncated: its last part is missing.".to_owned());
    }
    for (of, (count, uncounted)) in &gathered.lost {
        let how_many = match (count, uncounted) {
            (0, _) => "Some".to_owned(),
            (count, true) => format!("At least {count}"),
            (count, false) => count.to_string(),
        };
        said.push(format!("{how_many} of the {of} were lost."));
    }
    if gathered.open_stalls > 0 {
        let open = counted(gathered.open_stalls, "wait");
        said.push(format!(
            "{open} without a recorded begin or end: not counted, because the length is unknown."
        ));
    }
    if gathered.logs.iter().any(|log| !log.monotonic) {
        said.push(
            "The JVM's log uses another clock than the kernel events: its times are estimated from the times \
             at which its lines were read, and may be off by a second. Only a log with timenanos is exact."
                .to_owned(),
        );
    }
    let unread: u64 = gathered.logs.iter().map(|log| log.unread).sum();
    if unread > 0 {
        said.push(format!("{} of the JVM's log could not be parsed.", counted(unread, "line")));
    }
    if let (count @ 1.., Some(first)) = &gathered.unread {
        let lines = counted(*count, "line");
        said.push(format!("{lines} of the recording could not be parsed: {}", plain(first)));
    }
    if gathered.room.excess > 0 {
        said.push(format!(
            "The recording needs more than 512MiB of memory; {} of it were not kept.",
            counted(gathered.room.excess, "item")
        ));
    }
    for (evidence, reading) in &gathered.header.evidence {
        if let Some(reason) = reading.reason() {
            said.push(format!("Without {evidence}: {}", plain(reason)));
        }
    }
    if let Some(reason) = gathered.header.first_touch.reason() {
        said.push(format!("The cost of a first touch is unknown: {}", plain(reason)));
    }
    said.extend(gathered.notes.iter().map(|note| plain(note)));
    said
}
