//! Converts kernel events to lines; pairs of events become intervals.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use hugewise_linux::tracefs::{DamagedPage, Event, Format, Instance, Page, Record, TracefsError, Value};

use super::model::{Cause, Collapse, HugePage, Line, Stall};

/// Line, or part of a line, that an event becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Begin(Cause),
    End(Cause),
    /// A sleep, reported at its end.
    Slept,
    HugePage,
    Collapse,
}

/// The recorded events with the fields to keep. Migrations of single pages (`mm_migrate_pages`) and page
/// faults are left out: they are frequent, and intervals and counters cover them.
const KNOWN: [(&str, &str, Meaning, &[&str]); 16] = [
    ("compaction", "mm_compaction_begin", Meaning::Begin(Cause::Compaction), &[]),
    ("compaction", "mm_compaction_end", Meaning::End(Cause::Compaction), &["sync", "status"]),
    ("vmscan", "mm_vmscan_direct_reclaim_begin", Meaning::Begin(Cause::Reclaim), &["order"]),
    ("vmscan", "mm_vmscan_direct_reclaim_end", Meaning::End(Cause::Reclaim), &["nr_reclaimed"]),
    ("vmscan", "mm_vmscan_memcg_reclaim_begin", Meaning::Begin(Cause::MemcgReclaim), &["order"]),
    ("vmscan", "mm_vmscan_memcg_reclaim_end", Meaning::End(Cause::MemcgReclaim), &["nr_reclaimed"]),
    ("vmscan", "mm_vmscan_node_reclaim_begin", Meaning::Begin(Cause::NodeReclaim), &["nid", "order"]),
    ("vmscan", "mm_vmscan_node_reclaim_end", Meaning::End(Cause::NodeReclaim), &["nr_reclaimed"]),
    ("vmscan", "mm_vmscan_throttled", Meaning::Slept, &["nid", "usec_timeout", "usec_delayed"]),
    ("kmem", "mm_page_alloc", Meaning::HugePage, &[]),
    (
        "huge_memory",
        "mm_khugepaged_scan_pmd",
        Meaning::Collapse,
        &["referenced", "none_or_zero", "status", "unmapped"],
    ),
    ("huge_memory", "mm_khugepaged_scan_file", Meaning::Collapse, &["present", "swap", "result"]),
    ("huge_memory", "mm_khugepaged_collapse_file", Meaning::Collapse, &["is_shmem", "nr", "result"]),
    ("huge_memory", "mm_collapse_huge_page", Meaning::Collapse, &["isolated", "status"]),
    (
        "huge_memory",
        "mm_collapse_huge_page_isolate",
        Meaning::Collapse,
        &["none_or_zero", "referenced", "status"],
    ),
    ("huge_memory", "mm_collapse_huge_page_swapin", Meaning::Collapse, &["swapped_in", "referenced", "ret"]),
];

/// The PFN that `mm_page_alloc` reports for a failed allocation.
const NO_PAGE: u64 = u64::MAX;

/// Orders events by time and pairs them to intervals.
#[derive(Debug, Default)]
pub struct Events {
    formats: BTreeMap<u16, (usize, Format)>,
    /// TIDs of the recorder.
    ours: BTreeSet<u32>,
    /// Events that earlier events of another CPU may still precede.
    waiting: Vec<TimedEvent>,
    open: HashMap<(u32, Cause), (u64, Details)>,
    /// Number of pages that could not be parsed.
    pub damaged: u64,
}

type Details = BTreeMap<String, Value>;

#[derive(Debug)]
struct TimedEvent {
    ns: u64,
    tid: u32,
    known: usize,
    details: Details,
}

impl Events {
    /// Enables the events that the kernel has; returns their names, and those of missing events.
    ///
    /// `huge_order` is the PMD size in base pages, as a power of two.
    pub fn switch_on(
        instance: &Instance,
        huge_order: u32,
    ) -> Result<(Events, Vec<String>, Vec<String>), TracefsError> {
        let mut events = Events::default();
        let (mut on, mut missing) = (Vec::new(), Vec::new());
        let orders = format!("order >= {huge_order}");
        for (index, (system, name, meaning, _)) in KNOWN.into_iter().enumerate() {
            let filter = if meaning == Meaning::HugePage { orders.as_str() } else { "" };
            let shown = format!("{system}:{name}");
            match instance.enable(Event { system, name, filter })? {
                Some(format) => {
                    events.formats.insert(format.id, (index, format));
                    on.push(shown);
                }
                None => missing.push(shown),
            }
        }
        Ok((events, on, missing))
    }

