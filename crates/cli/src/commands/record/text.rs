//! The evidence and the summary of a recording, as text and JSON.

use std::{collections::BTreeMap, fmt::Write, path::Path};

use hugewise_linux::{reading::Reading, units::seconds};
use hugewise_record::recording::{self, Cause, EndReason, Evidence, Header, RecordingResult, Summary};
use schemars::JsonSchema;
use serde::Serialize;

use crate::output::{
    durations::duration,
    terminal::{Terminal, plain},
    words::counted,
};

/// Largest number of rows of stalls.
const MAX_STALL_ROWS: usize = 10;
const LOST: &str = "LOST";
/// Events of successful collapses.
const COLLAPSED: [&str; 2] = ["mm_collapse_huge_page succeeded", "mm_khugepaged_collapse_file succeeded"];
/// Counters of the machine that grow when a page fault waits for a huge page or gets none.
const STALL_COUNTERS: [&str; 4] =
    ["compact_stall", "allocstall_movable", "thp_fault_fallback", "thp_split_page"];

/// Result of `hugewise record`, schema `hugewise.record/2`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RecordReport {
    /// `hugewise.record/2`.
    schema: &'static str,
    /// Path of the recording.
    file: String,
    /// Duration of the recording.
    seconds: f64,
    /// Why the recording ended.
    end_reason: EndReason,
    /// CPU time of the recorder; null if unknown.
    recorder_cpu_seconds: Option<f64>,
    /// Source of each kind of evidence, or the reason why it is missing.
    evidence: BTreeMap<Evidence, Reading<String>>,
    /// Number of threads recorded.
    threads: usize,
    /// Waiting time by thread and cause, the longest total first.
    stalls: Vec<Stall>,
    /// Huge-page allocations by thread.
    huge_pages: Vec<HugePages>,
    /// Waiting time by the kernel's delay accounting, since the start of each thread; threads that never
    /// waited are omitted.
    delays: Vec<Delays>,
    /// Number of lines of JVM logs.
    jvm_log_lines: u64,
    /// Growth of machine-wide counters during the recording.
    machine: BTreeMap<String, u64>,
    /// Evidence that was lost.
    lost: Vec<Lost>,
    /// Remarks on the recording.
    notes: Vec<String>,
}

/// Intervals in which a thread waited for one cause.
#[derive(Debug, Serialize, JsonSchema)]
struct Stall {
    tid: u32,
    /// Name of the thread; null if the thread ended before its name could be read.
    thread: Option<String>,
    cause: Cause,
    /// Number of intervals.
    count: u64,
    /// Number of intervals without a recorded begin or end, whose length is unknown.
    open: u64,
    total_seconds: f64,
    longest_seconds: f64,
}

/// Huge-page allocations of a thread.
#[derive(Debug, Serialize, JsonSchema)]
struct HugePages {
    tid: u32,
    /// Name of the thread; null if the thread ended before its name could be read.
    thread: Option<String>,
    /// Number of successful allocations.
    got: u64,
    /// Number of failed allocations.
    failed: u64,
}

/// Delay accounting of a thread.
#[derive(Debug, Serialize, JsonSchema)]
struct Delays {
    tid: u32,
    /// Name of the thread; null if the thread ended before its name could be read.
    thread: Option<String>,
    compaction_seconds: f64,
    reclaim_seconds: f64,
}

/// Lost records of one kind of evidence.
#[derive(Debug, Serialize, JsonSchema)]
struct Lost {
    of: Evidence,
    /// Number of lost records, as far as they could be counted.
    count: u64,
    /// Whether more records were lost than `count`.
    uncounted: bool,
}

impl RecordReport {
    pub fn of(recorded: &RecordingResult, file: &Path) -> RecordReport {
        let summary = &recorded.summary;
        let name = |tid: &u32| summary.names.get(tid).cloned();
        let mut stalls: Vec<Stall> = summary
            .stalls
            .iter()
            .map(|((tid, cause), all)| Stall {
                tid: *tid,
                thread: name(tid),
                cause: *cause,
                count: all.count,
                open: all.open,
                total_seconds: seconds(all.total_ns),
                longest_seconds: seconds(all.longest_ns),
            })
            .collect();
        stalls.sort_by(|one, other| other.total_seconds.total_cmp(&one.total_seconds));
        let huge_pages = summary.huge_pages.iter().map(|(tid, &recording::HugePages { got, failed })| {
            HugePages { tid: *tid, thread: name(tid), got, failed }
        });
        let delays =
            summary.delays.iter().filter(|(_, delays)| **delays != (0, 0)).map(|(tid, delays)| Delays {
                tid: *tid,
                thread: name(tid),
                compaction_seconds: seconds(delays.0),
                reclaim_seconds: seconds(delays.1),
            });
        let lost = summary.lost.iter().map(|(&of, &(count, uncounted))| Lost { of, count, uncounted });
        RecordReport {
            schema: "hugewise.record/2",
            file: file.display().to_string(),
            seconds: seconds(summary.last_ns.saturating_sub(summary.began_ns)),
            end_reason: recorded.reason,
            recorder_cpu_seconds: summary.recorder_cpu_ns.map(seconds),
            evidence: summary.evidence.clone(),
            threads: summary.names.len(),
            stalls,
            huge_pages: huge_pages.collect(),
            delays: delays.collect(),
            jvm_log_lines: summary.log_lines,
            machine: summary.machine.clone(),
            lost: lost.collect(),
            notes: summary.notes.clone(),
        }
    }
}

