//! For each pause, wall = user + sys + waiting: pauses of each kind in the logs of each collector, constructed.

use super::{Event, Reader, summary::Summary};

/// Times of a pause in seconds: user, sys, real.
type Times = (f64, f64, f64);

/// A log of one pause with these times, as a collector writes it.
type Log = (&'static str, fn(Times) -> String);

fn unified(name: &str, (user, sys, real): Times) -> String {
    let ms = real * 1000.0;
    format!(
        "[1.000s][info][gc] Using {name}\n[9.000s][info][gc,start] GC(3) Pause Young (Normal) (G1 Evacuation Pause)\n\
         [9.100s][info][gc] GC(3) Pause Young (Normal) (G1 Evacuation Pause) 24M->3M(64M) {ms:.3}ms\n\
         [9.100s][info][gc,cpu] GC(3) User={user:.2}s Sys={sys:.2}s Real={real:.2}s\n"
    )
}

fn legacy(record: &str, (user, sys, real): Times) -> String {
    let record = record.replace("SECS", &format!("{real:.7} secs"));
    format!("12.331: {record} [Times: user={user:.2} sys={sys:.2}, real={real:.2} secs]\n")
}

const LOGS: &[Log] = &[
    ("G1", |times| unified("G1", times)),
    ("Parallel", |times| unified("Parallel", times)),
    ("Serial", |times| unified("Serial", times)),
    ("Shenandoah, degenerated", |times| {
        unified("Shenandoah", times).replace("Young (Normal) (G1 Evacuation Pause)", "Degenerated GC (Mark)")
    }),
    ("JDK 8, Parallel", |times| {
        legacy(
            "[GC (Allocation Failure) [PSYoungGen: 33280K->5118K(38400K)] 33280K->5126K(125952K), SECS]",
            times,
        )
    }),
    ("JDK 8, Serial", |times| {
        legacy(
            "[GC (Allocation Failure) 12.331: [DefNew: 69952K->8704K(78656K), SECS] 69952K->9000K(253440K), SECS]",
            times,
        )
    }),
    ("JDK 8, CMS", |times| {
        legacy(
            "[GC (Allocation Failure) 12.331: [ParNew: 69952K->8704K(78656K), SECS] 69952K->9000K(253440K), SECS]",
            times,
        )
    }),
    ("JDK 8, full", |times| {
        legacy(
            "[Full GC (System.gc()) [PSYoungGen: 5118K->0K(38400K)] [ParOldGen: 8K->4873K(87552K)] 5126K->4873K(125952K), \
                [Metaspace: 2700K->2700K(1056768K)], SECS]",
            times,
        )
    }),
];

fn summary(log: &str) -> Summary {
    let mut summary = Summary::default();
    let mut take = |event: Event<'_>| summary.add(&event);
    let mut reader = Reader::default();
    let read = reader.read(log.as_bytes(), &mut take);
    assert!(read.is_ok(), "{log}");
    reader.finish(&mut take);
    summary
}

/// Pauses with more system time, pauses that mostly wait, and whether the log is a negative verdict.
fn judged(log: &str) -> (u64, u64, bool) {
    let summary = summary(log);
    assert_eq!(summary.pauses(), 1, "{log}");
    (summary.sys_heavy_pauses.count, summary.waiting_pauses.count, summary.is_negative())
}

#[test]
fn each_balance_is_judged_in_the_log_of_each_collector() {
    for (name, log) in LOGS {
        for (times, expected, what) in [
            ((0.40, 0.02, 0.11), (0, 0, false), "work of four threads"),
            ((0.10, 0.01, 0.11), (0, 0, false), "work of one thread"),
            ((0.07, 0.01, 0.11), (0, 0, false), "less than half waits"),
            ((0.02, 0.31, 0.18), (1, 0, true), "system time"),
            ((0.25, 0.05, 15.35), (0, 1, true), "waiting"),
            ((0.04, 0.00, 0.257), (0, 1, true), "little user time"),
            ((0.00, 0.00, 2.50), (0, 1, true), "no CPU time"),
            ((0.10, 0.90, 4.00), (1, 1, true), "system time and waiting"),
            ((0.00, 0.00, 0.003), (0, 0, false), "shorter than a tick"),
        ] {
            let text = log(times);
            assert_eq!(judged(&text), expected, "{name}, {what}: {text}");
        }
    }
}

#[test]
fn waits_of_threads_are_a_negative_verdict_also_without_pauses() {
    for (kind, log) in [
        ("Allocation Stall", "[1283.6s][info][gc] Allocation Stall (query-0413) 402.711ms\n"),
        ("Allocation Stall", "[1283.6s][info][gc] GC(7) Allocation Stall (query-0413) 402.711ms\n"),
        ("Relocation Stall", "[1283.6s][info][gc] Relocation Stall (query-0413) 12.5ms\n"),
        ("Allocation Pacing", "[9.1s][info][gc,ergo] GC(3)    12 of  1234 ms (  1.0%): main\n"),
    ] {
        let summary = summary(log);
        let kinds: Vec<&str> = summary.stalls.iter().map(|(kind, _)| *kind).collect();
        assert_eq!((kinds, summary.is_negative()), (vec![kind], true), "{log}");
    }
    // A collection of ZGC without stalls.
    let quiet = "[1.6s][info][gc] GC(4) Garbage Collection (Warmup) 104M(10%)->34M(3%)\n";
    assert!(!summary(quiet).is_negative());
}

/// Constructed after JEP 522 and the lines of JDK 26 at its exit: a second card table, and CPU times of the JVM.
#[test]
fn a_log_of_jdk_26_has_its_pauses_and_no_unparsed_lines() {
    let log = unified("G1", (0.02, 0.31, 0.18))
        + "[9.1s][info][pagesize] Refinement Card Table: req_size=2M req_page_size=4K base=0x00007f1a0d2c2000 size=2M page_size=4K\n\
           [71.425s][info][cpu] === CPU time Statistics =============================================================\n\
           [71.425s][info][cpu]                                                                            CPUs\n\
           [71.425s][info][cpu]                                                               s       %  utilized\n\
           [71.425s][info][cpu]    Process\n\
           [71.425s][info][cpu]      Total                        1616.3627  100.00      22.6\n\
           [71.425s][info][cpu]      Garbage Collection             83.7151    5.18       1.2\n\
           [71.425s][info][cpu]        GC Threads                   82.9162    5.13       1.2\n\
           [71.425s][info][cpu] =====================================================================================\n";
    let summary = summary(&log);
    assert_eq!((summary.pauses(), summary.sys_heavy_pauses.count, summary.unread), (1, 1, 0));
}