    /// Ignores events of this thread from now on, as it belongs to the recorder.
    pub fn ignore_thread(&mut self, tid: u32) {
        self.ours.insert(tid);
    }

    /// Adds a page of the trace buffer.
    pub fn page(&mut self, page: Result<Page<'_>, DamagedPage>) {
        let Ok(page) = page else {
            self.damaged += 1;
            return;
        };
        for record in page {
            match record {
                Ok(record) => self.record(&record),
                Err(DamagedPage) => self.damaged += 1,
            }
        }
    }

    fn record(&mut self, record: &Record<'_>) {
        let Some((known, format)) = self.formats.get(&record.id) else { return };
        if self.ours.contains(&record.tid) {
            return;
        }
        let (_, _, meaning, kept) = KNOWN[*known];
        let names = if meaning == Meaning::HugePage { &["order", "pfn"][..] } else { kept };
        let value = |name: &&str| Some(((*name).to_owned(), format.value(record.bytes, name)?));
        let details = names.iter().filter_map(value).collect();
        self.waiting.push(TimedEvent { ns: record.ns, tid: record.tid, known: *known, details });
    }

    /// The lines for all events before `ns`, by time. The buffers of all CPUs must have been read after that
    /// time, so that no earlier event is missing.
    pub fn until(&mut self, ns: u64) -> Vec<Line> {
        self.waiting.sort_by_key(|happened| happened.ns);
        let later = self.waiting.partition_point(|happened| happened.ns < ns);
        let ready: Vec<TimedEvent> = self.waiting.drain(..later).collect();
        ready.into_iter().filter_map(|happened| self.line(happened)).collect()
    }

    fn line(&mut self, happened: TimedEvent) -> Option<Line> {
        let TimedEvent { ns, tid, known, details } = happened;
        let (_, name, meaning, _) = KNOWN[known];
        let number = |name: &str| match details.get(name) {
            Some(Value::Unsigned(number)) => Some(*number),
            _ => None,
        };
        Some(match meaning {
            Meaning::Begin(cause) => {
                // If another interval is open, its end was lost.
                let (begin, details) = self.open.insert((tid, cause), (ns, details))?;
                Line::Stall(Stall { cause, tid, begin_ns: Some(begin), end_ns: None, details })
            }
            Meaning::End(cause) => {
                let (begin_ns, begun) = self.open.remove(&(tid, cause)).unzip();
                let mut all: Details = begun.unwrap_or_default();
                all.extend(details);
                Line::Stall(Stall { cause, tid, begin_ns, end_ns: Some(ns), details: all })
            }
            Meaning::Slept => {
                let slept = number("usec_delayed")?.checked_mul(1000)?;
                let begin_ns = Some(ns.saturating_sub(slept));
                Line::Stall(Stall { cause: Cause::Throttled, tid, begin_ns, end_ns: Some(ns), details })
            }
            Meaning::HugePage => Line::HugePage(HugePage {
                ns,
                tid,
                order: u32::try_from(number("order")?).ok()?,
                got: number("pfn")? != NO_PAGE,
            }),
            Meaning::Collapse => Line::Collapse(Collapse { ns, tid, event: name.to_owned(), details }),
        })
    }

