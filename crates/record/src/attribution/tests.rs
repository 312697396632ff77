//! Attribution of synthetic recordings.

use proptest::prelude::*;
use serde_json::json;

use super::{
    synthetic::{GC0, GC1, JVM, MAIN, MS, SyntheticRecording, explain},
    *,
};
use crate::recording::Evidence;

#[test]
fn stalls_are_attributed_to_threads_and_pauses() {
    let mut made = SyntheticRecording::seen();
    made.compaction(GC0, 900, 1100) // the second half lies in the pause
        .compaction(GC0, 1200, 1500)
        .compaction(GC1, 1400, 1600)
        .wait(GC1, "reclaim", 1600, 1650)
        .compaction(MAIN, 2000, 2460)
        .compaction(MAIN, 2600, 2700)
        .pause(1000, 2000, Some((20, 900)))
        .safepoint(999, 1000, 2000)
        .pause(2500, 2550, Some((20, 20)))
        .safepoint(2100, 2500, 2550);
    let explained = made.explained();
    let [first, second] = &explained.pauses[..] else { unreachable!("{:?}", explained.pauses) };
    let threads: Vec<_> = first
        .threads
        .iter()
        .map(|part| (explained.gathered.name(part.thread), part.compaction.ns / MS, part.compaction.count))
        .collect();
    assert_eq!(threads, [("GC Thread#0", 400, 2), ("GC Thread#1", 200, 1)]);
    assert_eq!(first.split.compaction_ns, Some(600 * MS));
    assert_eq!(first.split.reclaim_ns, Some(50 * MS));
    assert_eq!(first.stalled_ns, Some(550 * MS), "on the wall, together");
    assert_eq!(first.stalled_for_huge_ns, Some(500 * MS), "no allocation followed the reclaim");
    assert_eq!(second.stalled_ns, Some(0));
    let Some(time_to_safepoint) = &second.time_to_safepoint else { unreachable!("{second:?}") };
    assert_eq!((time_to_safepoint.ns, time_to_safepoint.stalled_for_huge_ns), (400 * MS, 360 * MS));
    assert_eq!(
        time_to_safepoint.blockers.iter().map(|(_, wait, ns)| (*wait, *ns)).collect::<Vec<_>>(),
        [(Wait::Compaction, 360 * MS)]
    );
    assert_eq!(explained.decision.verdict, Verdict::Thp);
    let because = VerdictReason::HugePagesInPauses { ns: 860 * MS, of_ns: 1451 * MS, worst: 0 };
    assert_eq!(explained.decision.because, because);
    let outside: Vec<_> = explained
        .totals
        .outside
        .iter()
        .map(|outside| (explained.gathered.name(outside.thread), outside.sum.ns / MS))
        .collect();
    assert_eq!(outside, [("java", 560)]);
    assert_eq!(explained.totals.found[&Wait::Compaction].ns, 1260 * MS);
}

#[test]
fn faults_of_fresh_memory_are_first_touch_and_never_huge_pages() {
    let mut made = SyntheticRecording::seen();
    made.pause(1000, 1300, Some((30, 500)))
        .machine(1000, 0)
        .sample(1400, GC0, 100_000, 250, 0)
        .sample(1400, GC1, 100_000, 250, 0)
        .machine(1400, 0);
    let explained = made.explained();
    assert_eq!(explained.decision.verdict, Verdict::FirstTouch);
    assert_eq!(explained.pauses[0].split.first_touch_ns, Some(500 * MS), "800 ms at most, and not above sys");
    assert_eq!(explained.pauses[0].split.other_system_ns, Some(0));
    let said: Vec<_> = actions::changes(&explained).iter().map(|change| change.what).collect();
    assert_eq!(said, [actions::ChangeKind::PreTouch, actions::ChangeKind::Thp]);

    let mut huge = SyntheticRecording::seen();
    huge.pause(1000, 1300, Some((30, 400))).sample(1400, GC0, 300, 400, 0);
    for at in 0..300 {
        huge.huge_page(GC0, 1000 + at, true);
    }
    let explained = huge.explained();
    assert_eq!(explained.decision.verdict, Verdict::FirstTouch);
    let split = explained.pauses[0].split;
    assert_eq!(
        (split.zeroing_ns, split.first_touch_ns),
        (Some(270 * MS), Some(0)),
        "what one thread had time for"
    );
}

