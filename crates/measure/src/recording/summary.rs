//! What is in a recording, in short.

use std::collections::{BTreeMap, BTreeSet};

use super::model::{Cause, Evidence, Line};

/// What is in a recording, in short; lines are added one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// From the begin to the last line with a time.
    pub began_ns: u64,
    /// The last time that stood in a line.
    pub last_ns: u64,
    /// The latest name of each thread that was seen.
    pub names: BTreeMap<u32, String>,
    /// Intervals by thread and cause.
    pub stalls: BTreeMap<(u32, Cause), Stalls>,
    /// Huge pages by thread.
    pub huge_pages: BTreeMap<u32, HugePages>,
    /// What was made of small pages, by thread and what became of it.
    pub collapses: BTreeMap<(u32, String), u64>,
    /// What the kernel accounted each thread for direct compaction and reclaim, in nanoseconds.
    pub delays: BTreeMap<u32, (u64, u64)>,
    /// Lines of JVM logs.
    pub log_lines: u64,
    /// What was lost, by evidence: how many that could be counted, and whether some could not.
    pub lost: BTreeMap<Evidence, (u64, bool)>,
    /// Notes.
    pub notes: Vec<String>,
    unnamed: BTreeSet<u32>,
}

/// Intervals of one thread and one cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stalls {
    /// How many.
    pub count: u64,
    /// How many of them have no begin or no end, and so no length.
    pub open: u64,
    /// All together, in nanoseconds.
    pub total_ns: u64,
    /// The longest.
    pub longest_ns: u64,
}

/// Huge pages that one thread asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HugePages {
    /// How many it got.
    pub got: u64,
    /// How many times there was none.
    pub failed: u64,
}

impl Summary {
    /// Adds a line.
    pub fn add(&mut self, line: &Line) {
        match line {
            Line::Header(header) => {
                (self.began_ns, self.last_ns) = (header.began_ns, header.began_ns);
            }
            Line::Thread(thread) => self.name(thread.tid, &thread.name),
            Line::ThreadEnd(end) => {
                self.name(end.usage.tid, &end.name);
                let compact = end.delays.compact.map_or(0, |delay| delay.ns);
                self.delays.insert(end.usage.tid, (compact, end.delays.reclaim.ns));
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
                for thread in &delays.threads {
                    let compact = thread.delays.compact.map_or(0, |delay| delay.ns);
                    self.delays.insert(thread.tid, (compact, thread.delays.reclaim.ns));
                }
            }
            Line::JvmLog(log) => self.log_lines += log.lines.len() as u64,
            Line::Lost(lost) => {
                let (count, uncounted) = self.lost.entry(lost.of).or_default();
                *count += lost.count.unwrap_or(0);
                *uncounted |= lost.count.is_none();
            }
            Line::Note(note) => self.notes.push(note.text.clone()),
            Line::End(end) => self.last_ns = self.last_ns.max(end.ns),
            Line::Machine(machine) => self.last_ns = self.last_ns.max(machine.ns),
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

    /// Threads with events and, so far, without a name; each is told once.
    pub(super) fn nameless(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.unnamed).into_iter().collect()
    }

    /// The intervals of one cause, over all threads.
    #[must_use]
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
