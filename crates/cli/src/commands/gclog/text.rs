//! The pauses of a log as text.

use std::fmt;

use comfy_table::Table;
use hugewise_jvm::gc_log::summary::{ListedPause, PauseKind};

use super::{reports::Log, words};
use crate::output::{
    durations::milliseconds,
    layout::Page,
    table::table,
    terminal::{Terminal, plain},
    words::{count, shortened},
};

/// Longest name of a kind in the table, in characters.
const MAX_KIND_CHARS: usize = 44;
/// Largest number of lines shown that could not be parsed.
const MAX_UNPARSED_LINES: usize = 5;
/// Largest number of safepoints listed by time to safepoint.
const MAX_SLOW_SAFEPOINTS: usize = 3;
/// Shortest time to safepoint that is listed, in nanoseconds.
const MIN_LISTED_TTSP_NS: u64 = 10_000_000;

pub fn text(log: &Log, terminal: &Terminal) -> Result<String, fmt::Error> {
    let mut page = Page::new(terminal);
    for (n, file) in log.files.iter().enumerate() {
        page.line(if n == 0 { "LOG" } else { "" }, words::file(file))?;
    }
    page.list("", words::totals(log))?;
    if !log.summary.kinds.is_empty() {
        page.line("", "")?;
        page.table(&pauses(&log.summary.kinds))?;
    }
    page.section("NOTE", &words::remarks(log))?;
    safepoints(&mut page, log)?;
    stalls(&mut page, log)?;
    sys_above_user(&mut page, log, terminal)?;
    waiting(&mut page, log, terminal)?;
    unread(&mut page, log, terminal)?;
    Ok(page.into_text())
}

fn pauses(kinds: &[PauseKind]) -> Table {
    let cpu_known = kinds.iter().any(|kind| kind.with_cpu > 0);
    let mut headings = vec!["pause", "count", "total s", "p50 ms", "p99 ms", "max ms"];
    if cpu_known {
        headings.extend(["user s", "sys s", "real s"]);
    }
    let mut table = table(&headings);
    for kind in kinds {
        let mut row = vec![shortened(&plain(&kind.name), MAX_KIND_CHARS)];
        row.extend(words::figures(&kind.durations));
        if cpu_known {
            row.extend(words::cpu_figures(kind));
        }
        table.add_row(row);
    }
    table
}

fn safepoints(page: &mut Page<'_>, log: &Log) -> fmt::Result {
    let safepoints = &log.summary.safepoints;
    if safepoints.total.count == 0 {
        return Ok(());
    }
    let mut table = table(&["safepoints", "count", "total s", "p50 ms", "p99 ms", "max ms"]);
    for (name, durations) in
        [("total", &safepoints.total), ("time to safepoint", &safepoints.time_to_safepoint)]
    {
        if durations.count > 0 {
            let mut row = vec![name.to_owned()];
            row.extend(words::figures(durations));
            table.add_row(row);
        }
    }
    page.line("", "")?;
    page.table(&table)?;
    let slow: Vec<_> =
        safepoints.worst.iter().filter(|worst| worst.time_to_safepoint_ns >= MIN_LISTED_TTSP_NS).collect();
    for (n, worst) in slow.iter().take(MAX_SLOW_SAFEPOINTS).enumerate() {
        let ms = milliseconds(worst.time_to_safepoint_ns);
        let of = worst.operation.as_deref().map(|operation| format!(" for {}", plain(operation)));
        let at = words::moment(worst.end).map(|at| format!(" {at}")).unwrap_or_default();
        let place = words::place(log, worst.place);
        let said = format!("{ms} ms{}{at}, {place}", of.unwrap_or_default());
        page.line(if n == 0 { "TTSP" } else { "" }, said)?;
    }
    if !slow.is_empty() {
        page.wrapped(
            "",
            "These are the longest times to safepoint. A thread that waits in the kernel for a huge page delays \
             all others; so does a long loop, or too few CPUs.",
        )?;
    }
    Ok(())
}

fn sys_above_user(page: &mut Page<'_>, log: &Log, terminal: &Terminal) -> fmt::Result {
    let sys_above_user = &log.summary.sys_heavy_pauses;
    if sys_above_user.count == 0 {
        return Ok(());
    }
    page.line("", "")?;
    let said = match sys_above_user.count {
        1 => "1 pause has more system time than user time".to_owned(),
        n => format!("{} pauses have more system time than user time; largest sys:", count(n)),
    };
    page.line("SYS > USER", terminal.warn(&said))?;
    page.table(&worst(log, &sys_above_user.worst))?;
    page.section("VERDICT", &words::verdict(&log.summary))?;
    steps(page, &words::actions(), terminal)
}