/// The upper bound of first touch alone proves nothing: storms of system calls take the same system time.
#[test]
fn first_touch_is_named_only_if_its_lower_bound_explains_the_pauses() {
    let with_sample_at = |sampled: u64, least_touch_ns: Option<u64>, faults: u64, sys: u64| {
        let mut made = SyntheticRecording::seen();
        made.least_touch_ns = least_touch_ns;
        made.machine(sampled, 0).pause(1000, 1300, Some((30, sys)));
        made.sample(1400, GC0, faults, 300, 0).machine(1400, 0).explained().decision
    };
    let of = |least_touch_ns, faults, sys| with_sample_at(1000, least_touch_ns, faults, sys);
    assert_eq!(of(Some(1000), 300_000, 300).verdict, Verdict::FirstTouch);
    let time = TouchTime { ns: 270 * MS, least_ns: Some(30 * MS), system_ns: 300 * MS };
    let unproven = of(Some(100), 300_000, 300);
    assert_eq!(unproven.because, VerdictReason::FirstTouchPossible(time));
    assert_eq!(unproven.verdict, Verdict::Inconclusive);
    assert_eq!(of(None, 300_000, 300).verdict, Verdict::Inconclusive);
    // The faults may be of the pre-touch before the first pause.
    assert_eq!(with_sample_at(500, Some(1000), 300_000, 300).verdict, Verdict::Inconclusive);
    // Upper bound of 40 ms of 500 ms.
    assert_eq!(of(Some(1000), 10_000, 500).verdict, Verdict::Other);
}

/// One tick of 10 ms, in a run of 15 s with pauses of 22 ms.
#[test]
fn a_cause_that_takes_a_tick_of_a_run_is_no_alarm() {
    let mut server = SyntheticRecording::seen();
    server
        .pause(3000, 3007, Some((10, 0)))
        .pause(7000, 7008, Some((0, 10)))
        .pause(11_000, 11_007, Some((10, 0)))
        .sample(7100, GC0, 20_000, 10, 0)
        .machine(15_000, 0);
    assert_eq!(server.verdict(), Verdict::None);
    // Waits for huge pages that are as short do not matter either; a long pause does.
    assert_eq!(server.compaction(GC0, 7000, 7008).compaction(GC0, 11_000, 11_006).verdict(), Verdict::None);
    server.compaction(GC0, 12_000, 12_060).pause(12_000, 12_070, Some((10, 60)));
    assert_eq!(server.verdict(), Verdict::Thp);
}

/// A live server holds its port and its log file: its command line is not started a second time.
#[test]
fn the_command_line_of_a_process_that_was_attached_to_is_not_started_again() {
    let commands = |is_started: bool| -> Vec<String> {
        let mut made = SyntheticRecording::seen();
        made.compaction(GC0, 1000, 1400).pause(1000, 2000, Some((20, 900)));
        let text = made.text().replacen("\"started\":true", &format!("\"started\":{is_started}"), 1);
        let changes = actions::changes(&explain(&text));
        changes
            .into_iter()
            .flat_map(|change| [change.command, change.proof])
            .flatten()
            .map(|words| words.join(" "))
            .collect()
    };
    assert!(commands(true).iter().any(|line| line.contains("compare") && line.contains("java Main")));
    let of_live = commands(false);
    assert!(of_live.iter().any(|line| line == "hugewise plan --pid PID"), "{of_live:?}");
    // Its command line may be that of another user.
    let starts = |line: &&String| line.contains("java Main");
    assert_eq!(of_live.iter().find(starts), None);
}

#[test]
fn system_time_that_nothing_explains_is_something_else() {
    let mut made = SyntheticRecording::seen();
    made.pause(1000, 1300, Some((30, 500))).sample(1400, GC0, 10, 250, 0);
    let explained = made.explained();
    assert_eq!(explained.decision.verdict, Verdict::Other);
    assert!(
        matches!(explained.decision.because, VerdictReason::SystemTime { .. }),
        "{:?}",
        explained.decision
    );
}

