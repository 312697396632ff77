//! Logs of JDK 9 and later, and the events read from them.

use proptest::prelude::*;

use super::*;

/// Fields of a pause: id, kind, cause, start in ms, duration in µs, user, sys and real in 10 ms.
type PauseFields = (Option<u64>, String, Option<String>, Option<u64>, u64, Option<[u64; 3]>);

pub(super) fn reported(pause: &Pause<'_>) -> PauseFields {
    let tick = |cpu: Cpu| [cpu.user_ns, cpu.sys_ns, cpu.real_ns].map(|ns| ns / 10_000_000);
    let start = pause.start.best_ns().map(|ns| ns / 1_000_000);
    let cause = pause.cause.map(str::to_owned);
    (pause.gc_id, pause.kind.to_owned(), cause, start, pause.duration_ns / 1000, pause.cpu.map(tick))
}

#[derive(Default)]
pub(super) struct Everything {
    pub pauses: Vec<PauseFields>,
    pub runs: Vec<u32>,
    pub nested: Vec<bool>,
    pub safepoints: Vec<(Option<String>, Option<u64>, u64)>,
    pub unread: Vec<(u64, &'static str)>,
    pub inits: usize,
    pub heap: Option<Range<u64>>,
}

pub(super) fn all(log: &[u8]) -> Everything {
    let mut seen = Everything::default();
    let mut reader = Reader::default();
    let mut take = |event: Event<'_>| match event {
        Event::Pause(pause) => {
            seen.pauses.push(reported(&pause));
            seen.runs.push(pause.run);
            seen.nested.push(pause.nested);
        }
        Event::Safepoint(stop) => {
            seen.safepoints.push((
                stop.operation.map(str::to_owned),
                stop.time_to_safepoint_ns,
                stop.total_ns,
            ));
        }
        Event::Unparsed(unread) => seen.unread.push((unread.place.line, unread.what)),
        Event::Stall(_) => {}
        Event::Init(_) => seen.inits += 1,
        Event::Heap(range) => seen.heap = Some(range),
    };
    assert!(reader.read(log, &mut take).is_ok(), "memory can be read");
    reader.finish(&mut take);
    seen
}

const G1: &str = "\
[100ns][info ][gc,init      ] Heap Region Size: 1M
[150ns][info ][gc,init      ] Periodic GC: Disabled
[90ns][info ][pagesize     ] Heap:  min=256M max=512M base=0x00000000e0000000 page_size=4K size=512M
[200000000ns][info ][gc,start    ] GC(0) Pause Young (Concurrent Start) (G1 Humongous Allocation)
[210000000ns][info ][gc          ] GC(0) Pause Young (Concurrent Start) (G1 Humongous Allocation) 25M->3M(1024M) 6.500ms
[211000000ns][info ][gc,cpu      ] GC(0) User=0.01s Sys=0.02s Real=0.01s
[220000000ns][info ][gc          ] GC(1) Concurrent Mark Cycle
[230000000ns][info ][gc          ] GC(1) Pause Remark 30M->30M(1024M) 1,500ms
[231000000ns][info ][gc,cpu      ] GC(1) User=0,00s Sys=0,00s Real=0,00s
[240000000ns][info ][gc          ] GC(1) Concurrent Mark Cycle 16.1ms
[241000000ns][info ][gc,cpu      ] GC(1) User=9.00s Sys=9.00s Real=9.00s
";

#[test]
fn pauses_carry_their_cpu_time_and_concurrent_phases_do_not_count() {
    let seen = all(G1.as_bytes());
    let young = "Young (Concurrent Start)".to_owned();
    assert_eq!(
        seen.pauses,
        [
            (Some(0), young, Some("G1 Humongous Allocation".to_owned()), Some(203), 6500, Some([1, 2, 1])),
            (Some(1), "Remark".to_owned(), None, Some(228), 1500, Some([0, 0, 0])),
        ]
    );
    assert_eq!((seen.unread, seen.inits), (vec![], 2));
    assert_eq!(seen.heap, Some(0xe000_0000..0x1_0000_0000));
    assert_eq!(heap(G1.as_bytes()), Some(0xe000_0000..0x1_0000_0000));
    let older = b"[1ns][debug][gc,heap,coops] Heap address: 0x00000000e0000000, size: 512 MB, Compressed Oops mode: 32-bit";
    assert_eq!(heap(older), Some(0xe000_0000..0x1_0000_0000));
}