    /// The intervals that are still open at the end of the recording.
    pub fn left_open(&mut self) -> Vec<Line> {
        let stall = |((tid, cause), (begin, details))| {
            let begin_ns = Some(begin);
            Stall { cause, tid, begin_ns, end_ns: None, details }
        };
        let mut left: Vec<Stall> = self.open.drain().map(stall).collect();
        left.sort_by_key(|stall| (stall.begin_ns, stall.tid, stall.cause));
        left.into_iter().map(Line::Stall).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn known(name: &str) -> usize {
        KNOWN.iter().position(|known| known.1 == name).unwrap_or(usize::MAX)
    }

    fn happened(ns: u64, tid: u32, name: &str, details: &[(&str, u64)]) -> TimedEvent {
        let details = details.iter().map(|(name, value)| ((*name).to_owned(), Value::Unsigned(*value)));
        TimedEvent { ns, tid, known: known(name), details: details.collect() }
    }

    fn of(waiting: Vec<TimedEvent>) -> Events {
        Events { waiting, ..Events::default() }
    }

    fn stalls(lines: &[Line]) -> Vec<(u32, Option<u64>, Option<u64>)> {
        let stall = |line: &Line| match line {
            Line::Stall(stall) => Some((stall.tid, stall.begin_ns, stall.end_ns)),
            _ => None,
        };
        lines.iter().filter_map(stall).collect()
    }

    #[test]
    fn pairs_of_two_cpus_become_intervals_of_threads() {
        // Read CPU by CPU: the end on the first CPU precedes the begin on the second.
        let mut events = of(vec![
            happened(30, 7, "mm_compaction_end", &[("status", 8)]),
            happened(60, 7, "mm_compaction_begin", &[]),
            happened(10, 7, "mm_compaction_begin", &[]),
            happened(20, 8, "mm_compaction_begin", &[]),
            happened(5, 9, "mm_vmscan_direct_reclaim_end", &[]),
        ]);
        let lines = events.until(40);
        assert_eq!(stalls(&lines), [(9, None, Some(5)), (7, Some(10), Some(30))]);
        assert!(events.until(50).is_empty());
        assert!(events.until(61).is_empty(), "it has only begun");
        assert_eq!(stalls(&events.left_open()), [(8, Some(20), None), (7, Some(60), None)]);
    }

    #[test]
    fn an_end_that_was_lost_does_not_stretch_the_interval() {
        let mut events = of(vec![
            happened(10, 7, "mm_compaction_begin", &[]),
            happened(50, 7, "mm_compaction_begin", &[]),
            happened(60, 7, "mm_compaction_end", &[]),
        ]);
        assert_eq!(stalls(&events.until(u64::MAX)), [(7, Some(10), None), (7, Some(50), Some(60))]);
    }

    #[test]
    fn a_sleep_lies_before_its_event() {
        let mut events = of(vec![happened(5_000, 7, "mm_vmscan_throttled", &[("usec_delayed", 3)])]);
        assert_eq!(stalls(&events.until(u64::MAX)), [(7, Some(2_000), Some(5_000))]);
    }

    proptest! {
        #[test]
        fn whatever_is_lost_no_interval_is_stretched(
            all in prop::collection::vec((0u64..1000, 0u32..4, any::<bool>()), 0..60),
            sample_times in prop::collection::vec(0u64..1000, 0..4),
        ) {
            let name = |begins| if begins { "mm_compaction_begin" } else { "mm_compaction_end" };
            let waiting = all.iter().map(|(ns, tid, begins)| happened(*ns, *tid, name(*begins), &[]));
            let mut events = of(waiting.collect());
            let mut lines: Vec<Line> = sample_times.iter().flat_map(|ns| events.until(*ns)).collect();
            lines.extend(events.until(u64::MAX));
            lines.extend(events.left_open());
            let reported = stalls(&lines);
            let begins = reported.iter().filter(|(_, begin, _)| begin.is_some()).count();
            let ends = reported.iter().filter(|(.., end)| end.is_some()).count();
            let begun = all.iter().filter(|(.., begins)| *begins).count();
            prop_assert_eq!((begins, ends), (begun, all.len() - begun));
            // No event of the same thread lies within an interval.
            for (tid, begin, end) in reported {
                if let (Some(begin), Some(end)) = (begin, end) {
                    prop_assert!(begin <= end);
                    prop_assert!(!all.iter().any(|(ns, of, _)| *of == tid && begin < *ns && *ns < end));
                }
            }
        }
    }

    #[test]
    fn a_failed_allocation_is_reported() {
        let mut events = of(vec![
            happened(1, 7, "mm_page_alloc", &[("order", 9), ("pfn", NO_PAGE)]),
            happened(2, 7, "mm_page_alloc", &[("order", 9), ("pfn", 512)]),
        ]);
        let page = |ns, got| Line::HugePage(HugePage { ns, tid: 7, order: 9, got });
        assert_eq!(events.until(u64::MAX), [page(1, false), page(2, true)]);
    }
}
