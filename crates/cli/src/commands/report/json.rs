//! The attributed pauses of a recording as JSON.

use std::collections::BTreeMap;

use hugewise_linux::{action::Action, reading::Reading, units::seconds};
use hugewise_record::{
    attribution::{self, LoggedPause, ThreadPart, TimeByActivity, Verdict, VerdictReason, Wait, WaitSum},
    recording::{Ending, Evidence},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{reasons, reports::AttributedRecording, words};

/// Result of `hugewise report`, schema `hugewise.report/2`. Times are in seconds; `start_seconds` counts from the
/// start of the recording. Unknown values are null.
#[derive(Serialize, JsonSchema)]
pub struct AttributionReport {
    schema: &'static str,
    /// Path of the recording.
    file: String,
    verdict: Verdict,
    #[serde(flatten)]
    cause: VerdictReason,
    /// The reason for the verdict, as text.
    detail: String,
    recording: Recording,
    totals: Totals,
    /// Pauses in the order of their start.
    pauses: Vec<Pause>,
    /// Waits outside of pauses by thread, the longest total first.
    outside: Vec<Outside>,
    /// All waits, in and outside of pauses.
    waiting: Vec<Waiting>,
    /// Changes that avoid the cause, the smallest first.
    actions: Vec<Action>,
}

/// The recording and its restrictions.
#[derive(Serialize, JsonSchema)]
struct Recording {
    /// The recorded process.
    pid: u32,
    command: Vec<String>,
    seconds: f64,
    /// Whether the file is truncated, for example because the recorder was killed.
    cut_off: bool,
    /// Source of each kind of evidence, or the reason why it is missing.
    evidence: BTreeMap<Evidence, Reading<String>>,
    /// Number of lost records of each kind of evidence, as far as they could be counted.
    lost: BTreeMap<Evidence, u64>,
    /// Number of waits without a recorded begin or end, whose length is unknown.
    open_stalls: u64,
    /// Number of logs with another clock than the kernel events; their times may be off by a second.
    fitted_logs: u64,
    /// Number of log lines that look like a pause but could not be parsed.
    unread_log_lines: u64,
    /// Number of lines of the recording that could not be parsed.
    unread_lines: u64,
    /// Number of lines, pauses, safepoints and threads in pauses that were not kept, because the recording
    /// needs more than 512 MiB of memory.
    not_kept: u64,
    notes: Vec<String>,
}

/// Totals of all pauses.
#[derive(Serialize, JsonSchema)]
struct Totals {
    pauses: u64,
    /// Total duration of the pauses.
    paused_seconds: f64,
    /// Total time to safepoint of these pauses.
    time_to_safepoint_seconds: f64,
    /// Part of `paused_seconds` in which at least one collector thread waited for the kernel.
    stalled_seconds: f64,
    /// Part of `stalled_seconds` for huge pages.
    stalled_for_huge_seconds: f64,
    /// Part of `time_to_safepoint_seconds` in which at least one application thread waited for the kernel.
    time_to_safepoint_stalled_seconds: f64,
    /// Totals of the pauses in which the part is known.
    split: SplitRow,
    /// Number of pauses with more system time than user time.
    pauses_with_sys_above_user: u64,
}

/// Time of the collector's threads: the total over all threads, not wall-clock time.
#[derive(Serialize, JsonSchema)]
struct SplitRow {
    /// Waiting for compaction; null if unknown.
    compaction_seconds: Option<f64>,
    /// Waiting for reclaim; null if unknown.
    reclaim_seconds: Option<f64>,
    /// Allocating and zeroing huge pages, an upper bound (see docs/report.md); null if unknown.
    zeroing_seconds: Option<f64>,
    /// Allocating and zeroing base pages, an upper bound; null if unknown.
    first_touch_seconds: Option<f64>,
    /// Other system time, a lower bound; null if unknown.
    other_system_seconds: Option<f64>,
    /// User time; null if unknown.
    user_seconds: Option<f64>,
}

/// A pause of all application threads.
#[derive(Serialize, JsonSchema)]
struct Pause {
    /// The JVM.
    pid: u32,
    /// Id of the collection; null if the log has no ids.
    gc_id: Option<u64>,
    /// Kind of the pause, such as `Young (Normal)`.
    kind: String,
    /// Cause of the collection, such as `System.gc()`; null if the log does not contain it.
    cause: Option<String>,
    start_seconds: f64,
    duration_seconds: f64,
    /// CPU time of the process in user space by the log, in steps of 10 ms; null if not logged.
    user_seconds: Option<f64>,
    /// CPU time of the process in the kernel by the log, in steps of 10 ms; null if not logged.
    sys_seconds: Option<f64>,
    /// Wall-clock time by the log, in steps of 10 ms; null if not logged.
    real_seconds: Option<f64>,
    /// Time to safepoint; null if not logged.
    time_to_safepoint: Option<TimeToSafepoint>,
    /// Part of the pause in which at least one collector thread waited for the kernel; null if unknown.
    stalled_seconds: Option<f64>,
    /// Part of `stalled_seconds` for huge pages; null if unknown.
    stalled_for_huge_seconds: Option<f64>,
    split: SplitRow,
    /// Collector threads that waited or touched memory in the pause.
    threads: Vec<ThreadRow>,
}

/// The time to safepoint of a pause.
#[derive(Serialize, JsonSchema)]
struct TimeToSafepoint {
    seconds: f64,
    /// Part of it in which at least one application thread waited for the kernel.
    stalled_seconds: f64,
    /// Application threads that waited for the kernel during the time to safepoint.
    blockers: Vec<Blocker>,
}

/// A thread that delayed a safepoint.
#[derive(Serialize, JsonSchema)]
struct Blocker {
    tid: u32,
    thread: String,
    wait: Wait,
    waited_seconds: f64,
}

/// A collector thread in a pause.
#[derive(Serialize, JsonSchema)]
struct ThreadRow {
    tid: u32,
    thread: String,
    compaction_seconds: f64,
    /// Number of waits for compaction.
    compactions: u64,
    reclaim_seconds: f64,
    /// Number of waits for reclaim.
    reclaims: u64,
    /// Number of huge pages allocated.
    huge_pages: u64,
    /// Number of failed huge-page allocations.
    huge_pages_failed: u64,
    /// Number of base page faults, estimated from samples.
    base_faults: u64,
}

/// Waits for one cause.
#[derive(Serialize, JsonSchema)]
struct SumRow {
    wait: Wait,
    /// Number of waits.
    count: u64,
    total_seconds: f64,
    longest_seconds: f64,
    /// Part of `total_seconds` for huge pages.
    for_huge_seconds: f64,
}

/// Waits of a thread outside of pauses.
#[derive(Serialize, JsonSchema)]
struct Outside {
    tid: u32,
    thread: String,
    /// Longest total of waits for huge pages that began within one second.
    worst_second_seconds: f64,
    #[serde(flatten)]
    sum: SumRow,
}

/// Waits of all threads for one cause.
#[derive(Serialize, JsonSchema)]
struct Waiting {
    #[serde(flatten)]
    sum: SumRow,
    /// Total by the kernel's delay accounting; null if it is not in the recording.
    accounted_seconds: Option<f64>,
}

impl AttributionReport {
    pub fn of(explained: &AttributedRecording<'_>) -> AttributionReport {
        let explanation = &explained.explanation;
        let (gathered, totals) = (&explanation.gathered, &explanation.totals);
        AttributionReport {
            schema: "hugewise.report/2",
            file: explained.file.display().to_string(),
            verdict: explanation.decision.verdict,
            cause: explanation.decision.because.clone(),
            detail: reasons::why(explanation).join(" "),
            recording: recording(gathered),
            totals: Totals {
                pauses: totals.pauses,
                paused_seconds: seconds(totals.paused_ns),
                time_to_safepoint_seconds: seconds(totals.time_to_safepoint_ns),
                stalled_seconds: seconds(totals.stalled_ns),
                stalled_for_huge_seconds: seconds(totals.stalled_for_huge_ns),
                time_to_safepoint_stalled_seconds: seconds(totals.time_to_safepoint_stalled_ns),
                split: (&totals.split).into(),
                pauses_with_sys_above_user: totals.sys_heavy,
            },
            pauses: explanation.pauses.iter().map(|pause| pause_row(gathered, pause)).collect(),
            outside: totals
                .outside
                .iter()
                .map(|outside| Outside {
                    tid: gathered.threads[outside.thread].tid,
                    thread: gathered.name(outside.thread).to_owned(),
                    worst_second_seconds: seconds(outside.worst_second_ns),
                    sum: sum_row(outside.wait, outside.sum),
                })
                .collect(),
            waiting: [Wait::Compaction, Wait::Reclaim]
                .into_iter()
                .map(|wait| Waiting {
                    sum: sum_row(wait, totals.found.get(&wait).copied().unwrap_or_default()),
                    accounted_seconds: totals
                        .accounted
                        .as_ref()
                        .and_then(|sums| sums.get(&wait))
                        .map(|ns| seconds(*ns)),
                })
                .collect(),
            actions: explained.actions.clone(),
        }
    }
}

fn recording(gathered: &attribution::RecordingData) -> Recording {
    Recording {
        pid: gathered.header.pid,
        command: gathered.header.command.clone(),
        seconds: seconds(gathered.elapsed_ns()),
        cut_off: gathered.ending == Some(Ending::CutOff),
        evidence: gathered.header.evidence.clone(),
        lost: gathered.lost.iter().map(|(of, (count, _))| (*of, *count)).collect(),
        open_stalls: gathered.open_stalls,
        fitted_logs: gathered.logs.iter().filter(|log| !log.monotonic).count() as u64,
        unread_log_lines: gathered.logs.iter().map(|log| log.unread).sum(),
        unread_lines: gathered.unread.0,
        not_kept: gathered.room.excess,
        notes: gathered.notes.clone(),
    }
}

impl From<&TimeByActivity> for SplitRow {
    fn from(split: &TimeByActivity) -> SplitRow {
        SplitRow {
            compaction_seconds: split.compaction_ns.map(seconds),
            reclaim_seconds: split.reclaim_ns.map(seconds),
            zeroing_seconds: split.zeroing_ns.map(seconds),
            first_touch_seconds: split.first_touch_ns.map(seconds),
            other_system_seconds: split.other_system_ns.map(seconds),
            user_seconds: split.user_ns.map(seconds),
        }
    }
}

fn pause_row(gathered: &attribution::RecordingData, pause: &attribution::Pause) -> Pause {
    let LoggedPause { pid, gc_id, kind, cause, span, cpu } = &pause.stop;
    Pause {
        pid: *pid,
        gc_id: *gc_id,
        kind: kind.clone(),
        cause: cause.clone(),
        start_seconds: words::since_begin_s(gathered, span.start),
        duration_seconds: seconds(span.end - span.start),
        user_seconds: cpu.map(|cpu| seconds(cpu.user_ns)),
        sys_seconds: cpu.map(|cpu| seconds(cpu.sys_ns)),
        real_seconds: cpu.map(|cpu| seconds(cpu.real_ns)),
        time_to_safepoint: pause.time_to_safepoint.as_ref().map(|time_to_safepoint| TimeToSafepoint {
            seconds: seconds(time_to_safepoint.ns),
            stalled_seconds: seconds(time_to_safepoint.stalled_ns),
            blockers: time_to_safepoint
                .blockers
                .iter()
                .map(|(thread, wait, ns)| Blocker {
                    tid: gathered.threads[*thread].tid,
                    thread: gathered.name(*thread).to_owned(),
                    wait: *wait,
                    waited_seconds: seconds(*ns),
                })
                .collect(),
        }),
        stalled_seconds: pause.stalled_ns.map(seconds),
        stalled_for_huge_seconds: pause.stalled_for_huge_ns.map(seconds),
        split: (&pause.split).into(),
        threads: pause.threads.iter().map(|part| thread_row(gathered, part)).collect(),
    }
}

fn thread_row(gathered: &attribution::RecordingData, part: &ThreadPart) -> ThreadRow {
    ThreadRow {
        tid: gathered.threads[part.thread].tid,
        thread: gathered.name(part.thread).to_owned(),
        compaction_seconds: seconds(part.compaction.ns),
        compactions: part.compaction.count,
        reclaim_seconds: seconds(part.reclaim.ns),
        reclaims: part.reclaim.count,
        huge_pages: part.huge_pages,
        huge_pages_failed: part.huge_pages_failed,
        base_faults: part.base_faults,
    }
}

fn sum_row(wait: Wait, sum: WaitSum) -> SumRow {
    SumRow {
        wait,
        count: sum.count,
        total_seconds: seconds(sum.ns),
        longest_seconds: seconds(sum.longest_ns),
        for_huge_seconds: seconds(sum.for_huge_ns),
    }
}
