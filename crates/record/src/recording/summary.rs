//! Summary of a recording.

use std::collections::{BTreeMap, BTreeSet};

use hugewise_linux::reading::Reading;

use super::model::{Cause, Evidence, Line, ThreadDelays, memory_waits_ns};

/// Summary of a recording, built line by line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Start of the recording, in nanoseconds of CLOCK_MONOTONIC.
    pub began_ns: u64,
    /// Latest time in the recording, in nanoseconds of CLOCK_MONOTONIC.
    pub last_ns: u64,
    /// Last name of each thread, by TID.
    pub names: BTreeMap<u32, String>,
    /// Waits by TID and cause.
    pub stalls: BTreeMap<(u32, Cause), Stalls>,
    /// Attempts to allocate huge pages, by TID.
    pub huge_pages: BTreeMap<u32, HugePages>,
    /// Number of collapses by TID, and event with result.
    pub collapses: BTreeMap<(u32, String), u64>,
    /// Direct compaction and direct reclaim by TID, from delay accounting, in nanoseconds.
    pub delays: BTreeMap<u32, (u64, u64)>,
    /// Growth of machine-wide counters during the recording.
    pub machine: BTreeMap<String, u64>,
    first_counters: Option<BTreeMap<String, u64>>,
    /// Number of lines of JVM logs.
    pub log_lines: u64,
    /// CPU time of the recorder, in nanoseconds; `None` if unknown.
    pub recorder_cpu_ns: Option<u64>,
    /// Lost evidence: number of counted losses, and whether there were losses without a count.
    pub lost: BTreeMap<Evidence, (u64, bool)>,
    pub notes: Vec<String>,
    unnamed: BTreeSet<u32>,
    /// Each kind of evidence with its source, or why it is missing.
    pub evidence: BTreeMap<Evidence, Reading<String>>,
}

/// Waits of one thread and one cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stalls {
    /// Number of waits.
    pub count: u64,
    /// Number of waits without begin or end, whose duration is unknown.
    pub open: u64,
    /// Total duration, in nanoseconds.
    pub total_ns: u64,
    /// Longest duration, in nanoseconds.
    pub longest_ns: u64,
}

/// Attempts of one thread to allocate huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HugePages {
    /// Number of successful attempts.
    pub got: u64,
    /// Number of failed attempts.
    pub failed: u64,
}

impl Summary {
    pub fn add(&mut self, line: &Line) {
        match line {
            Line::Header(header) => {
                (self.began_ns, self.last_ns) = (header.began_ns, header.began_ns);
                self.evidence.clone_from(&header.evidence);
            }
            Line::Thread(thread) => self.name(thread.tid, &thread.name),
            Line::ThreadEnd(end) => {
                self.name(end.usage.tid, &end.name);
                self.delays.insert(end.usage.tid, memory_waits_ns(&end.delays));
            }
            Line::Stall(stall) => {
                self.seen(stall.tid);
                let stalls = self.stalls.entry((stall.tid, stall.cause)).or_default();
                stalls.count += 1;
                match stall.duration_ns() {
                    Some(ns) => {
                        stalls.total_ns = stalls.total_ns.saturating_add(ns);
                        stalls.longest_ns = stalls.longest_ns.max(ns);
                    }
                    None => stalls.open += 1,
                }
            }
            Line::HugePage(page) => {
                self.seen(page.tid);
                let pages = self.huge_pages.entry(page.tid).or_default();
                *(if page.got { &mut pages.got } else { &mut pages.failed }) += 1;
            }
            Line::Collapse(collapse) => {
                self.seen(collapse.tid);
                let became = ["status", "result", "ret"].iter().find_map(|key| collapse.details.get(*key));
                let became = became.map_or_else(String::new, |value| format!(" {value}"));
                *self.collapses.entry((collapse.tid, format!("{}{became}", collapse.event))).or_default() +=
                    1;
            }
            Line::Delays(delays) => {
                let waits = |thread: &ThreadDelays| (thread.tid, memory_waits_ns(&thread.delays));
                self.delays.extend(delays.threads.iter().map(waits));
            }
            Line::JvmLog(log) => self.log_lines += log.lines.len() as u64,
            Line::Lost(lost) => {
                let (count, uncounted) = self.lost.entry(lost.of).or_default();
                *count += lost.count.unwrap_or(0);
                *uncounted |= lost.count.is_none();
            }
            Line::Note(note) => self.notes.push(note.text.clone()),
            Line::End(end) => {
                self.last_ns = self.last_ns.max(end.ns);
                self.recorder_cpu_ns = end.recorder_cpu_ns;
            }
            Line::Machine(machine) => {
                self.last_ns = self.last_ns.max(machine.ns);
                let first = self.first_counters.get_or_insert_with(|| machine.vmstat.clone());
                let grown = |(name, now): (&String, &u64)| {
                    let growth = now.saturating_sub(*first.get(name)?);
                    (growth > 0).then(|| (name.clone(), growth))
                };
                self.machine = machine.vmstat.iter().filter_map(grown).collect();
            }
            Line::Process(_) | Line::Usage(_) | Line::Memory(_) | Line::JvmLogSource(_) => {}
        }
    }

