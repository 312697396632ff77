//! Sums over all pauses, and the waits outside of pauses.

use std::collections::BTreeMap;

use super::{
    gathered::RecordingData,
    intervals::{Stall, Wait, add, overlap, sum},
    split::{Pause, TimeByActivity},
};

/// Window in which waits outside of pauses are summed, in nanoseconds.
const SECOND_NS: u64 = 1_000_000_000;

/// Sums over all pauses, and the waits outside of pauses. Times are in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// Number of pauses.
    pub pauses: u64,
    /// Total duration of the pauses.
    pub paused_ns: u64,
    /// Total time to safepoint.
    pub time_to_safepoint_ns: u64,
    /// Time within pauses with at least one waiting collector thread.
    pub stalled_ns: u64,
    /// The part of `stalled_ns` that was for huge pages.
    pub stalled_for_huge_ns: u64,
    /// Time within the time to safepoint with at least one waiting application thread.
    pub time_to_safepoint_stalled_ns: u64,
    /// The part of `time_to_safepoint_stalled_ns` that was for huge pages.
    pub time_to_safepoint_stalled_for_huge_ns: u64,
    /// Thread time of the collector by activity.
    pub split: TimeByActivity,
    /// Number of pauses with sys > user.
    pub sys_heavy: u64,
    /// Total duration of the pauses with sys > user.
    pub sys_heavy_ns: u64,
    /// Waits outside of pauses by thread, longest first: those of application threads, and those of collector
    /// threads between pauses.
    pub outside: Vec<Outside>,
    /// All waits of the recorded processes, from events.
    pub found: BTreeMap<Wait, WaitSum>,
    /// All waits of the recorded processes in nanoseconds, from delay accounting; `None` without it.
    pub accounted: Option<BTreeMap<Wait, u64>>,
}

/// Sum of the waits of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitSum {
    /// Number of waits.
    pub count: u64,
    /// Total duration, in nanoseconds.
    pub ns: u64,
    /// Longest wait, in nanoseconds.
    pub longest_ns: u64,
    /// The part of `ns` that was for huge pages.
    pub for_huge_ns: u64,
}

/// Waits of a thread outside of pauses.
#[derive(Clone, Debug, PartialEq)]
pub struct Outside {
    /// Index into [`RecordingData::threads`].
    pub thread: usize,
    pub wait: Wait,
    pub sum: WaitSum,
    /// Longest wait for huge pages within one second, in nanoseconds.
    pub worst_second_ns: u64,
}

impl Totals {
    /// The sums over `pauses`, and the waits outside of them.
    pub fn of(gathered: &RecordingData, pauses: &[Pause]) -> Totals {
        let mut totals = Totals::default();
        for pause in pauses {
            totals.add(pause);
        }
        for (thread, stalls) in gathered.stalls.iter().enumerate() {
            let mut outside: BTreeMap<Wait, Outside> = BTreeMap::new();
            let mut seconds: BTreeMap<(Wait, u64), u64> = BTreeMap::new();
            for stall in stalls {
                let ns = stall.span.end - stall.span.start;
                if gathered.is_own(thread) {
                    totals.found.entry(stall.wait).or_default().add(ns, stall.for_huge);
                }
                if time_in_pauses_ns(gathered, thread, stall) == 0 {
                    let own = outside.entry(stall.wait).or_insert_with(|| Outside {
                        thread,
                        wait: stall.wait,
                        sum: WaitSum::default(),
                        worst_second_ns: 0,
                    });
                    own.sum.add(ns, stall.for_huge);
                    if stall.for_huge {
                        let second = seconds.entry((stall.wait, stall.span.start / SECOND_NS)).or_default();
                        add(second, ns);
                        own.worst_second_ns = own.worst_second_ns.max(*second);
                    }
                }
            }
            totals.outside.extend(outside.into_values());
        }
        totals.outside.sort_by_key(|outside| std::cmp::Reverse(outside.sum.ns));
        totals.accounted = accounted(gathered);
        totals
    }

    fn add(&mut self, pause: &Pause) {
        let ns = pause.stop.span.end - pause.stop.span.start;
        self.pauses += 1;
        add(&mut self.paused_ns, ns);
        add(&mut self.stalled_ns, pause.stalled_ns.unwrap_or(0));
        add(&mut self.stalled_for_huge_ns, pause.stalled_for_huge_ns.unwrap_or(0));
        if let Some(before) = &pause.time_to_safepoint {
            add(&mut self.time_to_safepoint_ns, before.ns);
            add(&mut self.time_to_safepoint_stalled_ns, before.stalled_ns);
            add(&mut self.time_to_safepoint_stalled_for_huge_ns, before.stalled_for_huge_ns);
        }
        if pause.sys_exceeds_user() {
            self.sys_heavy += 1;
            add(&mut self.sys_heavy_ns, ns);
        }
        self.split.add(&pause.split);
    }
}

impl TimeByActivity {
    /// Adds `other`; an unknown part counts as 0 if the other is known.
    pub fn add(&mut self, other: &TimeByActivity) {
        for (sum, more) in [
            (&mut self.compaction_ns, other.compaction_ns),
            (&mut self.reclaim_ns, other.reclaim_ns),
            (&mut self.zeroing_ns, other.zeroing_ns),
            (&mut self.first_touch_ns, other.first_touch_ns),
            (&mut self.other_system_ns, other.other_system_ns),
            (&mut self.user_ns, other.user_ns),
        ] {
            if let Some(more) = more {
                add(sum.get_or_insert(0), more);
            }
        }
    }
}

impl WaitSum {
    fn add(&mut self, ns: u64, for_huge: bool) {
        self.count += 1;
        add(&mut self.ns, ns);
        self.longest_ns = self.longest_ns.max(ns);
        if for_huge {
            add(&mut self.for_huge_ns, ns);
        }
    }
}

/// The part of a stall that lies in pauses of its JVM, in nanoseconds; 0 for application threads.
fn time_in_pauses_ns(gathered: &RecordingData, thread: usize, stall: &Stall) -> u64 {
    let Some(pid) = gathered.threads[thread].pid.filter(|_| gathered.threads[thread].role.collects()) else {
        return 0;
    };
    let first = gathered.pauses.partition_point(|pause| pause.span.end <= stall.span.start);
    let in_pauses = gathered.pauses[first..]
        .iter()
        .take_while(|pause| pause.span.start < stall.span.end)
        .filter(|pause| pause.pid == pid)
        .map(|pause| overlap(&pause.span, &stall.span));
    sum(in_pauses)
}

/// Sums of delay accounting over all threads; `None` without it.
fn accounted(gathered: &RecordingData) -> Option<BTreeMap<Wait, u64>> {
    let accounted = || gathered.threads.iter().filter_map(|thread| thread.accounted);
    accounted().next()?;
    Some(BTreeMap::from([
        (Wait::Compaction, sum(accounted().map(|(compaction, _)| compaction))),
        (Wait::Reclaim, sum(accounted().map(|(_, reclaim)| reclaim))),
    ]))
}
