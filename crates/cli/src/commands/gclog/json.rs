//! The pauses of a log as JSON, each as it comes: the document grows, and memory does not.

use std::io::{self, Write};

use hugewise_jvm::gc_log::{
    Cpu, Pause, Stamp,
    summary::{Durations, Summary},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::reports::Log;

/// What `gclog` says, schema `hugewise.gclog/1`. Times are in seconds.
#[cfg(test)]
#[derive(Serialize, JsonSchema)]
pub struct Report {
    #[serde(flatten)]
    head: Head<'static>,
    /// In the order of the log.
    pauses: Vec<PauseRow<'static>>,
    #[serde(flatten)]
    rest: Rest,
}

#[derive(Serialize, JsonSchema)]
struct Head<'a> {
    schema: &'static str,
    /// The files, in the order in which they were read.
    files: &'a [String],
}

/// A pause of all application threads.
#[derive(Serialize, JsonSchema)]
struct PauseRow<'a> {
    /// The JVMs of the log are counted from 0.
    jvm: u32,
    /// Id of the collection, where the log has ids.
    gc_id: Option<u64>,
    /// `Young (Normal)`, `Full`, `Mark End`.
    kind: &'a str,
    /// `System.gc()`, where the log says it.
    cause: Option<&'a str>,
    /// When it began, by `clock`.
    start_s: Option<f64>,
    /// How long.
    duration_s: f64,
    /// CPU time of the process in user space, to 10 ms, where the log has it.
    user_s: Option<f64>,
    /// CPU time of the process in the kernel.
    sys_s: Option<f64>,
    /// By the clock on the wall.
    real_s: Option<f64>,
    /// It lies within another pause, and is not in the totals.
    nested: bool,
}

#[derive(Serialize, JsonSchema)]
struct Rest {
    /// What `start_s` counts from: the start of the JVM (`uptime`), that of the machine (`monotonic`),
    /// or 1970 (`unix`).
    clock: Option<Clock>,
    /// How many JVMs told a pause or a safepoint.
    jvms: u32,
    totals: Totals,
    /// By kind, in the order of their first pauses.
    kinds: Vec<KindRow>,
    safepoints: SafepointRows,
    suspects: SuspectRow,
    /// Lines that look like a pause, and could not be understood.
    unread_lines: u64,
    /// The first of them.
    unread: Vec<UnreadRow>,
    /// Files that could not be read to their end, and why.
    ended_early: Vec<String>,
}

#[derive(Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Clock {
    Uptime,
    Monotonic,
    Unix,
}

#[derive(Serialize, JsonSchema)]
struct Totals {
    pauses: u64,
    /// Those that have CPU times.
    pauses_with_cpu: u64,
    duration_s: f64,
    user_s: f64,
    sys_s: f64,
    real_s: f64,
}

#[derive(Serialize, JsonSchema)]
struct KindRow {
    kind: String,
    #[serde(flatten)]
    durations: DurationRow,
    /// Those that have CPU times.
    pauses_with_cpu: u64,
    user_s: f64,
    sys_s: f64,
    real_s: f64,
}

#[derive(Serialize, JsonSchema)]
struct DurationRow {
    count: u64,
    total_s: f64,
    /// To three digits.
    p50_s: Option<f64>,
    p99_s: Option<f64>,
    max_s: f64,
}

#[derive(Serialize, JsonSchema)]
struct SafepointRows {
    /// From the first thread that was asked to stop to the end.
    total: DurationRow,
    /// Until the last thread stood still, where the log says it.
    reaching: DurationRow,
}

/// Pauses with more time in the kernel than in user space, and 30 ms of it or more.
#[derive(Serialize, JsonSchema)]
struct SuspectRow {
    pauses: u64,
    duration_s: f64,
    user_s: f64,
    sys_s: f64,
}

#[derive(Serialize, JsonSchema)]
struct UnreadRow {
    file: String,
    line: u64,
    what: &'static str,
    text: String,
}

/// Writes the document: its head with the first pause, its end when the log has ended.
pub struct Rows<'a, W> {
    out: W,
    head: Head<'a>,
    begun: bool,
    clock: Option<Clock>,
}