/// The lines printed at the start: process, file, and missing evidence.
pub fn beginning(header: &Header, file: &Path) -> String {
    let program = header.command.first().map_or_else(String::new, |program| format!(" ({})", plain(program)));
    let mut text = format!("hugewise: recording process {}{program} into {}\n", header.pid, file.display());
    let events = header.evidence.get(&Evidence::Events).and_then(Reading::known);
    if events.is_some_and(|source| source.contains("for this process alone")) {
        text.push_str("hugewise: tracefs was not mounted; it is mounted for the recorder only\n");
    }
    text + &missing(header)
}

/// The missing evidence, with the reasons and consequences.
pub fn missing(header: &Header) -> String {
    let mut text = String::new();
    for (evidence, reading) in &header.evidence {
        if let Reading::Unknown { unknown } = reading {
            let _ = writeln!(text, "hugewise: without {evidence}: {unknown}");
            let _ = writeln!(text, "          {}", weaker(*evidence));
        }
    }
    text
}

/// The consequence of missing evidence.
fn weaker(evidence: Evidence) -> &'static str {
    match evidence {
        Evidence::Events => "it is unknown when a thread waited; at best, its total waiting time is known",
        Evidence::Delays => "the kernel's totals of the waiting time of each thread are missing",
        Evidence::Ends => "waits of threads that exit between two samples are not recorded",
        Evidence::JvmLog => "the JVM's pauses are unknown",
        Evidence::Counters => "the machine-wide counters that support the other evidence are missing",
        Evidence::Pressure => "no other evidence depends on it",
    }
}

/// The summary at the end.
pub fn text(recorded: &RecordingResult, file: &Path, terminal: &Terminal) -> String {
    let summary = &recorded.summary;
    let took = summary.last_ns.saturating_sub(summary.began_ns);
    let recorded = format!(
        "{} · {} · {} · {} of the JVM's log",
        file.display(),
        duration(took),
        counted(summary.names.len() as u64, "thread"),
        counted(summary.log_lines, "line")
    );
    let mut rows = vec![("RECORDED", recorded)];
    rows.extend(summary.recorder_cpu_ns.map(|ns| ("", format!("recorder: {} of CPU time", duration(ns)))));
    rows.extend(below("STALLS", stalls(summary)));
    rows.extend(below("HUGE PAGES", huge_pages(summary)));
    let counters: Vec<String> = STALL_COUNTERS
        .iter()
        .filter_map(|name| Some(format!("{name} +{}", summary.machine.get(*name)?)))
        .collect();
    if !counters.is_empty() {
        rows.push(("MACHINE", format!("{} (all processes)", counters.join(", "))));
    }
    for (evidence, (count, uncounted)) in &summary.lost {
        let how_many = match (count, uncounted) {
            (0, _) => "some of".to_owned(),
            (count, true) => format!("at least {count} of"),
            (count, false) => format!("{count} of"),
        };
        rows.push((LOST, format!("{how_many} the {evidence}")));
    }
    rows.extend(summary.notes.iter().map(|note| ("NOTE", plain(note))));
    rows.iter().map(|(head, text)| row(terminal, head, text)).collect()
}

/// Rows of which only the first has the heading.
fn below(heading: &str, texts: Vec<String>) -> impl Iterator<Item = (&str, String)> {
    texts.into_iter().enumerate().map(move |(n, text)| (if n == 0 { heading } else { "" }, text))
}

fn row(terminal: &Terminal, head: &str, text: &str) -> String {
    let gap = " ".repeat(12usize.saturating_sub(head.len()));
    let head = if head == LOST { terminal.warn(head) } else { terminal.bold(head) };
    format!("{head}{gap}{text}\n")
}