#[test]
fn a_pause_is_read_behind_any_decorations() {
    for before in [
        "",
        "[0.033s][info][gc          ] ",
        "[0,033s] ",
        "[132ms] ",
        "[1795219610451ms][4711] ",
        "[2026-11-21T08:02:00.342+0000][web7][24664][24665][info][gc] ",
        "[info ] ",
        "[gc] ",
        "[Web7][info ][gc] ",
        "2026-11-21T08:02:00.342Z stdout F [0.033s][info][gc] ",
        "no end of line[0.033s][info][gc] ",
    ] {
        let log = format!(
            "{before}GC(7) Pause Young (Allocation Failure) 38M->17M(92M) 2.423ms\r\n{before}GC(7) User=0.25s Sys=1.50s Real=0.01s"
        );
        let seen = all(log.as_bytes());
        let pauses: Vec<_> = seen
            .pauses
            .iter()
            .map(|reported| (reported.0, reported.1.as_str(), reported.4, reported.5))
            .collect();
        assert_eq!(pauses, [(Some(7), "Young", 2423, Some([25, 150, 1]))], "{before}");
        assert_eq!(seen.unread, [], "{before}");
    }
}

#[test]
fn generational_zgc_has_pauses_without_cpu_time() {
    let seen = all(b"[1.5s][info][gc,phases    ] GC(4) y: Pause Mark Start 0.006ms\n\
                     [1.6s][info][gc,phases    ] GC(4) Y: Pause Mark Start (Major) 0.007ms\n\
                     [1.7s][info][gc,stats] Young Pause: Pause Mark End 0.008 / 0.010 ms\n");
    let kinds: Vec<_> =
        seen.pauses.iter().map(|reported| (reported.1.as_str(), reported.4, reported.5)).collect();
    assert_eq!(kinds, [("Mark Start", 6, None), ("Mark Start (Major)", 7, None)]);
    assert_eq!(seen.unread, []);
}

#[test]
fn safepoints_show_how_long_threads_took_to_stop() {
    let seen = all(b"[1.0s][info][safepoint   ] Safepoint \"G1CollectFull\", Time since last: 374093 ns, Reaching safepoint: 1354 ns, Cleanup: 1505 ns, At safepoint: 5706819 ns, Total: 5709678 ns\n\
        Safepoint \"ICBufferFull\", Time since last: 1 ns, Reaching safepoint: 467000000 ns, At safepoint: 3 ns, Leaving safepoint: 4 ns, Total: 467000007 ns, Threads: 0 runnable, 10 total\n\
        [2.0s][info][safepoint] Entering safepoint region: RevokeBias\n\
        [2.0s][info][safepoint] Leaving safepoint region\n\
        [2.0s][info][safepoint] Total time for which application threads were stopped: 0.0003502 seconds, Stopping threads took: 0,0000503 seconds\n\
        2012-05-23T08:32:10.809+0200: 1.5: Total time for which application threads were stopped: 0.0003502 seconds\n\
        Safepoint \"Broken\", Time since last: 1 ns, Reaching\n");
    let named = |name: &str| Some(name.to_owned());
    assert_eq!(
        seen.safepoints,
        [
            (named("G1CollectFull"), Some(1354), 5_709_678),
            (named("ICBufferFull"), Some(467_000_000), 467_000_007),
            (named("RevokeBias"), Some(50_300), 350_200),
            (None, None, 350_200),
        ]
    );
    assert_eq!(seen.unread, [(7, "a safepoint")]);
}

#[test]
fn what_looks_like_a_pause_and_is_damaged_is_not_dropped_in_silence() {
    let seen = all(b"[0.1s][info][gc] GC(1) Pause Young (Allocation Failure) 38M->17M(92M) 2.4\n\
        [0.1s][info][gc] GC(1) Pause Young (Allocation Failure) 38M->\n\
        [0.1s][info][gc,cpu] GC(1) User=0.0xs Sys=0.00s Real=0.00s\n\
        [0.1s][info][gc,start] GC(2) Pause Full (System.gc())\n\
        [0.1s][info][gc,start] GC(3) Pause Young (Allocation Failure)\n\
        [0.1s][info][gc] GC(3) Pause Young (Allocation Failure) 38M->17M(92M) 99999999999999999999ms\n\
        [0.2s][info][gc,start] GC(4) Pause Young (Alloc");
    assert_eq!(seen.pauses, []);
    let lines: Vec<u64> = seen.unread.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [1, 2, 3, 4, 6, 7]);
}