fn steps(page: &mut Page<'_>, steps: &[words::NextStep], terminal: &Terminal) -> fmt::Result {
    page.line("", "")?;
    for (n, step) in steps.iter().enumerate() {
        let title = terminal.bold(&format!("{}. {}", n + 1, step.what));
        page.line(if n == 0 { "ACTIONS" } else { "" }, title)?;
        if let Some(command) = step.command {
            page.line("", terminal.good(&format!("$ {command}")))?;
        }
        page.wrapped("", step.says)?;
    }
    Ok(())
}

/// Pauses that mostly wait.
fn waiting(page: &mut Page<'_>, log: &Log, terminal: &Terminal) -> fmt::Result {
    let waiting = &log.summary.waiting_pauses;
    if waiting.count == 0 {
        return Ok(());
    }
    page.line("", "")?;
    let said = match waiting.count {
        1 => "1 pause has far more wall-clock time than CPU time".to_owned(),
        n => format!("{} pauses have far more wall-clock time than CPU time; longest waits:", count(n)),
    };
    page.line("WAITING", terminal.warn(&said))?;
    page.table(&worst(log, &waiting.worst))?;
    page.section("VERDICT", &words::waiting(waiting))?;
    steps(page, &words::waiting_actions(), terminal)
}

/// Waits of single threads.
fn stalls(page: &mut Page<'_>, log: &Log) -> fmt::Result {
    if log.summary.stalls.is_empty() {
        return Ok(());
    }
    let mut table = table(&["stalls of threads", "count", "total s", "p50 ms", "p99 ms", "max ms"]);
    for (kind, durations) in &log.summary.stalls {
        let mut row = vec![(*kind).to_owned()];
        row.extend(words::figures(durations));
        table.add_row(row);
    }
    page.line("", "")?;
    page.table(&table)?;
    for (n, worst) in log.summary.worst_stalls.iter().take(MAX_SLOW_SAFEPOINTS).enumerate() {
        let at = words::whereabouts(log, worst.end, worst.place);
        let said = format!("{} ms of {}, {at}", milliseconds(worst.duration_ns), plain(&worst.thread));
        page.line(if n == 0 { "LONGEST" } else { "" }, said)?;
    }
    let paces = log.summary.stalls.iter().all(|(kind, _)| *kind == "Allocation Pacing");
    let (why, flags) = if paces {
        ("Threads allocated faster than the collector freed memory", "-XX:ConcGCThreads")
    } else {
        (
            "The heap was full before the collector had freed memory",
            "-XX:ConcGCThreads and -XX:ZAllocationSpikeTolerance",
        )
    };
    let advice = format!(
        "{why}: raise -Xmx, or {flags}. First touch of new heap memory can delay the collector, too: \
         -XX:+AlwaysPreTouch with -Xms equal to -Xmx."
    );
    page.wrapped("", &advice)
}

fn worst(log: &Log, sys_above_user: &[ListedPause]) -> Table {
    let mut table = table(&["pause", "ms", "user s", "sys s", "real s", "where"]);
    for pause in sys_above_user {
        let mut row = vec![shortened(&plain(&pause.kind), MAX_KIND_CHARS)];
        row.extend(words::pause_figures(pause));
        row.push(words::whereabouts(log, pause.start, pause.place));
        table.add_row(row);
    }
    table
}

fn unread(page: &mut Page<'_>, log: &Log, terminal: &Terminal) -> fmt::Result {
    let summary = &log.summary;
    if summary.unread == 0 {
        return Ok(());
    }
    page.line("", "")?;
    let lines = match summary.unread {
        1 => "1 line looks like a pause but could".to_owned(),
        n => format!("{} lines look like a pause but could", count(n)),
    };
    let ends_are_missing = summary.unread_lines.iter().all(|line| line.what.ends_with("without its end"));
    let why = if ends_are_missing { "truncated" } else { "damaged, or in an unknown form" };
    page.wrapped("UNPARSED", &format!("{lines} not be parsed: {why}"))?;
    for line in summary.unread_lines.iter().take(MAX_UNPARSED_LINES) {
        let text = plain(&line.text);
        let text = match text.as_str() {
            "" => String::new(),
            text => format!(": {}", terminal.dim(&shortened(text, 60))),
        };
        page.line("", format!("{}, {}{text}", words::place(log, line.place), line.what))?;
    }
    if summary.unread > MAX_UNPARSED_LINES as u64 {
        page.line("", "…")?;
    }
    Ok(())
}
