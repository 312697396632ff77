//! Logs of JDK 8 and older, and the events read from them.

use crate::gc_log::tests::all;

/// A log; for each pause: kind, cause, start in ms, duration in µs, CPU time in 10 ms.
type Case = (&'static str, &'static [(&'static str, &'static str, Option<u64>, u64, Option<[u64; 3]>)]);

const PAUSES: [Case; 24] = [
    (
        "2012-05-23T08:32:10.809+0200: 133452.830: [GC-- [PSYoungGen: 1K->1K(2K)] 5K->6K(9K), 6.2500471 secs] [Times: user=12.67 sys=24.84, real=6.24 secs] ",
        &[("Young (promotion failed)", "", Some(133_452_830), 6_250_047, Some([1267, 2484, 624]))],
    ),
    (
        "2012-05-23T08:32:10.809+0200: [GC (Allocation Failure) [PSYoungGen: 1K->1K(2K)] 5K->6K(9K), 0.0124 secs] [Times: user=0.01 sys=0.00, real=0.01 secs] ",
        &[("Young", "Allocation Failure", Some(1_337_754_730_809), 12_400, Some([1, 0, 1]))],
    ),
    (
        "12,655: [GC [PSYoungGen: 1K->1K(2K)] 5K->6K(9K), 0,3541657 secs] [Times: user=0,22 sys=0,48, real=0,35 secs] ",
        &[("Young", "", Some(12_655), 354_165, Some([22, 48, 35]))],
    ),
    (
        "#7: [GC (Allocation Failure) #7: [ParNew: 1K->1K(2K), 0.0123 secs] 5K->6K(9K), 0.0124 secs] [Times: user=0.01 sys=0.00, real=0.01 secs]",
        &[("Young", "Allocation Failure", None, 12_400, Some([1, 0, 1]))],
    ),
    ("[GC 5K->6K(9K), 0.0124 secs]", &[("Young", "", None, 12_400, None)]),
    ("[Full GC (System.gc()) 5K->6K(9K), 0.0124 secs]", &[("Full", "System.gc()", None, 12_400, None)]),
    (
        "1.0: [GC (Allocation Failure) 5K->6K(9K), 0.5 secs] [Invalid result in TraceCPUTime] \n",
        &[("Young", "Allocation Failure", Some(1000), 500_000, None)],
    ),
    (
        "3.5: [Full GC (Ergonomics) [PSYoungGen: 2K->0K(3K)] [ParOldGen: 6K->5K(7K)] 8K->5K(10K), [Metaspace: 2K->2K(1056768K)], 0.0345 secs] [Times: user=0.05 sys=0.01, real=0.03 secs] ",
        &[("Full", "Ergonomics", Some(3500), 34_500, Some([5, 1, 3]))],
    ),
    // Concurrent phases are not pauses, and their CPU times belong to no pause.
    (
        "1.0: [GC (CMS Initial Mark) [1 CMS-initial-mark: 2K(5K)] 3K(8K), 0.0012 secs] [Times: user=0.01 sys=0.00, real=0.00 secs] \n\
         1.1: [CMS-concurrent-mark-start]\n\
         1.2: [CMS-concurrent-mark: 0.010/0.010 secs] [Times: user=5.00 sys=5.00, real=5.00 secs] \n\
         1.3: [GC (CMS Final Remark) [YG occupancy: 2 K (4 K)]1.3: [Rescan (parallel) , 0.0021 secs]1.3: [weak refs processing, 0.0000130 secs][1 CMS-remark: 2K(5K)] 3K(8K), 0.0045 secs] [Times: user=0.02 sys=0.00, real=0.01 secs] ",
        &[
            ("Initial Mark", "CMS Initial Mark", Some(1000), 1200, Some([1, 0, 0])),
            ("Remark", "CMS Final Remark", Some(1300), 4500, Some([2, 0, 1])),
        ],
    ),
    // A concurrent phase interleaves with a pause, and both have CPU times.
    (
        "163928,446: [GC 163928,446: [ParNew: 1K->1K(2K), 0,0123 secs]163928,452: [CMS163928,452: [CMS-concurrent-sweep: 1,100/1,200 secs] [Times: user=5,00 sys=5,00, real=5,00 secs] \n\
         \x20(concurrent mode failure): 6K->5K(7K), 3,5 secs] 8K->5K(10K), [CMS Perm : 5K->5K(6K)], 3,6 secs] [Times: user=3,50 sys=0,10, real=3,60 secs] ",
        &[("Young (concurrent mode failure)", "", Some(163_928_446), 3_600_000, Some([350, 10, 360]))],
    ),
    (
        "5.0: [GC 5.0: [ParNew (promotion failed): 1K->1K(2K), 0.89 secs]5.9: [CMS: 6K->5K(7K), 2.97 secs] 8K->5K(10K), 3.87 secs] [Times: user=4.80 sys=0.16, real=3.88 secs] ",
        &[("Young (promotion failed)", "", Some(5000), 3_870_000, Some([480, 16, 388]))],
    ),
    (
        "3.398: [Full GC 3.398: [CMS (concurrent mode failure)[YG occupancy: 594957 K (1887488 K)]3.489: [weak refs processing, 0.0000140 secs]: 0K->0K(6K), 0.1308660 secs] 5K->5K(8K), [CMS Perm : 2K->2K(2K)], 0.1310260 secs] [Times: user=0.13 sys=0.03, real=0.14 secs]",
        &[("Full (concurrent mode failure)", "", Some(3398), 131_026, Some([13, 3, 14]))],
    ),
    // Class unloading is logged inside the pause.
    (
        "7.0: [Full GC [Unloading class sun.reflect.Accessor1]\n[Unloading class sun.reflect.Accessor2]\n 5K->5K(8K), 0.25 secs]\n",
        &[("Full", "", Some(7000), 250_000, None)],
    ),
    // Survivor ages are logged inside a line.
    (
        "2.0: [GC (Allocation Failure) 2.0: [ParNew\nDesired survivor size 1 bytes, new threshold 6 (max 6)\n- age   1:  10 bytes,  10 total\n: 1K->1K(2K), 0.0123 secs] 5K->6K(9K), 0.0124 secs] [Times: user=0.01 sys=0.00, real=0.01 secs] ",
        &[("Young", "Allocation Failure", Some(2000), 12_400, Some([1, 0, 1]))],
    ),
    (
        "2.0: [GC\nDesired survivor size 1 bytes, new threshold 6 (max 6)\n[PSYoungGen: 1K->1K(2K)] 5K->6K(9K), 0.0124 secs]",
        &[("Young", "", Some(2000), 12_400, None)],
    ),
    // G1 with details writes the CPU times on a line of their own.
    (
        "4.0: [GC pause (G1 Evacuation Pause) (young), 0.0312 secs]\n   [Parallel Time: 28.9 ms, GC Workers: 8]\n      [GC Worker Start (ms): Min: 1.0, Avg: 1.1]\n   [Eden: 24.0M(24.0M)->0.0B(13.0M) Survivors: 0.0B->3.0M Heap: 24.0M(256.0M)->5.0M(256.0M)]\n [Times: user=0.10 sys=0.20, real=0.03 secs] \n",
        &[("Young", "G1 Evacuation Pause", Some(4000), 31_200, Some([10, 20, 3]))],
    ),
    // With details G1 splits the header …
    (
        "312.6: [GC pause (young)2012-05-23T08:32:10.809+0200: 312.680: [GC concurrent-mark-start]\n (initial-mark), 0.28645100 secs]\n",
        &[("Young (Concurrent Start)", "", Some(312_600), 286_451, None)],
    ),
    // … and logs its decisions inside it.
    (
        "4.0: [GC pause (G1 Evacuation Pause) (mixed) 4.0: [G1Ergonomics (CSet Construction) start choosing CSet, _pending_cards: 1]\n 4.0: [G1Ergonomics (CSet Construction) finish]\n (to-space exhausted), 0.1 secs]\n",
        &[("Young (Mixed) (to-space exhausted)", "G1 Evacuation Pause", Some(4000), 100_000, None)],
    ),
    (
        "5.0: [GC concurrent-mark-end, 0.1 secs]\n5.1: [GC remark 5.1: [Finalize Marking, 0.001 secs] 5.1: [GC ref-proc, 0.002 secs] 5.1: [Unloading, 0.003 secs], 0.0070 secs]\n [Times: user=0.01 sys=0.00, real=0.01 secs] \n5.2: [GC cleanup 20M->18M(256M), 0.0006 secs]\n [Times: user=0.00 sys=0.00, real=0.00 secs] \n",
        &[
            ("Remark", "", Some(5100), 7000, Some([1, 0, 1])),
            ("Cleanup", "", Some(5200), 600, Some([0, 0, 0])),
        ],
    ),
    (
        "6.0: [GC (Allocation Failure) --[PSYoungGen: 1K->1K(2K)] 5K->6K(9K), 0.25 secs] [Times: user=0.01 sys=0.00, real=0.25 secs]",
        &[("Young (promotion failed)", "Allocation Failure", Some(6000), 250_000, Some([1, 0, 25]))],
    ),
    // A collection interrupts a concurrent phase, which continues after it.
    (
        "1.0: [CMS-concurrent-abortable-preclean1.1: [GC 1.1: [ParNew: 1K->1K(2K), 0.0123 secs] 5K->6K(9K), 0.0124 secs] [Times: user=0.01 sys=0.00, real=0.01 secs]\n: 0.5/1.0 secs] [Times: user=5.00 sys=5.00, real=5.00 secs]\n",
        &[("Young", "", Some(1100), 12_400, Some([1, 0, 1]))],
    ),
    (
        "0.427: [Pause Init Mark, 0.419 ms]\n0.428: [Concurrent marking 12M->13M(64M), 0.041 ms]\n0.430: [Pause Full 12M->13M(64M), 1.25 ms]\n",
        &[("Init Mark", "", Some(427), 419, None), ("Full", "", Some(430), 1250, None)],
    ),
    // An application writes to the same file.
    (
        "hello1.0: [GC (Metadata GC Threshold) 5K->6K(9K), 0.5 secs]hello\nGC is a word, [GC too\n",
        &[("Young", "Metadata GC Threshold", Some(1000), 500_000, None)],
    ),
    (
        "{Heap before GC invocations=1 (full 0):\n PSYoungGen total 9K\n1.0: [GC (Allocation Failure) [PSYoungGen: 1K->1K(2K)] 5K->6K(9K), 0.5 secs] [Times: user=0.01 sys=0.00, real=0.50 secs] \nHeap after GC invocations=1 (full 0):\n}\n",
        &[("Young", "Allocation Failure", Some(1000), 500_000, Some([1, 0, 50]))],
    ),
];

