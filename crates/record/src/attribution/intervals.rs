//! Time intervals, and the waits of threads in them.

use std::ops::Range;

use serde::Serialize;

use crate::recording::Cause;

/// Kind of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// Compaction: the kernel migrated pages to free contiguous memory.
    Compaction,
    /// Reclaim: the kernel searched for pages to free, or throttled the thread until pages were free.
    Reclaim,
}

impl From<Cause> for Wait {
    fn from(cause: Cause) -> Wait {
        match cause {
            Cause::Compaction => Wait::Compaction,
            Cause::Reclaim | Cause::MemcgReclaim | Cause::NodeReclaim | Cause::Throttled => Wait::Reclaim,
        }
    }
}

/// A wait of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Index into the gathered threads.
    pub thread: usize,
    pub wait: Wait,
    /// Begin and end, in nanoseconds of CLOCK_MONOTONIC.
    pub span: Range<u64>,
    /// Whether an attempt to allocate a huge page followed at once.
    pub for_huge: bool,
}

/// Sum of all values, saturating because a recording may hold any figures.
pub(super) fn sum(all: impl Iterator<Item = u64>) -> u64 {
    all.fold(0, u64::saturating_add)
}

/// Adds `more`, saturating for the same reason.
pub(super) fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

/// Length of the intersection.
pub(super) fn overlap(a: &Range<u64>, b: &Range<u64>) -> u64 {
    a.end.min(b.end).saturating_sub(a.start.max(b.start))
}

/// The stalls that overlap `span`; `sorted` must be ordered and free of overlaps.
pub(super) fn within<'a>(sorted: &'a [Stall], span: &'a Range<u64>) -> impl Iterator<Item = &'a Stall> {
    let first = sorted.partition_point(|stall| stall.span.end <= span.start);
    sorted[first..].iter().take_while(|stall| stall.span.start < span.end)
}

/// Length of the union.
pub(super) fn union<'a>(spans: impl Iterator<Item = &'a Range<u64>>) -> u64 {
    let mut spans: Vec<&Range<u64>> = spans.collect();
    spans.sort_by_key(|span| span.start);
    let (mut total, mut until) = (0, 0);
    for span in spans {
        total += span.end.saturating_sub(span.start.max(until));
        until = until.max(span.end);
    }
    total
}

/// Orders the stalls of one thread and one kind, and merges overlapping ones: throttling lies within the
/// reclaim that it belongs to.
pub(super) fn merge(mut stalls: Vec<Stall>) -> Vec<Stall> {
    stalls.sort_by_key(|stall| (stall.span.start, stall.span.end));
    let mut merged: Vec<Stall> = Vec::with_capacity(stalls.len());
    for stall in stalls {
        match merged.last_mut().filter(|last| stall.span.start < last.span.end) {
            Some(last) => {
                last.span.end = last.span.end.max(stall.span.end);
                last.for_huge |= stall.for_huge;
            }
            None => merged.push(stall),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stall(span: Range<u64>) -> Stall {
        Stall { thread: 0, wait: Wait::Reclaim, span, for_huge: false }
    }

    #[test]
    fn what_overlaps_counts_once() {
        assert_eq!(union([5..9, 1..3, 2..4, 6..7].iter()), 7);
        let merged = merge(vec![stall(5..9), stall(1..3), stall(6..7), stall(9..10)]);
        let spans: Vec<_> = merged.iter().map(|stall| stall.span.clone()).collect();
        assert_eq!(spans, [1..3, 5..9, 9..10]);
        let found: Vec<_> = within(&merged, &(2..9)).map(|stall| stall.span.clone()).collect();
        assert_eq!(found, [1..3, 5..9]);
    }

    proptest! {
        #[test]
        fn merging_keeps_the_time_in_any_window(
            spans in prop::collection::vec((0u64..100, 0u64..20), 0..30), from in 0u64..100, len in 0u64..50
        ) {
            let all: Vec<Range<u64>> = spans.iter().map(|(from, len)| *from..from + len).collect();
            let merged = merge(all.iter().cloned().map(stall).collect());
            let window = from..from + len;
            let found: u64 = within(&merged, &window).map(|stall| overlap(&stall.span, &window)).sum();
            let naive = (from..from + len).filter(|ns| all.iter().any(|span| span.contains(ns))).count();
            prop_assert_eq!(found, naive as u64);
        }
    }
}