impl<'a, W: Write> Rows<'a, W> {
    /// Nothing is written yet.
    pub fn new(out: W, files: &'a [String]) -> Rows<'a, W> {
        Rows { out, head: Head { schema: "hugewise.gclog/1", files }, begun: false, clock: None }
    }

    /// Writes a pause.
    pub fn pause(&mut self, pause: &Pause<'_>) -> io::Result<()> {
        if self.begun {
            self.out.write_all(b",\n")?;
        } else {
            self.clock = clock(pause.start);
            self.begin()?;
        }
        let cpu = |of: fn(Cpu) -> u64| pause.cpu.map(|cpu| seconds(of(cpu)));
        let row = PauseRow {
            jvm: pause.run,
            gc_id: pause.gc_id,
            kind: pause.kind,
            cause: pause.cause,
            start_s: pause.start.best_ns().map(seconds),
            duration_s: seconds(pause.duration_ns),
            user_s: cpu(|cpu| cpu.user_ns),
            sys_s: cpu(|cpu| cpu.sys_ns),
            real_s: cpu(|cpu| cpu.real_ns),
            nested: pause.nested,
        };
        Ok(serde_json::to_writer(&mut self.out, &row)?)
    }

    /// Writes what follows the pauses.
    pub fn end(mut self, log: &Log) -> io::Result<()> {
        if !self.begun {
            self.begin()?;
        }
        let rest = serde_json::to_string(&rest(log, self.clock))?;
        // The same object goes on.
        writeln!(self.out, "\n],\n{}", rest.trim_start_matches('{'))?;
        self.out.flush()
    }

    fn begin(&mut self) -> io::Result<()> {
        self.begun = true;
        let head = serde_json::to_string(&self.head)?;
        writeln!(self.out, "{},\n\"pauses\":[", head.trim_end_matches('}'))
    }
}

fn rest(log: &Log, clock: Option<Clock>) -> Rest {
    let summary = &log.summary;
    let (total_ns, cpu) = summary.totals();
    Rest {
        clock,
        jvms: log.jvms,
        totals: Totals {
            pauses: summary.pauses(),
            pauses_with_cpu: summary.with_cpu(),
            duration_s: seconds(total_ns),
            user_s: seconds(cpu.user_ns),
            sys_s: seconds(cpu.sys_ns),
            real_s: seconds(cpu.real_ns),
        },
        kinds: kinds(summary),
        safepoints: SafepointRows {
            total: durations(&summary.safepoints.total),
            reaching: durations(&summary.safepoints.reaching),
        },
        suspects: SuspectRow {
            pauses: summary.suspects.count,
            duration_s: seconds(summary.suspects.total_ns),
            user_s: seconds(summary.suspects.cpu.user_ns),
            sys_s: seconds(summary.suspects.cpu.sys_ns),
        },
        unread_lines: summary.unread,
        unread: summary
            .unread_lines
            .iter()
            .map(|line| UnreadRow {
                file: log.files.get(line.place.file).cloned().unwrap_or_default(),
                line: line.place.line,
                what: line.what,
                text: line.text.clone(),
            })
            .collect(),
        ended_early: log.ended_early.clone(),
    }
}

fn kinds(summary: &Summary) -> Vec<KindRow> {
    let row = |kind: &hugewise_jvm::gc_log::summary::Kind| KindRow {
        kind: kind.name.clone(),
        durations: durations(&kind.durations),
        pauses_with_cpu: kind.with_cpu,
        user_s: seconds(kind.cpu.user_ns),
        sys_s: seconds(kind.cpu.sys_ns),
        real_s: seconds(kind.cpu.real_ns),
    };
    summary.kinds.iter().map(row).collect()
}

fn durations(durations: &Durations) -> DurationRow {
    DurationRow {
        count: durations.count,
        total_s: seconds(durations.total_ns),
        p50_s: durations.quantile_ns(0.5).map(seconds),
        p99_s: durations.quantile_ns(0.99).map(seconds),
        max_s: seconds(durations.max_ns),
    }
}

fn clock(stamp: Stamp) -> Option<Clock> {
    match stamp {
        Stamp { uptime_ns: Some(_), .. } => Some(Clock::Uptime),
        Stamp { monotonic_ns: Some(_), .. } => Some(Clock::Monotonic),
        Stamp { unix_ns: Some(_), .. } => Some(Clock::Unix),
        _ => None,
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
