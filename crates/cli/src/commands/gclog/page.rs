//! The pauses of a log as a self-contained HTML page.

use hugewise_jvm::gc_log::summary::Durations;
use serde::Serialize;

use super::{plot, reports::Log, words};
use crate::output::{
    durations::{milliseconds, seconds},
    terminal::plain,
    web_page,
    words::count,
};

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
    steps: Vec<NextStep>,
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
struct NextStep {
    what: &'static str,
    command: Option<&'static str>,
    says: &'static str,
}

#[derive(Serialize)]
struct Unread {
    place: String,
    what: &'static str,
    text: String,
}

fn page(log: &Log) -> anyhow::Result<Page> {
    let summary = &log.summary;
    let sys_above_user = &summary.sys_heavy_pauses;
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
            .map(|(name, durations)| Row { name: name.to_owned(), figures: figures(durations) })
            .collect(),
        slow: slow(log),
        meaning: if sys_above_user.count > 0 { words::verdict(summary) } else { Vec::new() },
        sys_above_user: rows_of_sys_above_user(log),
        steps: words::actions()
            .into_iter()
            .map(|(what, command, says)| NextStep { what, command, says })
            .collect(),
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
    let row = |kind: &hugewise_jvm::gc_log::summary::PauseKind| {
        let mut figures = figures(&kind.durations);
        for ns in [kind.cpu.user_ns, kind.cpu.sys_ns, kind.cpu.real_ns] {
            figures.push(if kind.with_cpu > 0 { seconds(ns) } else { "?".to_owned() });
        }
        Row { name: plain(&kind.name), figures }
    };
    log.summary.kinds.iter().map(row).collect()
}

fn figures(durations: &Durations) -> Vec<String> {
    let quantile = |share| durations.quantile_ns(share).map_or_else(|| "?".to_owned(), milliseconds);
    vec![
        count(durations.count),
        seconds(durations.total_ns),
        quantile(0.5),
        quantile(0.99),
        milliseconds(durations.max_ns),
    ]
}

fn slow(log: &Log) -> Vec<Slow> {
    let worst = log.summary.safepoints.worst.iter();
    worst
        .map(|worst| Slow {
            time_to_safepoint: milliseconds(worst.time_to_safepoint_ns),
            operation: worst.operation.as_deref().map(plain).unwrap_or_default(),
            place: whereabouts(words::moment(worst.end), words::place(log, worst.place)),
        })
        .collect()
}

fn rows_of_sys_above_user(log: &Log) -> Vec<SysAboveUserRow> {
    let worst = log.summary.sys_heavy_pauses.worst.iter();
    worst
        .map(|pause| SysAboveUserRow {
            kind: plain(&pause.kind),
            cause: pause.cause.as_deref().map(plain).unwrap_or_default(),
            figures: [
                milliseconds(pause.duration_ns),
                seconds(pause.cpu.user_ns),
                seconds(pause.cpu.sys_ns),
                seconds(pause.cpu.real_ns),
            ],
            place: whereabouts(words::moment(pause.start), words::place(log, pause.place)),
        })
        .collect()
}

fn whereabouts(moment: Option<String>, place: String) -> String {
    moment.map_or_else(|| place.clone(), |moment| format!("{moment}, {place}"))
}

fn unread(log: &Log) -> Vec<Unread> {
    let lines = log.summary.unread_lines.iter();
    lines
        .map(|line| Unread { place: words::place(log, line.place), what: line.what, text: plain(&line.text) })
        .collect()
}
