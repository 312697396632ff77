//! Recordings made to exhaust the memory of the reader.

use serde_json::{Value, json};

use super::{
    synthetic::{JVM, MS, SyntheticRecording, read_within},
    *,
};

const LIMIT_BYTES: usize = 200_000;
const LINES: u64 = 20_000;

/// A recording of [`LINES`] lines.
fn of(line: impl Fn(u64) -> Value) -> Attribution {
    let mut made = SyntheticRecording::seen();
    for at in 0..LINES {
        made.add(line(at));
    }
    Attribution::of(read_within(&made.text(), LIMIT_BYTES))
}

/// The memory of the lists in a recording, in bytes.
fn kept_bytes(explained: &Attribution) -> usize {
    let data = &explained.gathered;
    let texts = |texts: &[String]| texts.iter().map(|text| size_of::<String>() + text.len()).sum::<usize>();
    data.threads.len() * size_of::<Thread>()
        + data
            .stalls
            .iter()
            .map(|stalls| size_of::<Vec<Stall>>() + stalls.len() * size_of::<Stall>())
            .sum::<usize>()
        + data.huge_pages.len() * size_of::<HugePageAttempt>()
        + data.steps.len() * size_of::<UsageStep>()
        + data.pauses.len() * size_of::<LoggedPause>()
        + data.safepoints.len() * size_of::<Safepoint>()
        + texts(&data.notes)
        + data.processes.values().map(|process| texts(&process.command)).sum::<usize>()
        + explained.pauses.len() * size_of::<Pause>()
        + explained.pauses.iter().map(|pause| pause.threads.len() * size_of::<ThreadPart>()).sum::<usize>()
}

#[test]
fn lines_beyond_the_limit_are_counted_and_not_kept() {
    let usage = |at: u64| {
        json!({"type": "usage", "ns": at, "threads": [
            {"tid": at, "user_ns": 0, "sys_ns": at, "minor_faults": at, "major_faults": 0}]})
    };
    let kinds: [(&str, &dyn Fn(u64) -> Value); 8] = [
        (
            "waits",
            &|at| json!({"type": "stall", "cause": "compaction", "tid": 10, "begin_ns": at, "end_ns": at + 1, "details": {}}),
        ),
        (
            "threads",
            &|at| json!({"type": "thread", "ns": 0, "tid": at, "pid": JVM, "name": "x", "started_ticks": at}),
        ),
        ("usage of new threads", &usage),
        ("pages", &|at| json!({"type": "huge_page", "ns": at, "tid": 10, "order": 9, "got": true})),
        ("notes", &|at| json!({"type": "note", "ns": at, "text": "x".repeat(50)})),
        (
            "processes",
            &|at| json!({"type": "process", "ns": 0, "pid": at, "name": "x", "command": ["", "", ""], "pid_inside": null}),
        ),
        (
            "logs",
            &|at| json!({"type": "jvm_log_source", "ns": 0, "pid": at, "source": "x", "monotonic": true}),
        ),
        ("log lines", &|at| json!({"type": "jvm_log", "ns": at, "pid": JVM, "lines": ["x", "", ""]})),
    ];
    for (kind, line) in kinds {
        let explained = of(line);
        assert!(explained.gathered.room.excess > 0, "{kind}: {:?}", explained.gathered.room);
        assert!(kept_bytes(&explained) <= 2 * LIMIT_BYTES, "{kind}: {}", kept_bytes(&explained));
        assert_eq!(explained.gathered.unread, (0, None), "{kind}");
    }
}

#[test]
fn a_sample_with_any_number_of_counters_is_not_kept() {
    let counters: serde_json::Map<String, Value> = (0..5000).map(|n| (n.to_string(), json!(n))).collect();
    let mut made = SyntheticRecording::seen();
    made.add(json!({"type": "machine", "ns": 0, "vmstat": counters, "pressure_some_ns": null, "pools": [],
        "available_bytes": null}));
    let data = read_within(&made.text(), LIMIT_BYTES);
    assert_eq!((data.room.excess, data.machine.len(), data.unread), (1, 0, (0, None)));
}

#[test]
fn pauses_and_the_threads_in_them_are_bounded_together() {
    // Each of 300 threads worked during each of 300 pauses.
    let mut made = SyntheticRecording::seen();
    for at in 0..300 {
        made.pause(10 * at, 10 * at + 5, Some((0, 5)));
        let tid = 100 + at;
        made.add(json!({"type": "thread", "ns": 0, "tid": tid, "pid": JVM, "name": "GC Thread#1", "started_ticks": 1}));
        made.add(json!({"type": "usage", "ns": 3000 * MS, "threads": [
            {"tid": tid, "user_ns": 0, "sys_ns": MS, "minor_faults": 100_000, "major_faults": 0}]}));
    }
    let whole = Attribution::of(read_within(&made.text(), usize::MAX));
    assert_eq!((whole.gathered.room.excess, whole.pauses[9].threads.len()), (0, 300));
    let limit_bytes = 1_000_000;
    let explained = Attribution::of(read_within(&made.text(), limit_bytes));
    assert!(explained.gathered.room.excess > 50_000, "{:?}", explained.gathered.room);
    assert!(kept_bytes(&explained) <= limit_bytes, "{}", kept_bytes(&explained));
}

#[test]
fn a_recording_that_was_not_kept_whole_proves_no_absence() {
    let line = |at: u64| json!({"type": "thread", "ns": at * MS, "tid": at, "pid": 1, "name": "x", "started_ticks": at});
    let because = of(line).decision.because;
    assert!(matches!(because, VerdictReason::TooLarge { excess: 1.. }), "{because:?}");
}