/// ZGC's threads work concurrently, so that samples do not show their work in a pause.
#[test]
fn without_cpu_times_in_the_log_other_system_time_is_not_reported() {
    let mut made = SyntheticRecording::seen();
    made.pause(1000, 1001, None).sample(1400, GC0, 10, 300, 0);
    let explained = made.explained();
    let split = explained.pauses[0].split;
    assert_eq!((split.other_system_ns, split.user_ns), (None, None));
    assert!(split.first_touch_ns.is_some_and(|ns| ns <= MS), "{split:?}");
    let mut idle = SyntheticRecording::seen();
    idle.pause(1000, 1001, None).sample(1400, GC0, 0, 0, 0);
    assert_eq!(idle.explained().pauses[0].split.other_system_ns, Some(0));
}

/// A JVM rounds to 10 ms: in many pauses, sys exceeds user in one by rounding alone.
#[test]
fn one_short_pause_of_the_kernel_among_many_of_the_collector_does_not_matter() {
    for faults in [10, 20_000] {
        let mut made = SyntheticRecording::seen();
        for at in 0..20 {
            made.pause(1000 + 50 * at, 1030 + 50 * at, Some((50, 0)));
        }
        made.pause(2100, 2130, Some((10, 30))).sample(2200, GC0, faults, 30, 0);
        assert_eq!(made.verdict(), Verdict::None);
        assert_ne!(
            made.pause(2300, 2500, Some((10, 200))).sample(2600, GC0, faults, 200, 0).verdict(),
            Verdict::None
        );
    }
}

#[test]
fn a_collector_that_works_is_no_fault_of_the_kernel() {
    let mut made = SyntheticRecording::seen();
    made.pause(1000, 1300, Some((550, 20))).sample(1400, GC0, 100, 10, 0).compaction(GC0, 1000, 1002);
    assert_eq!(made.verdict(), Verdict::None);
}

#[test]
fn waiting_outside_of_pauses_counts_where_a_thread_hardly_answers() {
    let mut made = SyntheticRecording::seen();
    for at in 0..5 {
        made.compaction(MAIN, 5000 + 100 * at, 5050 + 100 * at);
    }
    made.pause(1000, 1001, None);
    let explained = made.explained();
    assert_eq!(explained.decision.verdict, Verdict::Thp);
    assert!(
        matches!(explained.decision.because, VerdictReason::HugePagesOutside { worst_second_ns, .. } if worst_second_ns == 250 * MS)
    );

    let mut seldom = SyntheticRecording::seen();
    for second in 0..50 {
        seldom.compaction(MAIN, 1000 * second, 1000 * second + 50);
    }
    assert_eq!(seldom.pause(1000, 1001, None).verdict(), Verdict::None);
}

#[test]
fn waiting_for_base_pages_is_not_attributed_to_huge_ones() {
    let mut made = SyntheticRecording::seen();
    made.wait(GC0, "reclaim", 1000, 1400).huge_page(GC0, 1900, true).pause(1000, 2000, Some((20, 900)));
    let explained = made.explained();
    assert_eq!(explained.pauses[0].stalled_for_huge_ns, Some(0), "the page came half a second later");
    assert_eq!(explained.decision.verdict, Verdict::Other);
}

#[test]
fn without_events_the_accounting_counts_or_that_no_process_waited() {
    let pause =
        |made: &mut SyntheticRecording| made.pause(1000, 1300, Some((30, 500))).machine(0, 100).verdict();
    let mut accounted = SyntheticRecording::new(&[Evidence::Delays, Evidence::Counters]);
    accounted.sample(1400, GC0, 10, 250, 200);
    assert_eq!(pause(&mut accounted), Verdict::Thp);
    let mut blind = SyntheticRecording::new(&[Evidence::Counters]);
    blind.machine(0, 100).machine(1400, 170);
    assert_eq!(blind.pause(1000, 1300, Some((30, 500))).verdict(), Verdict::Inconclusive);
    let mut no_waits = SyntheticRecording::new(&[Evidence::Counters]);
    no_waits.machine(1000, 100).sample(1400, GC0, 200_000, 500, 0).machine(1400, 100);
    assert_eq!(no_waits.pause(1000, 1300, Some((30, 500))).verdict(), Verdict::FirstTouch);
}

