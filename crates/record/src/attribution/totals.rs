//! What pauses add up to, and the waiting outside of them.

use std::collections::BTreeMap;

use super::{
    gathered::Gathered,
    intervals::{Stall, Wait, overlap, sum},
    split::{Explained, Split},
};

/// The window in which waiting outside of pauses is summed.
const SECOND_NS: u64 = 1_000_000_000;

/// All pauses together, and what lay outside of them. Times are nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// How many pauses.
    pub pauses: u64,
    /// How long they took.
    pub paused_ns: u64,
    /// How long it took to reach their safepoints.
    pub reaching_ns: u64,
    /// For how long of the pauses a thread of the collector waited.
    pub stalled_ns: u64,
    /// The same, where it was for a huge page.
    pub stalled_for_huge_ns: u64,
    /// For how long of reaching a thread of the application waited.
    pub reaching_stalled_ns: u64,
    /// The same, where it was for a huge page.
    pub reaching_stalled_for_huge_ns: u64,
    /// Time of the collector's threads; nothing where no pause could tell.
    pub split: Split,
    /// Pauses in which the kernel worked longer than the collector.
    pub suspects: u64,
    /// How long these took.
    pub suspects_ns: u64,
    /// Waiting that is no part of a pause, thread by thread, the longest first: all of the application's,
    /// and of the collector's what lay between pauses.
    pub outside: Vec<Outside>,
    /// All waiting of the recorded processes that was found, wherever it lay, by events.
    pub found: BTreeMap<Wait, WaitSum>,
    /// The same by the kernel's own accounting; nothing where it did not account.
    pub accounted: Option<BTreeMap<Wait, u64>>,
}

/// Waiting of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitSum {
    /// How often.
    pub count: u64,
    /// All together.
    pub ns: u64,
    /// The longest.
    pub longest_ns: u64,
    /// Of all, for a huge page.
    pub for_huge_ns: u64,
}

/// What a thread waited for outside of pauses.
#[derive(Clone, Debug, PartialEq)]
pub struct Outside {
    /// Which, by its place among those that were gathered.
    pub thread: usize,
    /// For what.
    pub wait: Wait,
    /// How often and how long.
    pub sum: WaitSum,
    /// The most of it for huge pages that began within one second.
    pub worst_second_ns: u64,
}

impl Totals {
    /// Of pauses that were explained.
    #[must_use]
    pub fn of(gathered: &Gathered, pauses: &[Explained]) -> Totals {
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
                let laid = laid(gathered, thread, stall);
                if laid == 0 {
                    let own = outside.entry(stall.wait).or_insert_with(|| Outside {
                        thread,
                        wait: stall.wait,
                        sum: WaitSum::default(),
                        worst_second_ns: 0,
                    });
                    own.sum.add(ns, stall.for_huge);
                    if stall.for_huge {
                        let second = seconds.entry((stall.wait, stall.span.start / SECOND_NS)).or_default();
                        *second = second.saturating_add(ns);
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

    fn add(&mut self, pause: &Explained) {
        let ns = pause.stop.span.end - pause.stop.span.start;
        self.pauses += 1;
        self.paused_ns = self.paused_ns.saturating_add(ns);
        self.stalled_ns = self.stalled_ns.saturating_add(pause.stalled_ns.unwrap_or(0));
        self.stalled_for_huge_ns =
            self.stalled_for_huge_ns.saturating_add(pause.stalled_for_huge_ns.unwrap_or(0));
        if let Some(reaching) = &pause.reaching {
            self.reaching_ns = self.reaching_ns.saturating_add(reaching.ns);
            self.reaching_stalled_ns = self.reaching_stalled_ns.saturating_add(reaching.stalled_ns);
            self.reaching_stalled_for_huge_ns =
                self.reaching_stalled_for_huge_ns.saturating_add(reaching.stalled_for_huge_ns);
        }
        if pause.is_suspect() {
            self.suspects += 1;
            self.suspects_ns = self.suspects_ns.saturating_add(ns);
        }
        self.split.add(&pause.split);
    }
}

impl Split {
    /// Adds another one: what is not known of one is the sum of the others.
    pub fn add(&mut self, other: &Split) {
        for (sum, more) in [
            (&mut self.compaction_ns, other.compaction_ns),
            (&mut self.reclaim_ns, other.reclaim_ns),
            (&mut self.zeroing_ns, other.zeroing_ns),
            (&mut self.first_touch_ns, other.first_touch_ns),
            (&mut self.other_system_ns, other.other_system_ns),
            (&mut self.user_ns, other.user_ns),
        ] {
            if let Some(more) = more {
                *sum = Some(sum.unwrap_or(0).saturating_add(more));
            }
        }
    }
}

impl WaitSum {
    fn add(&mut self, ns: u64, for_huge: bool) {
        self.count += 1;
        self.ns = self.ns.saturating_add(ns);
        self.longest_ns = self.longest_ns.max(ns);
        if for_huge {
            self.for_huge_ns = self.for_huge_ns.saturating_add(ns);
        }
    }
}

/// How much of a stall is a part of a pause: of a thread of the collector, in a pause of its JVM.
fn laid(gathered: &Gathered, thread: usize, stall: &Stall) -> u64 {
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

/// The kernel's own sums, of the threads of all processes.
fn accounted(gathered: &Gathered) -> Option<BTreeMap<Wait, u64>> {
    let mut sums: Option<BTreeMap<Wait, u64>> = None;
    for thread in gathered.threads.iter().filter(|thread| thread.accounted.is_some()) {
        let (compaction, reclaim) = thread.accounted?;
        let sums = sums.get_or_insert_with(BTreeMap::new);
        let compacted = sums.entry(Wait::Compaction).or_default();
        *compacted = compacted.saturating_add(compaction);
        let reclaimed = sums.entry(Wait::Reclaim).or_default();
        *reclaimed = reclaimed.saturating_add(reclaim);
    }
    sums
}
