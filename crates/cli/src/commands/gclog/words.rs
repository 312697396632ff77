//! Figures and sentences shared by the text and the HTML page.

use hugewise_jvm::gc_log::{
    Cpu, LogPosition, Stamp,
    summary::{Durations, ListedPause, ListedPauses, PauseKind, Summary},
};
use serde::Serialize;

use super::reports::Log;
use crate::output::{
    durations::{milliseconds, seconds},
    terminal::plain,
    words::{count, counted},
};

/// `user 0.61 s, sys 0.35 s, real 1.90 s`
pub fn cpu(cpu: Cpu) -> String {
    let Cpu { user_ns, sys_ns, real_ns } = cpu;
    format!("user {} s, sys {} s, real {} s", seconds(user_ns), seconds(sys_ns), seconds(real_ns))
}

/// Count, total in seconds, and median, 99th percentile and maximum in milliseconds.
pub fn figures(durations: &Durations) -> [String; 5] {
    let quantile = |share| durations.quantile_ns(share).map_or_else(|| "?".to_owned(), milliseconds);
    [
        count(durations.count),
        seconds(durations.total_ns),
        quantile(0.5),
        quantile(0.99),
        milliseconds(durations.max_ns),
    ]
}

/// User, system and real time in seconds.
pub fn cpu_figures(kind: &PauseKind) -> [String; 3] {
    let Cpu { user_ns, sys_ns, real_ns } = kind.cpu;
    [user_ns, sys_ns, real_ns].map(|ns| if kind.with_cpu > 0 { seconds(ns) } else { "?".to_owned() })
}

/// Duration in milliseconds; user, system and real time in seconds.
pub fn pause_figures(pause: &ListedPause) -> [String; 4] {
    let Cpu { user_ns, sys_ns, real_ns } = pause.cpu;
    [milliseconds(pause.duration_ns), seconds(user_ns), seconds(sys_ns), seconds(real_ns)]
}

/// `at 12.345 s`
pub fn moment(stamp: Stamp) -> Option<String> {
    let at = stamp.best_ns()?;
    Some(format!("at {:.3} s", at as f64 / 1e9))
}

pub fn file(name: &str) -> String {
    if name == "-" { "standard input".to_owned() } else { plain(name) }
}

/// `gc.log.0:17`, or `line 17` if there is a single file.
pub fn place(log: &Log, place: LogPosition) -> String {
    match log.files.get(place.file) {
        Some(file) if log.files.len() > 1 => format!("{}:{}", self::file(file), place.line),
        _ => format!("line {}", place.line),
    }
}

/// `at 12.345 s, gc.log.0:17`
pub fn whereabouts(log: &Log, stamp: Stamp, position: LogPosition) -> String {
    let place = place(log, position);
    moment(stamp).map_or_else(|| place.clone(), |moment| format!("{moment}, {place}"))
}

/// Totals of the pauses, as sentences.
pub fn totals(log: &Log) -> Vec<String> {
    let summary = &log.summary;
    let (total_ns, cpu) = summary.totals();
    let pauses = summary.pauses();
    let mut said = vec![match pauses {
        0 => "no pause".to_owned(),
        _ => format!("{}, {} s in total", counted(pauses, "pause"), seconds(total_ns)),
    }];
    for (kind, durations) in &summary.stalls {
        let stalls = counted(durations.count, &kind.to_lowercase());
        said.push(format!(
            "{stalls} of threads, {} s in total, at most {} ms",
            seconds(durations.total_ns),
            milliseconds(durations.max_ns)
        ));
    }
    if summary.with_cpu() > 0 {
        said[0] += &format!(" · {}", self::cpu(cpu));
    }
    if let Some(span_ns) = summary.timeline.span_ns().filter(|span| *span > 0) {
        let share = 100.0 * total_ns as f64 / span_ns as f64;
        said.push(format!("{share:.2} % of the {} s from the first to the last pause", seconds(span_ns)));
    }
    if log.jvms > 1 {
        said.push(format!("written by {} JVMs, one after the other", log.jvms));
    }
    said
}

