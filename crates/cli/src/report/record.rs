//! What a recording rests on, and what is in it, in short.

use std::{fmt::Write, path::Path};

use hugewise_kernel::reading::Reading;
use hugewise_measure::recording::{Cause, Evidence, Header, Summary};

use crate::terminal::{Terminal, plain};

/// As many threads are listed.
const MOST: usize = 10;

/// Before it begins: what it rests on, and how much weaker it is without the rest.
pub fn beginning(header: &Header) -> String {
    let mut text = format!("hugewise: recording process {}\n", header.pid);
    for (evidence, reading) in &header.evidence {
        if let Reading::CouldNotTell { could_not_tell } = reading {
            let _ = writeln!(text, "  without {evidence}: {could_not_tell}{}", weaker(*evidence));
        }
    }
    text
}

/// What is lost with a kind of evidence.
fn weaker(evidence: Evidence) -> &'static str {
    match evidence {
        Evidence::Events => "; when a thread waited will not be known, only how long in all, if that",
        Evidence::Delays => "; how long each thread waited in all will not be known",
        Evidence::Ends => "; what threads that end soon waited for will not be known",
        Evidence::JvmLog | Evidence::Counters | Evidence::Pressure => "",
    }
}

/// At its end.
pub fn summary(summary: &Summary, file: &Path, terminal: &Terminal) -> String {
    let took = summary.last_ns.saturating_sub(summary.began_ns);
    let mut text = format!(
        "{} {}: {}, {} threads, {} lines of the JVM's log\n",
        terminal.bold("RECORDED"),
        file.display(),
        duration(took),
        summary.names.len(),
        summary.log_lines,
    );
    for cause in
        [Cause::Compaction, Cause::Reclaim, Cause::MemcgReclaim, Cause::NodeReclaim, Cause::Throttled]
    {
        let all = summary.all_stalls(cause);
        if all.count > 0 {
            let _ = writeln!(
                text,
                "  {cause}: {} times, {} in all, {} the longest",
                all.count,
                duration(all.total_ns),
                duration(all.longest_ns)
            );
        }
    }
    text.push_str(&threads(summary));
    for (evidence, (count, uncounted)) in &summary.lost {
        let more = if *uncounted { " or more" } else { "" };
        let _ = writeln!(text, "  {} {count}{more} of the {evidence}", terminal.warn("LOST"));
    }
    text
}

/// The threads that waited longest.
fn threads(summary: &Summary) -> String {
    let mut rows: Vec<_> = summary.stalls.iter().collect();
    rows.sort_by_key(|(_, stalls)| std::cmp::Reverse(stalls.total_ns));
    let mut text = String::new();
    for ((tid, cause), stalls) in rows.into_iter().take(MOST) {
        let name = summary.names.get(tid).map_or("(ended unseen)", String::as_str);
        let _ = writeln!(
            text,
            "    {:<16} {tid:>8}  {:>6} × {cause}, {} in all, {} the longest",
            plain(name),
            stalls.count,
            duration(stalls.total_ns),
            duration(stalls.longest_ns)
        );
    }
    text
}

fn duration(ns: u64) -> String {
    match ns {
        0..=999_999 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..=999_999_999 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}
