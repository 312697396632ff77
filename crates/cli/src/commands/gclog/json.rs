//! The pauses of a log as JSON, each written as it is read: memory does not grow with the log.

use std::io::{self, Write};

use hugewise_jvm::gc_log::{
    Cpu, Pause, Stamp,
    summary::{Durations, PauseKind},
};
use hugewise_linux::units::seconds;
use schemars::JsonSchema;
use serde::Serialize;

use super::reports::Log;

/// Result of `hugewise gclog`, schema `hugewise.gclog/2`. Times are in seconds.
#[cfg(test)]
#[derive(Serialize, JsonSchema)]
pub struct GclogReport {
    #[serde(flatten)]
    head: Head<'static>,
    /// In the order of the log.
    pauses: Vec<PauseRow<'static>>,
    #[serde(flatten)]
    rest: LogTotals,
}

#[derive(Serialize, JsonSchema)]
struct Head<'a> {
    schema: &'static str,
    /// Files in the order in which they were read.
    files: &'a [String],
}

/// A pause of all application threads.
#[derive(Serialize, JsonSchema)]
struct PauseRow<'a> {
    /// Number of the JVM that wrote the pause, from 0.
    jvm: u32,
    /// Id of the collection; null if the log has no ids.
    gc_id: Option<u64>,
    /// Kind of the pause, such as `Young (Normal)`, `Full` or `Mark End`.
    kind: &'a str,
    /// Cause of the collection, such as `System.gc()`; null if the log does not contain it.
    cause: Option<&'a str>,
    /// Start by `clock`, in seconds; null if the log has no time stamps.
    start_seconds: Option<f64>,
    /// Duration in seconds.
    duration_seconds: f64,
    /// CPU time of the process in user space, in seconds, in steps of 10 ms; null if not logged.
    user_seconds: Option<f64>,
    /// CPU time of the process in the kernel, in seconds, in steps of 10 ms; null if not logged.
    sys_seconds: Option<f64>,
    /// Wall-clock time of the pause in seconds, in steps of 10 ms; null if not logged.
    real_seconds: Option<f64>,
    /// Whether the pause lies within another one; nested pauses are not in the totals.
    nested: bool,
}

#[derive(Serialize, JsonSchema)]
struct LogTotals {
    /// Zero of `start_seconds`: the start of the JVM (`uptime`), the boot of the machine (`monotonic`), or 1970
    /// (`unix`); null if the log has no time stamps.
    clock: Option<Clock>,
    /// Number of JVMs that logged a pause or a safepoint.
    jvms: u32,
    /// Totals of all pauses that are not nested.
    totals: Totals,
    /// Totals by kind, in the order of the first pause of each kind.
    kinds: Vec<KindRow>,
    /// Safepoints of all operations, not only of collections.
    safepoints: SafepointRows,
    /// Pauses with more system time than user time.
    sys_above_user: SysAboveUserRow,
    /// Pauses in which no thread ran for at least half of the time.
    waiting: WaitingRow,
    /// Waits of single threads for memory, by kind.
    stalls: Vec<StallRow>,
    /// What was taken off the lines before they were read.
    decoded: Vec<&'static str>,
    /// Number of lines that look like a pause but could not be parsed.
    unread_lines: u64,
    /// The first of these lines.
    unread: Vec<UnreadRow>,
    /// Files that could not be read to their end, with the reason.
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
    /// Number of pauses with CPU times; `user_seconds`, `sys_seconds` and `real_seconds` are the totals of these.
    pauses_with_cpu: u64,
    duration_seconds: f64,
    user_seconds: f64,
    sys_seconds: f64,
    real_seconds: f64,
}

#[derive(Serialize, JsonSchema)]
struct KindRow {
    kind: String,
    #[serde(flatten)]
    durations: DurationRow,
    /// Number of pauses with CPU times; `user_seconds`, `sys_seconds` and `real_seconds` are the totals of these.
    pauses_with_cpu: u64,
    user_seconds: f64,
    sys_seconds: f64,
    real_seconds: f64,
}

#[derive(Serialize, JsonSchema)]
struct DurationRow {
    count: u64,
    total_seconds: f64,
    /// Median in seconds, to three significant digits; null if `count` is 0.
    p50_seconds: Option<f64>,
    /// 99th percentile in seconds, to three significant digits; null if `count` is 0.
    p99_seconds: Option<f64>,
    max_seconds: f64,
}

#[derive(Serialize, JsonSchema)]
struct SafepointRows {
    /// Time from the safepoint request to the end of the safepoint.
    total: DurationRow,
    /// Time to safepoint; only of safepoints for which the log contains it.
    time_to_safepoint: DurationRow,
}