#[test]
fn a_full_collection_within_a_young_one_is_counted_once() {
    let seen = all(b"GC(12) Pause Young (Allocation Failure)\n\
        GC(13) Pause Full (Allocation Failure)\n\
        GC(13) Pause Full (Allocation Failure) 400M->300M(500M) 80.000ms\n\
        GC(12) Pause Young (Allocation Failure) 450M->300M(500M) 100.000ms\n\
        GC(12) User=0.10s Sys=0.00s Real=0.10s\n");
    assert_eq!(seen.nested, [true, false]);
    assert_eq!(seen.runs, [0, 0]);
    assert_eq!(seen.pauses.iter().map(|reported| reported.5).collect::<Vec<_>>(), [None, Some([10, 0, 10])]);
    assert_eq!(seen.unread, []);
}

#[test]
fn pauses_that_take_turns_keep_their_own_names() {
    let seen = all(b"GC(1) Pause Young (Allocation Failure) 1.000ms\n\
        GC(2) Pause Full (System.gc()) 1.000ms\n\
        GC(3) Pause Young (Allocation Failure) 1.000ms\n\
        GC(4) Pause Remark 1.000ms\n\
        GC(5) Pause Full (System.gc()) 1.000ms\n\
        GC(6) Pause Full (System.gc()) 1.000ms\n\
        7.0: [Full GC (Ergonomics) 1K->1K(2K), 0.001 secs]\n\
        GC(8) Pause 1.000ms\n");
    let names: Vec<_> =
        seen.pauses.iter().map(|reported| (reported.1.as_str(), reported.2.as_deref())).collect();
    let (young, full) = (("Young", Some("Allocation Failure")), ("Full", Some("System.gc()")));
    assert_eq!(
        names,
        [young, full, young, ("Remark", None), full, full, ("Full", Some("Ergonomics")), ("", None)]
    );
    assert_eq!(seen.unread, []);
}

#[test]
fn jvms_in_one_log_are_distinguished() {
    let pause =
        |stamp: &str, id: u32| format!("{stamp}GC({id}) Pause Full (System.gc()) 4M->3M(5M) 1.000ms\n");
    for (log, runs) in [
        // By the first line of every JVM, even if its own first lines are lost.
        (
            format!(
                "[0.1s][info][gc] Using G1\n{}[0.1s][info][gc] Using Serial\n{}",
                pause("[0.2s]", 0),
                pause("[0.2s]", 0)
            ),
            vec![0, 1],
        ),
        // By a decreasing uptime: the tag "exit" ends a JVM, not the file.
        (
            format!("{}[9.0s][info][gc,heap,exit] Heap\n{}", pause("[8.9s]", 5), pause("[0.2s]", 5)),
            vec![0, 1],
        ),
        // By the ids, in a log without timestamps.
        (format!("{}{}{}", pause("", 5), pause("", 6), pause("", 0)), vec![0, 0, 1]),
        (format!("{}{}", pause("[5000.0s]", 5), pause("[5000.1s]", 6)), vec![0, 0]),
        (format!("{}{}", pause("[5000000000000ns]", 5), pause("[2000000ns]", 6)), vec![0, 1]),
    ] {
        let seen = all(log.as_bytes());
        assert_eq!((seen.runs, seen.unread), (runs, vec![]), "{log}");
    }
}

#[test]
fn bytes_that_are_no_text_and_endless_lines_do_no_harm() {
    let mut log = b"\xff\0\xfe[0.1s][info][gc] GC(1) Pause Young (\xff) 38M->17M(92M) 2.400ms\n".to_vec();
    log.extend(vec![b'['; 300_000]);
    log.extend(b"\nGC(2) Pause Young (");
    log.extend(vec![b'x'; 300_000]);
    log.extend(b") 1.000ms\nGC(3) Pause Remark 1.000ms\n");
    let seen = all(&log);
    let kinds: Vec<_> = seen.pauses.iter().map(|reported| reported.0).collect();
    assert_eq!(kinds, [Some(1), Some(3)]);
    assert_eq!(seen.unread.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [3]);
}