#[test]
fn every_form_is_read() {
    for (log, expected) in PAUSES {
        let seen = all(log.as_bytes());
        let found: Vec<_> = seen
            .pauses
            .iter()
            .map(|reported| {
                (
                    reported.1.as_str(),
                    reported.2.as_deref().unwrap_or_default(),
                    reported.3,
                    reported.4,
                    reported.5,
                )
            })
            .collect();
        assert_eq!(found, expected, "{log}");
    }
}

#[test]
fn damage_is_reported_and_harms_no_neighbour() {
    let log = b"1.0: [GC (Allocation Failure) [PSYoungGen: 1K->\n\
        2.0: [GC (Allocation Failure) 5K->6K(9K), 0.5 secs] [Times: user=0.01 sys=0.00, real=0.5x secs]\n\
        3.0: [GC (Allocation Failure) 5K->6K(9K), 0.5 se]\n\
        4.0: [GC (Allocation Failure) 5K->6K(9K), 0.5 secs] [Times: user=0.01 sys=0.00, real=0.50 secs]\n\
        5.0: [GC (Alloc";
    let seen = all(log);
    let starts: Vec<_> = seen.pauses.iter().map(|reported| (reported.3, reported.5)).collect();
    assert_eq!(starts, [(Some(2000), None), (Some(4000), Some([1, 0, 50]))]);
    let lines: Vec<u64> = seen.unread.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [1, 2, 3, 5]);
}

#[test]
fn an_age_that_falls_is_the_next_jvm() {
    let seen = all(b"100.0: [GC 5K->6K(9K), 0.5 secs]\n99.9: [GC 5K->6K(9K), 0.5 secs]\n0.5: [GC 5K->6K(9K), 0.5 secs]\n");
    assert_eq!(seen.runs, [0, 0, 1]);
}
