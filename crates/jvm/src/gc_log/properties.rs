//! Reading damaged logs ends without a panic and invents no events.

use proptest::prelude::*;

use super::{tests::all, *};

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
        let mut take = |event: Event<'_>| if let Event::Pause(pause) = event { kinds.push(tests::reported(&pause)) };
        let start = LOG[..cut].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let _ = reader.read(&LOG[..start], &mut take);
        let _ = reader.read(&LOG[start..], &mut take);
        reader.finish(&mut take);
        prop_assert_eq!(kinds, all(LOG).pauses);
    }
}
