//! What is said of a log, in any form.

use hugewise_jvm::gc_log::{Cpu, Place, Stamp, summary::Summary};

use super::reports::Log;
use crate::output::terminal::plain;

/// The nanoseconds of a second.
const SECOND: f64 = 1e9;

/// `1.234`, in seconds.
pub fn seconds(ns: u64) -> String {
    decimals(ns as f64 / SECOND)
}

/// `1.234`, in milliseconds.
pub fn milliseconds(ns: u64) -> String {
    decimals(ns as f64 / 1e6)
}

/// Three digits that count, and no more than three decimals.
fn decimals(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 1.0 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

/// `88,704`
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `1 pause`, `2 pauses`.
pub fn counted(number: u64, what: &str) -> String {
    format!("{} {what}{}", count(number), if number == 1 { "" } else { "s" })
}

/// `user 0.61 s, sys 0.35 s, real 1.90 s`
pub fn cpu(cpu: Cpu) -> String {
    let Cpu { user_ns, sys_ns, real_ns } = cpu;
    format!("user {} s, sys {} s, real {} s", seconds(user_ns), seconds(sys_ns), seconds(real_ns))
}

/// `at 12.345 s`
pub fn moment(stamp: Stamp) -> Option<String> {
    let at = stamp.best_ns()?;
    Some(format!("at {:.3} s", at as f64 / SECOND))
}

/// The name of a file.
pub fn file(name: &str) -> String {
    if name == "-" { "standard input".to_owned() } else { plain(name) }
}

/// `gc.log.0:17`, or the line alone where there is one file.
pub fn place(log: &Log, place: Place) -> String {
    match log.files.get(place.file) {
        Some(file) if log.files.len() > 1 => format!("{}:{}", self::file(file), place.line),
        _ => format!("line {}", place.line),
    }
}

/// What was read, in sentences.
pub fn read(log: &Log) -> Vec<String> {
    let summary = &log.summary;
    let (total_ns, cpu) = summary.totals();
    let pauses = summary.pauses();
    let mut said = vec![match pauses {
        0 => "no pause".to_owned(),
        _ => format!("{}, {} s in all", counted(pauses, "pause"), seconds(total_ns)),
    }];
    if summary.with_cpu() > 0 {
        said[0] += &format!(" · {}", self::cpu(cpu));
    }
    if let Some(span_ns) = summary.timeline.span_ns().filter(|span| *span > 0) {
        let share = 100.0 * total_ns as f64 / span_ns as f64;
        said.push(format!("{share:.2} % of the {} s that the pauses span", seconds(span_ns)));
    }
    if log.jvms > 1 {
        said.push(format!("{} JVMs wrote it, one after the other", log.jvms));
    }
    said
}

/// What there is to be said of the sums.
pub fn remarks(log: &Log) -> Vec<String> {
    let summary = &log.summary;
    let (pauses, with_cpu) = (summary.pauses() + summary.nested, summary.with_cpu());
    let mut said = Vec::new();
    if pauses > 0 && with_cpu == 0 {
        said.push(
            "The log has no CPU times, so it does not tell whether the kernel worked in these pauses. ZGC and \
             Shenandoah log none; other collectors do with -Xlog:gc*, JDK 8 with -XX:+PrintGCDetails."
                .to_owned(),
        );
    } else if with_cpu < pauses {
        let without = counted(pauses - with_cpu, "pause");
        said.push(format!("{without} without CPU times: user, sys and real are sums of the others."));
    }
    if summary.nested > 0 {
        let nested = counted(summary.nested, "pause");
        said.push(format!("{nested} within another pause: in the rows, and counted once in the sums."));
    }
    said.extend(log.ended_early.iter().map(|text| plain(text)));
    if let [first, ..] = &log.unnamed[..] {
        let more = match log.unnamed.len() {
            1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        said.push(format!("Of the same rotation, and not read: {}{more}.", plain(first)));
    }
    said
}

/// What it means that the kernel worked more than the collector, and what it does not.
pub fn meaning(summary: &Summary) -> Vec<String> {
    let suspects = &summary.suspects;
    let mut said = vec![
        format!(
            "In {}, {} s in all, the process spent more time in the kernel ({} s) than in user space ({} s). \
             A collector copies and marks, in user space; the kernel mostly gives it memory.",
            counted(suspects.count, "pause"),
            seconds(suspects.total_ns),
            seconds(suspects.cpu.sys_ns),
            seconds(suspects.cpu.user_ns),
        ),
        "It can be the kernel making room for huge pages (direct compaction). It can as well be the first touch \
         of base pages while the heap grows, zeroing huge pages, or reclaim and swap. The figures of a log are \
         the same for all of these, and they count the whole process to 10 ms; this log does not tell which."
            .to_owned(),
    ];
    let timeline = &summary.timeline;
    if suspects.count > 1 && !timeline.by_number && timeline.runs_ns.is_empty() {
        let tenth = timeline.steps.len().div_ceil(10);
        let early: u64 = timeline.steps.iter().take(tenth).map(|step| step.suspects).sum();
        said.push(format!("In the first tenth of the log's time: {} of them.", count(early)));
    }
    said
}

/// Where to look: a heading, a command where there is one, and what it tells.
pub fn next_steps() -> [(&'static str, Option<&'static str>, &'static str); 3] {
    [
        (
            "first touch",
            None,
            "ends when the heap has been used once: such pauses stand at the beginning, or where the heap \
             grows. -Xms equal to -Xmx with -XX:+AlwaysPreTouch takes it out of the pauses; if they stay, it \
             was something else.",
        ),
        (
            "the cause",
            Some("sudo hugewise record -o pauses.rec PID"),
            "while such pauses happen, and then 'hugewise report pauses.rec': it lays what the kernel did in \
             each thread to the pauses, and says which of these it was.",
        ),
        (
            "settings",
            Some("hugewise check"),
            "shows defrag, which says whether a program waits here for its huge page, and how many could be \
             had at once: where few, memory is fragmented.",
        ),
    ]
}
