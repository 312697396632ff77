//! The pauses of a log as a self-contained HTML page.

use hugewise_jvm::gc_log::summary::{ListedPause, PauseKind, Summary, UnparsedLine, WorstSafepoint};
use serde::Serialize;

use super::{plot, reports::Log, words};
use crate::output::{durations::milliseconds, terminal::plain, web_page};

/// Widths of the plots in pixels: for wide and for narrow screens.
const WIDTHS: [u32; 2] = [1100, 340];

/// The page. All text from the log is escaped; the page has no scripts.
pub fn html(log: &Log) -> anyhow::Result<String> {
    web_page::render(include_str!("page.html"), page(log)?)
}

#[derive(Serialize)]
struct Page {
    version: &'static str,
    files: Vec<String>,
    read: Vec<String>,
    remarks: Vec<String>,
    plots: Vec<Plot>,
    kinds: Vec<Row>,
    safepoints: Vec<Row>,
    slow: Vec<Slow>,
    meaning: Vec<String>,
    sys_above_user: Vec<SysAboveUserRow>,
    steps: [words::NextStep; 3],
    unread_lines: u64,
    unread: Vec<Unread>,
}

#[derive(Serialize)]
struct Plot {
    title: &'static str,
    wide: String,
    narrow: String,
}

#[derive(Serialize)]
struct Row {
    name: String,
    figures: Vec<String>,
}

#[derive(Serialize)]
struct Slow {
    time_to_safepoint: String,
    operation: String,
    place: String,
}

#[derive(Serialize)]
struct SysAboveUserRow {
    kind: String,
    cause: String,
    figures: [String; 4],
    place: String,
}

#[derive(Serialize)]
struct Unread {
    place: String,
    what: &'static str,
    text: String,
}

fn page(log: &Log) -> anyhow::Result<Page> {
    let summary = &log.summary;
    let safepoints =
        [("total", &summary.safepoints.total), ("time to safepoint", &summary.safepoints.time_to_safepoint)];
    Ok(Page {
        version: env!("CARGO_PKG_VERSION"),
        files: log.files.iter().map(|file| words::file(file)).collect(),
        read: words::totals(log),
        remarks: words::remarks(log),
        plots: plots(log)?,
        kinds: kinds(log),
        safepoints: safepoints
            .into_iter()
            .filter(|(_, durations)| durations.count > 0)
            .map(|(name, durations)| Row { name: name.to_owned(), figures: words::figures(durations).into() })
            .collect(),
        slow: slow(log),
        meaning: meaning(summary),
        sys_above_user: sys_above_user(log),
        steps: words::actions(),
        unread_lines: summary.unread,
        unread: unread(log),
    })
}

fn plots(log: &Log) -> anyhow::Result<Vec<Plot>> {
    let (summary, [wide, narrow]) = (&log.summary, WIDTHS);
    let timeline = &summary.timeline;
    let mut plots = Vec::new();
    if summary.pauses() > 0 {
        let (wide, narrow) = (plot::longest(timeline, wide)?, plot::longest(timeline, narrow)?);
        plots.push(Plot { title: "Longest pause over time", wide, narrow });
    }
    if summary.with_cpu() > 0 {
        let (wide, narrow) = (plot::cpu(timeline, wide)?, plot::cpu(timeline, narrow)?);
        plots.push(Plot { title: "CPU time in pauses over time", wide, narrow });
    }
    Ok(plots)
}

fn kinds(log: &Log) -> Vec<Row> {
    let row = |kind: &PauseKind| Row {
        name: plain(&kind.name),
        figures: words::figures(&kind.durations).into_iter().chain(words::cpu_figures(kind)).collect(),
    };
    log.summary.kinds.iter().map(row).collect()
}

fn slow(log: &Log) -> Vec<Slow> {
    let row = |worst: &WorstSafepoint| Slow {
        time_to_safepoint: milliseconds(worst.time_to_safepoint_ns),
        operation: worst.operation.as_deref().map(plain).unwrap_or_default(),
        place: words::whereabouts(log, worst.end, worst.place),
    };
    log.summary.safepoints.worst.iter().map(row).collect()
}

fn sys_above_user(log: &Log) -> Vec<SysAboveUserRow> {
    let row = |pause: &ListedPause| SysAboveUserRow {
        kind: plain(&pause.kind),
        cause: pause.cause.as_deref().map(plain).unwrap_or_default(),
        figures: words::pause_figures(pause),
        place: words::whereabouts(log, pause.start, pause.place),
    };
    log.summary.sys_heavy_pauses.worst.iter().map(row).collect()
}

fn unread(log: &Log) -> Vec<Unread> {
    let row = |line: &UnparsedLine| Unread {
        place: words::place(log, line.place),
        what: line.what,
        text: plain(&line.text),
    };
    log.summary.unread_lines.iter().map(row).collect()
}

/// The verdicts.
fn meaning(summary: &Summary) -> Vec<String> {
    let mut said = Vec::new();
    if summary.sys_heavy_pauses.count > 0 {
        said.extend(words::verdict(summary));
    }
    if summary.waiting_pauses.count > 0 {
        said.extend(words::waiting(&summary.waiting_pauses));
    }
    said
}