const LOG: &[u8] = b"\
[0.033s][info][gc,start    ] GC(2) Pause Young (Normal) (G1 Evacuation Pause)
[0.038s][info][gc          ] GC(2) Pause Young (Normal) (G1 Evacuation Pause) 17M->6M(96M) 2.057ms
[0.038s][info][gc,cpu      ] GC(2) User=0.00s Sys=0.01s Real=0.00s
[0.038s][info][safepoint   ] Safepoint \"G1CollectForAllocation\", Time since last: 2853360 ns, Reaching safepoint: 933 ns, Cleanup: 2022 ns, At safepoint: 2071903 ns, Total: 2074858 ns
[0.040s][info][gc          ] GC(3) Concurrent Mark Cycle 16.1ms
[0.041s][info][gc,phases   ] GC(4) y: Pause Mark Start 0.006ms
163928,446: [GC 163928,446: [ParNew: 1K->1K(2K), 0,0123 secs]163928,452: [CMS163928,452: [CMS-concurrent-sweep: 1,100/1,200 secs] [Times: user=5,00 sys=5,00, real=5,00 secs]
 (concurrent mode failure): 6K->5K(7K), 3,5 secs] 8K->5K(10K), [CMS Perm : 5K->5K(6K)], 3,6 secs] [Times: user=3,50 sys=0,10, real=3,60 secs]
2012-05-23T08:32:10.809+0200: 1.5: Total time for which application threads were stopped: 0.0003502 seconds
4.0: [GC pause (G1 Evacuation Pause) (young), 0.0312 secs]
 [Times: user=0.10 sys=0.20, real=0.03 secs]
";

// Reading damaged logs ends without a panic and invents no events.
proptest! {
    #[test]
    fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        all(&bytes);
    }

    #[test]
    fn any_words_of_a_log_are_read(
        words in proptest::collection::vec(
            prop_oneof![
                "\\[GC|\\[Full GC|\\[|\\]| secs\\]|, 0\\.5 secs\\]|\\[Times: user=|0,5|\n| |GC\\(1\\) |Pause |Young |1\\.5ms",
                "User=|s Sys=|Safepoint \"|Reaching safepoint: |\\[0\\.1s\\]|Total: 5 ns|-- |#1: |\\(|\\)|->|\\PC",
            ],
            0..60,
        )
    ) {
        let log = words.concat();
        let seen = all(log.as_bytes());
        // Each pause, and each line that does not parse, contains "GC".
        prop_assert!(seen.pauses.len() <= log.matches("GC").count());
    }

    #[test]
    fn a_log_that_is_cut_off_loses_its_end_only(cut in 0..LOG.len()) {
        let (whole, part) = (all(LOG), all(&LOG[..cut]));
        prop_assert_eq!(whole.unread, vec![]);
        let all_but_last = part.pauses.len().saturating_sub(1);
        prop_assert_eq!(&part.pauses[..all_but_last], &whole.pauses[..all_but_last]);
        prop_assert!(part.pauses.len() <= whole.pauses.len());
        prop_assert!(part.unread.len() <= 1);
    }

    #[test]
    fn damage_costs_the_lines_around_it_only(at in 0..LOG.len(), byte: u8) {
        let mut damaged = LOG.to_vec();
        damaged[at] = byte;
        let seen = all(&damaged);
        let whole = all(LOG).pauses;
        let kept = whole.iter().filter(|pause| seen.pauses.contains(pause)).count();
        // Lost at most: a line joined with the next one, and the pause that an earlier line began.
        prop_assert!(kept + 2 >= whole.len(), "{kept} of {}", whole.len());
    }

    #[test]
    fn pieces_make_no_difference(cut in 0..LOG.len()) {
        let mut kinds = Vec::new();
        let mut reader = Reader::default();
        let mut take = |event: Event<'_>| if let Event::Pause(pause) = event { kinds.push(reported(&pause)) };
        let start = LOG[..cut].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let _ = reader.read(&LOG[..start], &mut take);
        let _ = reader.read(&LOG[start..], &mut take);
        reader.finish(&mut take);
        prop_assert_eq!(kinds, all(LOG).pauses);
    }
}
