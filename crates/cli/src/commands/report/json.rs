//! The pauses of a recording as JSON.

use std::collections::BTreeMap;

use hugewise_linux::reading::Reading;
use hugewise_record::{
    attribution::{self, Because, Split, Stop, ThreadPart, Verdict, Wait, WaitSum},
    recording::{Ending, Evidence},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{reports::Explained, words};
use crate::commands::plan::formats::quote::shell_line;

/// What `report` says, schema `hugewise.report/1`. Times are in seconds; `start_s` counts from the begin
/// of the recording. What could not be told is null.
#[derive(Serialize, JsonSchema)]
pub struct Report {
    schema: &'static str,
    /// The recording.
    file: String,
    verdict: Verdict,
    /// Why. Times in it are nanoseconds.
    because: Because,
    /// The same in words.
    why: Vec<String>,
    recording: Recording,
    totals: Totals,
    /// In the order of their times.
    pauses: Vec<Pause>,
    /// Waiting that is no part of a pause, the longest first.
    outside: Vec<Outside>,
    /// All waiting of threads, wherever it lay.
    waiting: Vec<Waiting>,
    /// What would have avoided it, the smallest change first.
    changes: Vec<Change>,
}

#[derive(Serialize, JsonSchema)]
struct Recording {
    /// Of process.
    pid: u32,
    command: Vec<String>,
    took_s: f64,
    /// It ends in the middle of a line: the recorder was killed, or the file was cut off.
    cut_off: bool,
    /// What it rests on, or why that is missing.
    evidence: BTreeMap<Evidence, Reading<String>>,
    /// What was lost: how many that could be counted.
    lost: BTreeMap<Evidence, u64>,
    /// Waits of which the begin or the end is missing: they have no length.
    open_stalls: u64,
    /// Logs of which the clock is not that of the kernel, so that times are fitted, to a second.
    fitted_logs: u64,
    /// Lines of logs that look like a pause, and could not be understood.
    unread_log_lines: u64,
    /// Lines of the recording that could not be understood.
    unread_lines: u64,
    notes: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
struct Totals {
    pauses: u64,
    paused_s: f64,
    /// Until all threads stood still, before these pauses.
    reaching_s: f64,
    /// For so long of the pauses at least one thread of the collector waited for the kernel.
    stalled_s: f64,
    /// Of that, for huge pages.
    stalled_for_huge_s: f64,
    /// For so long of reaching safepoints at least one thread of the application waited for the kernel.
    reaching_stalled_s: f64,
    /// Of the pauses that could tell.
    split: SplitRow,
    /// Pauses in which the kernel worked longer than the collector.
    suspects: u64,
}

/// Time of the collector's threads: of two threads for a second it is two.
#[derive(Serialize, JsonSchema)]
struct SplitRow {
    /// Waiting for the kernel to compact memory.
    compaction_s: Option<f64>,
    /// Waiting for the kernel to free memory.
    reclaim_s: Option<f64>,
    /// Getting and zeroing huge pages: at most, see docs/report.md.
    zeroing_s: Option<f64>,
    /// Getting and zeroing base pages: at most.
    first_touch_s: Option<f64>,
    /// System time that is none of these.
    other_system_s: Option<f64>,
    /// CPU time in user space.
    user_s: Option<f64>,
}

#[derive(Serialize, JsonSchema)]
struct Pause {
    /// The JVM.
    pid: u32,
    /// Id of the collection, where the log has ids.
    gc_id: Option<u64>,
    /// `Young (Normal)`.
    kind: String,
    /// `System.gc()`, where the log says it.
    cause: Option<String>,
    start_s: f64,
    duration_s: f64,
    /// CPU time of the process, by the log, to 10 ms.
    user_s: Option<f64>,
    sys_s: Option<f64>,
    real_s: Option<f64>,
    /// Until all threads stood still before it, and who waited meanwhile.
    reaching: Option<Reaching>,
    /// For so long at least one thread of the collector waited for the kernel.
    stalled_s: Option<f64>,
    /// Of that, for huge pages.
    stalled_for_huge_s: Option<f64>,
    split: SplitRow,
    threads: Vec<ThreadRow>,
}

#[derive(Serialize, JsonSchema)]
struct Reaching {
    reaching_s: f64,
    /// For so long at least one thread of the application waited for the kernel.
    stalled_s: f64,
    blockers: Vec<Blocker>,
}

#[derive(Serialize, JsonSchema)]
struct Blocker {
    tid: u32,
    thread: String,
    wait: Wait,
    waited_s: f64,
}

/// A thread of the collector in a pause.
#[derive(Serialize, JsonSchema)]
struct ThreadRow {
    tid: u32,
    thread: String,
    compaction_s: f64,
    /// How often.
    compactions: u64,
    reclaim_s: f64,
    reclaims: u64,
    huge_pages: u64,
    /// Asked for in vain.
    huge_pages_failed: u64,
    /// Base pages that it touched first, by looks now and then.
    base_faults: u64,
}

/// Waiting of one kind.
#[derive(Serialize, JsonSchema)]
struct SumRow {
    wait: Wait,
    count: u64,
    total_s: f64,
    longest_s: f64,
    /// Of the total, for huge pages.
    for_huge_s: f64,
}

#[derive(Serialize, JsonSchema)]
struct Outside {
    tid: u32,
    thread: String,
    /// The most of it for huge pages that began within one second.
    worst_second_s: f64,
    #[serde(flatten)]
    sum: SumRow,
}

#[derive(Serialize, JsonSchema)]
struct Waiting {
    #[serde(flatten)]
    sum: SumRow,
    /// The same by the kernel's own accounting.
    accounted_s: Option<f64>,
}

#[derive(Serialize, JsonSchema)]
struct Change {
    /// What, in words.
    what: String,
    /// A command that does it, where none of the program's flags does.
    command: Option<String>,
    /// A command that shows what it buys.
    proof: Option<String>,
}

fn s(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl Report {
    /// Of a recording that was explained.
    pub fn of(explained: &Explained<'_>) -> Report {
        let explanation = &explained.explanation;
        let (gathered, totals) = (&explanation.gathered, &explanation.totals);
        Report {
            schema: "hugewise.report/1",
            file: explained.file.display().to_string(),
            verdict: explanation.decision.verdict,
            because: explanation.decision.because.clone(),
            why: words::why(explanation),
            recording: recording(gathered),
            totals: Totals {
                pauses: totals.pauses,
                paused_s: s(totals.paused_ns),
                reaching_s: s(totals.reaching_ns),
                stalled_s: s(totals.stalled_ns),
                stalled_for_huge_s: s(totals.stalled_for_huge_ns),
                reaching_stalled_s: s(totals.reaching_stalled_ns),
                split: (&totals.split).into(),
                suspects: totals.suspects,
            },
            pauses: explanation.pauses.iter().map(|pause| pause_row(gathered, pause)).collect(),
            outside: totals
                .outside
                .iter()
                .map(|outside| Outside {
                    tid: gathered.threads[outside.thread].tid,
                    thread: gathered.name(outside.thread).to_owned(),
                    worst_second_s: s(outside.worst_second_ns),
                    sum: sum_row(outside.wait, outside.sum),
                })
                .collect(),
            waiting: [Wait::Compaction, Wait::Reclaim]
                .into_iter()
                .map(|wait| Waiting {
                    sum: sum_row(wait, totals.found.get(&wait).copied().unwrap_or_default()),
                    accounted_s: totals.accounted.as_ref().and_then(|sums| sums.get(&wait)).map(|ns| s(*ns)),
                })
                .collect(),
            changes: explained
                .changes
                .iter()
                .map(|change| Change {
                    what: words::change(change.what).to_owned(),
                    command: change.command.as_ref().map(|words| shell_line(words)),
                    proof: change.proof.as_ref().map(|words| shell_line(words)),
                })
                .collect(),
        }
    }
}

fn recording(gathered: &attribution::Gathered) -> Recording {
    Recording {
        pid: gathered.header.pid,
        command: gathered.header.command.clone(),
        took_s: s(gathered.elapsed_ns()),
        cut_off: gathered.ending == Some(Ending::CutOff),
        evidence: gathered.header.evidence.clone(),
        lost: gathered.lost.iter().map(|(of, (count, _))| (*of, *count)).collect(),
        open_stalls: gathered.open_stalls,
        fitted_logs: gathered.logs.iter().filter(|log| !log.monotonic).count() as u64,
        unread_log_lines: gathered.logs.iter().map(|log| log.unread).sum(),
        unread_lines: gathered.unread.0,
        notes: gathered.notes.clone(),
    }
}

impl From<&Split> for SplitRow {
    fn from(split: &Split) -> SplitRow {
        SplitRow {
            compaction_s: split.compaction_ns.map(s),
            reclaim_s: split.reclaim_ns.map(s),
            zeroing_s: split.zeroing_ns.map(s),
            first_touch_s: split.first_touch_ns.map(s),
            other_system_s: split.other_system_ns.map(s),
            user_s: split.user_ns.map(s),
        }
    }
}

fn pause_row(gathered: &attribution::Gathered, pause: &attribution::Explained) -> Pause {
    let Stop { pid, gc_id, kind, cause, span, cpu } = &pause.stop;
    Pause {
        pid: *pid,
        gc_id: *gc_id,
        kind: kind.clone(),
        cause: cause.clone(),
        start_s: words::since_begin_s(gathered, span.start),
        duration_s: s(span.end - span.start),
        user_s: cpu.map(|cpu| s(cpu.user_ns)),
        sys_s: cpu.map(|cpu| s(cpu.sys_ns)),
        real_s: cpu.map(|cpu| s(cpu.real_ns)),
        reaching: pause.reaching.as_ref().map(|reaching| Reaching {
            reaching_s: s(reaching.ns),
            stalled_s: s(reaching.stalled_ns),
            blockers: reaching
                .blockers
                .iter()
                .map(|(thread, wait, ns)| Blocker {
                    tid: gathered.threads[*thread].tid,
                    thread: gathered.name(*thread).to_owned(),
                    wait: *wait,
                    waited_s: s(*ns),
                })
                .collect(),
        }),
        stalled_s: pause.stalled_ns.map(s),
        stalled_for_huge_s: pause.stalled_for_huge_ns.map(s),
        split: (&pause.split).into(),
        threads: pause.threads.iter().map(|part| thread_row(gathered, part)).collect(),
    }
}

fn thread_row(gathered: &attribution::Gathered, part: &ThreadPart) -> ThreadRow {
    ThreadRow {
        tid: gathered.threads[part.thread].tid,
        thread: gathered.name(part.thread).to_owned(),
        compaction_s: s(part.compaction.ns),
        compactions: part.compaction.count,
        reclaim_s: s(part.reclaim.ns),
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
        total_s: s(sum.ns),
        longest_s: s(sum.longest_ns),
        for_huge_s: s(sum.for_huge_ns),
    }
}