/// The threads with the longest total waits, from kernel events or, without these, from delay accounting.
fn stalls(summary: &Summary) -> Vec<String> {
    let has_events = summary.evidence.get(&Evidence::Events).is_some_and(|reading| reading.known().is_some());
    let name = |tid: &u32| format!("{} {tid}", plain(summary.names.get(tid).map_or("?", String::as_str)));
    let mut rows: Vec<(u64, String)> = Vec::new();
    for ((tid, cause), all) in &summary.stalls {
        let open = if all.open > 0 { format!(", {} of unknown length", all.open) } else { String::new() };
        let text = format!(
            "{:<24} {} in {}, the longest {}{open}: {cause}",
            name(tid),
            duration(all.total_ns),
            counted(all.count, "interval"),
            duration(all.longest_ns)
        );
        rows.push((all.total_ns, text));
    }
    if !has_events {
        for (tid, (compaction, reclaim)) in &summary.delays {
            for (ns, cause) in [(compaction, Cause::Compaction), (reclaim, Cause::Reclaim)] {
                if *ns > 0 {
                    rows.push((*ns, format!("{:<24} {} in total: {cause}", name(tid), duration(*ns))));
                }
            }
        }
    }
    rows.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
    let left = rows.len().saturating_sub(MAX_STALL_ROWS);
    let mut texts: Vec<String> = rows.into_iter().take(MAX_STALL_ROWS).map(|(_, text)| text).collect();
    if left > 0 {
        texts.push(format!("and {left} more rows in the recording"));
    }
    if texts.is_empty() {
        let none = "none: no thread waited for compaction or reclaim";
        texts.push(if has_events { none } else { "unknown" }.to_owned());
    }
    texts
}

fn huge_pages(summary: &Summary) -> Vec<String> {
    let mut texts = Vec::new();
    let got: u64 = summary.huge_pages.values().map(|pages| pages.got).sum();
    let failed: u64 = summary.huge_pages.values().map(|pages| pages.failed).sum();
    if got + failed > 0 {
        texts.push(format!("allocations: {got} got, {failed} failed"));
    }
    let collapsed: u64 = summary
        .collapses
        .iter()
        .filter(|((_, what), _)| COLLAPSED.contains(&what.as_str()))
        .map(|(_, count)| count)
        .sum();
    let event_count: u64 = summary.collapses.values().sum();
    if event_count > 0 {
        texts.push(format!("{collapsed} collapsed in {event_count} events of khugepaged or MADV_COLLAPSE"));
    }
    texts
}

#[cfg(test)]
mod tests {
    use hugewise_record::recording::Stalls;

    use super::*;
    use crate::output::terminal::Color;

    fn recorded(summary: Summary) -> RecordingResult {
        RecordingResult { summary, status: None, reason: EndReason::ProcessEnded }
    }

    fn reported(summary: Summary) -> String {
        text(&recorded(summary), Path::new("a.rec"), &Terminal::new(Color::Never))
    }

    #[test]
    fn the_worst_thread_stands_first_and_losses_are_reported() {
        let mut summary = Summary::default();
        summary.evidence.insert(Evidence::Events, Reading::Known("here".to_owned()));
        (summary.last_ns, summary.log_lines) = (8_500_000_000, 640);
        summary.names.insert(7, "GC\u{1b}[31m".to_owned());
        for (tid, total_ns, open) in [(7, 6_107_000_000, 0), (8, 467_000_000, 1)] {
            let all = Stalls { count: 3, open, total_ns, longest_ns: total_ns / 2 };
            summary.stalls.insert((tid, Cause::Compaction), all);
        }
        summary.lost.insert(Evidence::Events, (37, false));
        summary.machine.insert("compact_stall".to_owned(), 6);
        assert_eq!(
            reported(summary),
            "RECORDED    a.rec · 8.50 s · 1 thread · 640 lines of the JVM's log\n\
             STALLS      GC\u{fffd}[31m 7                6.11 s in 3 intervals, the longest 3.05 s: compaction\n            \
             ? 8                      467.0 ms in 3 intervals, the longest 233.5 ms, 1 of unknown length: compaction\n\
             MACHINE     compact_stall +6 (all processes)\n\
             LOST        37 of the kernel events\n"
        );
    }

    #[test]
    fn no_events_are_not_no_stalls() {
        let mut summary = Summary::default();
        assert!(reported(summary.clone()).contains("STALLS      unknown"));
        summary.delays.insert(7, (2_000_000, 0));
        assert!(reported(summary.clone()).contains("2.0 ms in total: compaction"));
        summary.evidence.insert(Evidence::Events, Reading::Known("here".to_owned()));
        summary.delays.clear();
        assert!(reported(summary).contains("none: no thread waited"));
    }
}