#[test]
fn lost_events_make_no_claim_unless_the_accounting_says_that_no_process_waited() {
    let lost = json!({"type": "lost", "ns": 0, "of": "events", "count": 40, "reason": "full"});
    let mut made = SyntheticRecording::seen();
    made.pause(1000, 1300, Some((30, 500))).add(lost.clone()).sample(1400, GC0, 200_000, 500, 150);
    assert_eq!(made.explained().decision.because, VerdictReason::Lost { count: 40 });
    let mut harmless = SyntheticRecording::seen();
    harmless.pause(1000, 1300, Some((30, 500))).add(lost).machine(1000, 0).sample(1400, GC0, 200_000, 500, 0);
    assert_eq!(harmless.verdict(), Verdict::FirstTouch);
}

#[test]
fn a_recording_of_nothing_shows_nothing() {
    let made = SyntheticRecording { evidence: vec![Evidence::Events], least_touch_ns: None, lines: vec![] };
    assert_eq!(made.explained().decision.because, VerdictReason::Empty);
}

#[test]
fn slow_safepoints_without_stalls_are_something_else() {
    let mut made = SyntheticRecording::seen();
    made.pause(1900, 1950, Some((80, 0))).safepoint(1000, 1900, 1950).machine(2000, 0);
    assert!(matches!(made.explained().decision.because, VerdictReason::TimeToSafepoint { .. }));
}

#[test]
fn a_number_that_another_thread_has_later_is_another_thread() {
    let mut made = SyntheticRecording::seen();
    let end = json!({"type": "thread_end", "ns": 1500 * MS, "pid": JVM, "name": "GC Thread#0", "tid": GC0, "user_ns": 0,
        "sys_ns": 0, "minor_faults": 0, "major_faults": 0, "delays": {"compact": null, "reclaim": {"count": 0, "ns": 0},
        "thrashing": null, "swap_in": {"count": 0, "ns": 0}, "copy_on_write": null, "cpu": {"count": 0, "ns": 0},
        "block_io": {"count": 0, "ns": 0}}});
    made.compaction(GC0, 1000, 1200).add(end).compaction(GC0, 1700, 1800);
    let gathered = made.explained().gathered;
    let of_gc0: Vec<_> = gathered.threads.iter().filter(|thread| thread.tid == GC0).collect();
    assert_eq!(of_gc0.len(), 2, "{of_gc0:?}");
    assert_eq!(gathered.stalls.iter().map(Vec::len).collect::<Vec<_>>(), [0, 1, 0, 1]);
}

prop_compose! {
    fn a_time()(time in prop_oneof![4 => 0u64..3000, 1 => Just(u64::MAX / MS)]) -> u64 { time }
}

fn anything() -> impl Strategy<Value = Vec<(u8, u32, u64, u64, u64)>> {
    prop::collection::vec((0u8..8, MAIN..GC1 + 2, a_time(), a_time(), any::<u64>()), 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn no_pause_holds_more_than_its_time(lines in anything()) {
        let mut made = SyntheticRecording::seen();
        for (kind, tid, a, b, n) in lines {
            let (from, to) = (a.min(b), a.max(b));
            match kind {
                0 if to - from < 100_000 => { made.pause(from, to, Some((n % 1000, n % 7000))); }
                1 => { made.wait(tid, "compaction", from, to); }
                2 => { made.wait(tid, "throttled", from, to); }
                3 => { made.wait(tid, "reclaim", to, from); }
                4 => { made.huge_page(tid, a, n % 2 == 0); }
                5 => { made.sample(a, tid, n, n % 100_000, n % 100_000); }
                6 => { made.machine(a, n); }
                _ => { made.safepoint(from, from, to); }
            }
        }
        let explained = made.explained();
        for pause in &explained.pauses {
            let ns = pause.stop.span.end - pause.stop.span.start;
            prop_assert!(pause.stalled_ns.is_some_and(|stalled| stalled <= ns));
            prop_assert!(pause.stalled_for_huge_ns <= pause.stalled_ns);
            for part in &pause.threads {
                prop_assert!(part.compaction.ns + part.reclaim.ns <= ns, "{part:?} of {ns}");
            }
            if let (Some(cpu), Some(zeroing), Some(touch)) =
                (pause.stop.cpu, pause.split.zeroing_ns, pause.split.first_touch_ns)
            {
                prop_assert!(zeroing + touch <= cpu.sys_ns);
            }
        }
        let _ = actions::changes(&explained);
    }
}