/// Totals of the pauses with more system time than user time, and at least 30 ms of system time.
#[derive(Serialize, JsonSchema)]
struct SysAboveUserRow {
    pauses: u64,
    duration_seconds: f64,
    user_seconds: f64,
    sys_seconds: f64,
}

/// Totals of the pauses that mostly wait.
#[derive(Serialize, JsonSchema)]
struct WaitingRow {
    pauses: u64,
    duration_seconds: f64,
    /// Least time in which no thread ran, in seconds.
    waiting_seconds: f64,
}

#[derive(Serialize, JsonSchema)]
struct StallRow {
    /// `Allocation Stall`, `Relocation Stall` or `Allocation Pacing`.
    kind: &'static str,
    #[serde(flatten)]
    durations: DurationRow,
}

#[derive(Serialize, JsonSchema)]
struct UnreadRow {
    file: String,
    line: u64,
    /// Part of the line that could not be parsed.
    what: &'static str,
    text: String,
}

/// Writes the document: the head with the first pause, the totals at the end.
pub struct PauseWriter<'a, W> {
    out: W,
    head: Head<'a>,
    begun: bool,
    clock: Option<Clock>,
}

impl<'a, W: Write> PauseWriter<'a, W> {
    pub fn new(out: W, files: &'a [String]) -> PauseWriter<'a, W> {
        PauseWriter { out, head: Head { schema: "hugewise.gclog/2", files }, begun: false, clock: None }
    }

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
            start_seconds: pause.start.best_ns().map(seconds),
            duration_seconds: seconds(pause.duration_ns),
            user_seconds: cpu(|cpu| cpu.user_ns),
            sys_seconds: cpu(|cpu| cpu.sys_ns),
            real_seconds: cpu(|cpu| cpu.real_ns),
            nested: pause.nested,
        };
        Ok(serde_json::to_writer(&mut self.out, &row)?)
    }

    /// Writes the totals and ends the document.
    pub fn end(mut self, log: &Log) -> io::Result<()> {
        if !self.begun {
            self.begin()?;
        }
        let rest = serde_json::to_string(&rest(log, self.clock))?;
        // Continues the object of the head.
        writeln!(self.out, "\n],\n{}", rest.trim_start_matches('{'))?;
        self.out.flush()
    }

    fn begin(&mut self) -> io::Result<()> {
        self.begun = true;
        let head = serde_json::to_string(&self.head)?;
        writeln!(self.out, "{},\n\"pauses\":[", head.trim_end_matches('}'))
    }
}

fn rest(log: &Log, clock: Option<Clock>) -> LogTotals {
    let summary = &log.summary;
    let (total_ns, cpu) = summary.totals();
    LogTotals {
        clock,
        jvms: log.jvms,
        totals: Totals {
            pauses: summary.pauses(),
            pauses_with_cpu: summary.with_cpu(),
            duration_seconds: seconds(total_ns),
            user_seconds: seconds(cpu.user_ns),
            sys_seconds: seconds(cpu.sys_ns),
            real_seconds: seconds(cpu.real_ns),
        },
        kinds: summary.kinds.iter().map(kind_row).collect(),
        safepoints: SafepointRows {
            total: durations(&summary.safepoints.total),
            time_to_safepoint: durations(&summary.safepoints.time_to_safepoint),
        },
        sys_above_user: SysAboveUserRow {
            pauses: summary.sys_heavy_pauses.count,
            duration_seconds: seconds(summary.sys_heavy_pauses.total_ns),
            user_seconds: seconds(summary.sys_heavy_pauses.cpu.user_ns),
            sys_seconds: seconds(summary.sys_heavy_pauses.cpu.sys_ns),
        },
        waiting: WaitingRow {
            pauses: summary.waiting_pauses.count,
            duration_seconds: seconds(summary.waiting_pauses.total_ns),
            waiting_seconds: seconds(summary.waiting_pauses.waiting_ns),
        },
        stalls: summary
            .stalls
            .iter()
            .map(|(kind, stalls)| StallRow { kind, durations: durations(stalls) })
            .collect(),
        decoded: log.decoded.clone(),
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

fn kind_row(kind: &PauseKind) -> KindRow {
    KindRow {
        kind: kind.name.clone(),
        durations: durations(&kind.durations),
        pauses_with_cpu: kind.with_cpu,
        user_seconds: seconds(kind.cpu.user_ns),
        sys_seconds: seconds(kind.cpu.sys_ns),
        real_seconds: seconds(kind.cpu.real_ns),
    }
}

fn durations(durations: &Durations) -> DurationRow {
    DurationRow {
        count: durations.count,
        total_seconds: seconds(durations.total_ns),
        p50_seconds: durations.quantile_ns(0.5).map(seconds),
        p99_seconds: durations.quantile_ns(0.99).map(seconds),
        max_seconds: seconds(durations.max_ns),
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