    fn name(&mut self, tid: u32, name: &str) {
        self.unnamed.remove(&tid);
        self.names.insert(tid, name.to_owned());
    }

    fn seen(&mut self, tid: u32) {
        if !self.names.contains_key(&tid) {
            self.unnamed.insert(tid);
        }
    }

    /// TIDs with events but without a name; each is returned once.
    pub(super) fn take_unnamed(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.unnamed).into_iter().collect()
    }

    /// Waits with one cause, over all threads.
    pub fn all_stalls(&self, cause: Cause) -> Stalls {
        let of_cause = self.stalls.iter().filter(|((_, of), _)| *of == cause);
        of_cause.fold(Stalls::default(), |all, (_, one)| Stalls {
            count: all.count + one.count,
            open: all.open + one.open,
            total_ns: all.total_ns.saturating_add(one.total_ns),
            longest_ns: all.longest_ns.max(one.longest_ns),
        })
    }
}

#[cfg(test)]
mod tests {
    use hugewise_linux::{
        proc::taskstats::{Delay, Delays},
        tracefs::Value,
    };

    use super::*;
    use crate::recording::model::{HugePage, Lost, Machine, Stall, Thread, ThreadEnd, ThreadUsage};

    fn stall(tid: u32, begin_ns: Option<u64>, end_ns: Option<u64>) -> Line {
        let details = BTreeMap::from([("status".to_owned(), Value::Word("success".to_owned()))]);
        Line::Stall(Stall { cause: Cause::Compaction, tid, begin_ns, end_ns, details })
    }

    fn machine(ns: u64, stalls: u64) -> Line {
        let vmstat = BTreeMap::from([("compact_stall".to_owned(), stalls), ("thp_split_page".to_owned(), 7)]);
        Line::Machine(Machine { ns, vmstat, pressure_some_ns: None, pools: vec![], available_bytes: None })
    }

    #[test]
    fn what_has_no_end_counts_and_has_no_length() {
        let mut summary = Summary::default();
        for line in [stall(7, Some(10), Some(40)), stall(7, Some(50), None), stall(8, Some(0), Some(100))] {
            summary.add(&line);
        }
        let of_7 = Stalls { count: 2, open: 1, total_ns: 30, longest_ns: 30 };
        assert_eq!(summary.stalls[&(7, Cause::Compaction)], of_7);
        let all = Stalls { count: 3, open: 1, total_ns: 130, longest_ns: 100 };
        assert_eq!(summary.all_stalls(Cause::Compaction), all);
        assert_eq!(summary.take_unnamed(), [7, 8]);
        assert!(summary.take_unnamed().is_empty());
    }

    #[test]
    fn names_losses_and_growth_are_kept() {
        let mut summary = Summary::default();
        let usage = ThreadUsage { tid: 9, user_ns: 1, sys_ns: 1, minor_faults: 1, major_faults: 0 };
        let compact = Some(Delay { count: 2, ns: 33 });
        let delays = Delays { compact, ..Delays::default() };
        let lost = |count| Line::Lost(Lost { ns: 1, of: Evidence::Events, count, reason: String::new() });
        let thread = Thread { ns: 1, tid: 7, pid: 7, name: "java".to_owned(), started_ticks: 1 };
        for line in [
            machine(5, 100),
            Line::HugePage(HugePage { ns: 6, tid: 7, order: 9, got: false }),
            Line::Thread(thread),
            lost(Some(3)),
            lost(None),
            Line::ThreadEnd(ThreadEnd { ns: 8, pid: Some(7), name: "GC".to_owned(), usage, delays }),
            machine(9, 104),
        ] {
            summary.add(&line);
        }
        assert_eq!(summary.names, BTreeMap::from([(7, "java".to_owned()), (9, "GC".to_owned())]));
        assert_eq!(summary.huge_pages[&7], HugePages { got: 0, failed: 1 });
        assert_eq!(summary.delays[&9], (33, 0));
        assert_eq!(summary.lost[&Evidence::Events], (3, true));
        assert_eq!(summary.machine, BTreeMap::from([("compact_stall".to_owned(), 4)]));
        assert!(summary.take_unnamed().is_empty());
    }
}