/// Restrictions of the totals, as sentences.
pub fn remarks(log: &Log) -> Vec<String> {
    let summary = &log.summary;
    let (pauses, with_cpu) = (summary.pauses() + summary.nested, summary.with_cpu());
    let mut said = Vec::new();
    if pauses > 0 && with_cpu == 0 {
        said.push(
            "The log has no CPU times: the system time of these pauses is unknown. ZGC and Shenandoah log no CPU \
             times; other collectors do with -Xlog:gc*, JDK 8 with -XX:+PrintGCDetails."
                .to_owned(),
        );
    } else if with_cpu < pauses {
        let without = counted(pauses - with_cpu, "pause");
        said.push(format!("{without} without CPU times: user, sys and real are the totals of the others."));
    }
    if summary.nested > 0 {
        let nested = counted(summary.nested, "pause");
        said.push(format!("{nested} within another pause: listed in the rows, counted once in the totals."));
    }
    if summary.stalls.iter().any(|(kind, _)| *kind != "Allocation Pacing") {
        said.push(
            "A stall is a pause of one thread: it waited until the collector had freed memory. ZGC logs its own pauses, \
             which are short, only with -Xlog:gc* or -Xlog:gc,gc+phases."
                .to_owned(),
        );
    }
    if !log.decoded.is_empty() {
        said.push(format!("Taken off the lines before they were read: {}.", log.decoded.join(", ")));
    }
    said.extend(log.ended_early.iter().map(|text| plain(text)));
    if let [first, ..] = &log.unnamed[..] {
        let more = match log.unnamed.len() {
            1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        said.push(format!("Other files of this rotation were not read: {}{more}.", plain(first)));
    }
    said
}

/// The verdict on pauses with more system time than user time.
pub fn verdict(summary: &Summary) -> Vec<String> {
    let sys_above_user = &summary.sys_heavy_pauses;
    let mut said = vec![
        format!(
            "System time ({} s) exceeds user time ({} s) in {}, {} s in total. A collector copies and marks objects \
             in user space; most of its system time is memory allocation.",
            seconds(sys_above_user.cpu.sys_ns),
            seconds(sys_above_user.cpu.user_ns),
            counted(sys_above_user.count, "pause"),
            seconds(sys_above_user.total_ns),
        ),
        "Possible causes are direct compaction for huge pages, first touch of base pages while the heap grows, \
         zeroing of huge pages, reclaim or swap, also of one NUMA node while others have free memory \
         (vm.zone_reclaim_mode), and NUMA balancing. They look the same in a log, which counts CPU time for the \
         whole process in steps of 10 ms: the cause is unknown."
            .to_owned(),
    ];
    let timeline = &summary.timeline;
    if sys_above_user.count > 1 && !timeline.by_number && timeline.runs_ns.is_empty() {
        let tenth = timeline.steps.len().div_ceil(10);
        let early: u64 = timeline.steps.iter().take(tenth).map(|step| step.sys_heavy_pauses).sum();
        said.push(format!("{} of these pauses began in the first tenth of the time.", count(early)));
    }
    said
}

/// The verdict on pauses that mostly wait.
pub fn waiting(waiting: &ListedPauses) -> Vec<String> {
    let Cpu { user_ns, sys_ns, .. } = waiting.cpu;
    vec![
        format!(
            "{}, {} s in total, used {} s of CPU time: for at least {} s no thread of the JVM ran. Neither compaction nor \
             first touch nor zeroing of huge pages is the cause: they cost system time.",
            counted(waiting.count, "pause"),
            seconds(waiting.total_ns),
            seconds(user_ns.saturating_add(sys_ns)),
            seconds(waiting.waiting_ns),
        ),
        "Possible causes are a write of the log to a busy disk, pages read from swap or a file, a stopped or \
         throttled container (freezer, CPU quota), and a virtual machine that its host stopped or that waited for a CPU \
         (steal)."
            .to_owned(),
    ]
}

/// Actions for pauses that mostly wait.
pub fn waiting_actions() -> [NextStep; 2] {
    [
        NextStep {
            what: "Exclude the log's disk and swap",
            command: Some("vmstat 1"),
            says: "Write the log to memory (-Xlog:gc*:file=/dev/shm/gc.log), and look at si, wa and st while such pauses occur; \
                   cpu.stat of the control group counts nr_throttled.",
        },
        NextStep {
            what: "Record the cause",
            command: Some("sudo hugewise record -o pauses.rec PID"),
            says: "'hugewise report pauses.rec' names the waits of each pause that the kernel accounts for.",
        },
    ]
}

/// An action that finds the cause.
#[derive(Serialize)]
pub struct NextStep {
    pub what: &'static str,
    pub command: Option<&'static str>,
    pub says: &'static str,
}

pub fn actions() -> [NextStep; 3] {
    [
        NextStep {
            what: "Exclude first touch",
            command: None,
            says: "First touch causes pauses only at the start and when the heap grows. -Xms equal to -Xmx with \
                   -XX:+AlwaysPreTouch removes these pauses; pauses that remain have another cause.",
        },
        NextStep {
            what: "Record the cause",
            command: Some("sudo hugewise record -o pauses.rec PID"),
            says: "Run it while such pauses occur, then 'hugewise report pauses.rec', which attributes the time of \
                   each pause to its causes.",
        },
        NextStep {
            what: "Check the settings",
            command: Some("hugewise check"),
            says: "It shows defrag, which decides whether page faults wait for huge pages, and how many huge pages \
                   are available without compaction; few of them mean that memory is fragmented.",
        },
    ]
}
