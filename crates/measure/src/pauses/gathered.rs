//! The lines of a recording, put in order.

use std::{
    collections::{BTreeMap, HashMap},
    io::Read,
};

use hugewise_jvm::threads::Role;
use hugewise_kernel::taskstats::Delays;

use super::{
    log::{Log, LogSource, Safepoint, Stop},
    spans::{Stall, Wait, merge},
};
use crate::recording::{
    Ending, Evidence, Header, Line, Machine, Memory, Process, Reader, Stall as Recorded, ThreadUsage,
};

/// An allocation follows the waiting for it at once; the thread may lose its CPU in between.
const SOON_NS: u64 = 100_000_000;

/// All of a recording.
#[derive(Debug)]
pub struct Gathered {
    /// Of what it is, and by what means.
    pub header: Header,
    /// How the file ends.
    pub ending: Option<Ending>,
    /// The last moment of which there is something in it.
    pub last_ns: u64,
    /// Processes that were seen, by their latest command line.
    pub processes: BTreeMap<u32, Process>,
    /// Threads that were seen.
    pub threads: Vec<Thread>,
    /// Waiting, thread by thread and in the order of its times.
    pub stalls: Vec<Vec<Stall>>,
    /// Waits without a begin or an end, which have no length.
    pub open_stalls: u64,
    /// Huge pages that threads asked for, in the order of the times.
    pub huge_pages: Vec<HugePageAt>,
    /// What threads did between two looks.
    pub steps: Vec<Step>,
    /// Pauses, in the order of their times.
    pub pauses: Vec<Stop>,
    /// Safepoints, in the order of their times.
    pub safepoints: Vec<Safepoint>,
    /// The logs that they are from.
    pub logs: Vec<LogSource>,
    /// The memory of processes over time.
    pub memory: Vec<Memory>,
    /// How much counters of the whole machine grew.
    pub machine: BTreeMap<String, u64>,
    /// What was lost: how many that could be counted, and whether some could not.
    pub lost: BTreeMap<Evidence, (u64, bool)>,
    /// Notes.
    pub notes: Vec<String>,
    /// Lines that could not be read, the first of them with the reason.
    pub unread: (u64, Option<String>),
}

/// A thread.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    /// Its number.
    pub tid: u32,
    /// That of its process, where it was seen.
    pub pid: Option<u32>,
    /// Its last name; nothing where it ended before it could be read.
    pub name: Option<String>,
    /// What it is for, if its process is a JVM.
    pub role: Role,
    /// What the kernel accounted it for direct compaction and reclaim, in nanoseconds; nothing where
    /// it accounted for nothing.
    pub accounted: Option<(u64, u64)>,
}

/// A thread asked for a huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePageAt {
    /// When it was answered.
    pub ns: u64,
    /// Which thread, by its place among those that were gathered.
    pub thread: usize,
    /// Did it get the page?
    pub got: bool,
}

/// What a thread did between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Which thread, by its place among those that were gathered.
    pub thread: usize,
    /// From the look before, in nanoseconds of CLOCK_MONOTONIC.
    pub from_ns: u64,
    /// To this look.
    pub to_ns: u64,
    /// CPU time in the kernel, by ticks.
    pub sys_ns: u64,
    /// Page faults that needed no I/O; of base pages and of huge ones.
    pub minor_faults: u64,
    /// Accounted for direct compaction.
    pub compaction_ns: u64,
    /// Accounted for direct reclaim.
    pub reclaim_ns: u64,
}

impl Gathered {
    /// Reads a recording to its end. A line that cannot be understood is counted.
    pub fn read<R: Read>(mut reader: Reader<R>) -> Gathered {
        let header = reader.header().clone();
        let mut gathering = Gathering::new(&header);
        let mut unread = (0, None);
        for line in reader.by_ref() {
            match line {
                Ok(line) => gathering.add(line),
                Err(error) => {
                    unread.0 += 1;
                    unread.1.get_or_insert_with(|| error.to_string());
                }
            }
        }
        gathering.end(header, reader.ending(), unread)
    }

    /// The thread's name, for people.
    #[must_use]
    pub fn name(&self, thread: usize) -> &str {
        self.threads.get(thread).and_then(|thread| thread.name.as_deref()).unwrap_or("?")
    }

    /// Is there evidence of this kind?
    #[must_use]
    pub fn has(&self, evidence: Evidence) -> bool {
        self.header.evidence.get(&evidence).is_some_and(|reading| reading.known().is_some())
    }

    /// From its begin to the last moment, in nanoseconds.
    #[must_use]
    pub fn elapsed_ns(&self) -> u64 {
        self.last_ns.saturating_sub(self.header.began_ns)
    }
}

/// What was gathered so far.
#[derive(Default)]
struct Gathering {
    last_ns: u64,
    processes: BTreeMap<u32, Process>,
    threads: Vec<Thread>,
    /// The thread that has this number now, and what it has used so far.
    current: HashMap<u32, Current>,
    stalls: Vec<Stall>,
    open_stalls: u64,
    huge_pages: Vec<HugePageAt>,
    steps: Vec<Step>,
    /// When threads were looked at last.
    look_ns: u64,
    started: bool,
    logs: BTreeMap<u32, Log>,
    memory: Vec<Memory>,
    counters: Option<(Machine, Machine)>,
    lost: BTreeMap<Evidence, (u64, bool)>,
    notes: Vec<String>,
}

struct Current {
    thread: usize,
    started_ticks: Option<u64>,
    usage: Option<ThreadUsage>,
    delays: Option<Delays>,
    /// Waits that no allocation has followed yet.
    waited: Vec<usize>,
}

impl Gathering {
    fn new(header: &Header) -> Gathering {
        Gathering {
            last_ns: header.began_ns,
            look_ns: header.began_ns,
            started: header.started,
            ..Gathering::default()
        }
    }

    fn add(&mut self, line: Line) {
        match line {
            Line::Header(_) => {}
            Line::Process(process) => {
                self.seen(process.ns);
                self.processes.insert(process.pid, process);
            }
            Line::Thread(thread) => self.thread(thread),
            Line::Stall(stall) => self.stall(&stall),
            Line::HugePage(page) => {
                self.seen(page.ns);
                self.huge_page(page.ns, page.tid, page.got);
            }
            Line::Collapse(collapse) => self.seen(collapse.ns),
            Line::Usage(usage) => {
                self.seen(usage.ns);
                usage.threads.into_iter().for_each(|used| self.used(usage.ns, used));
            }
            Line::Delays(delays) => {
                self.seen(delays.ns);
                delays.threads.into_iter().for_each(|of| self.delayed(delays.ns, of.tid, of.delays));
            }
            Line::ThreadEnd(end) => {
                self.seen(end.ns);
                let thread = self.current(end.usage.tid).thread;
                let thread = &mut self.threads[thread];
                thread.pid = thread.pid.or(end.pid);
                thread.role = Role::of(&end.name);
                thread.name = Some(end.name);
                self.used(end.ns, end.usage);
                self.delayed(end.ns, end.usage.tid, end.delays);
                self.current.remove(&end.usage.tid);
            }
            Line::Machine(machine) => {
                self.seen(machine.ns);
                // A look ends with the machine.
                self.look_ns = machine.ns;
                match &mut self.counters {
                    Some((_, last)) => *last = machine,
                    None => self.counters = Some((machine.clone(), machine)),
                }
            }
            Line::Memory(memory) => {
                self.seen(memory.ns);
                self.memory.push(memory);
            }
            Line::JvmLogSource(source) => {
                self.seen(source.ns);
                self.logs
                    .entry(source.pid)
                    .or_insert_with(|| Log::new(source.pid, source.source, source.monotonic));
            }
            Line::JvmLog(log) => {
                self.seen(log.ns);
                if let Some(known) = self.logs.get_mut(&log.pid) {
                    known.add(log.ns, &log.lines);
                }
            }
            Line::Lost(lost) => {
                let sum = self.lost.entry(lost.of).or_default();
                sum.0 = sum.0.saturating_add(lost.count.unwrap_or(0));
                sum.1 |= lost.count.is_none();
            }
            Line::Note(note) => self.notes.push(note.text),
            Line::End(end) => self.seen(end.ns),
        }
    }

    fn seen(&mut self, ns: u64) {
        self.last_ns = self.last_ns.max(ns);
    }

    /// Who has this number now; somebody not named yet, if nobody had it.
    fn current(&mut self, tid: u32) -> &mut Current {
        let threads = &mut self.threads;
        self.current.entry(tid).or_insert_with(|| {
            threads.push(Thread { tid, pid: None, name: None, role: Role::Application, accounted: None });
            Current {
                thread: threads.len() - 1,
                started_ticks: None,
                usage: None,
                delays: None,
                waited: Vec::new(),
            }
        })
    }

    fn thread(&mut self, thread: crate::recording::Thread) {
        self.seen(thread.ns);
        let ticks = Some(thread.started_ticks);
        // Another one of the same number, of which the end was not told.
        if self
            .current
            .get(&thread.tid)
            .is_some_and(|old| old.started_ticks.is_some_and(|old| Some(old) != ticks))
        {
            self.current.remove(&thread.tid);
        }
        let current = self.current(thread.tid);
        current.started_ticks = ticks;
        let known = current.thread;
        let known = &mut self.threads[known];
        known.pid = Some(thread.pid);
        known.role = Role::of(&thread.name);
        known.name = Some(thread.name);
    }

    fn stall(&mut self, stall: &Recorded) {
        let (Some(begin), Some(end)) = (stall.begin_ns, stall.end_ns) else {
            self.open_stalls += 1;
            return;
        };
        self.seen(end);
        let at = self.stalls.len();
        let current = self.current(stall.tid);
        current.waited.push(at);
        let thread = current.thread;
        let span = begin..end.max(begin);
        self.stalls.push(Stall { thread, wait: Wait::from(stall.cause), span, for_huge: false });
    }

    /// What the thread waited for before it, one wait soon after the other, was for this page.
    fn huge_page(&mut self, ns: u64, tid: u32, got: bool) {
        let current = self.current(tid);
        let (thread, waited) = (current.thread, std::mem::take(&mut current.waited));
        let mut before = ns;
        for at in waited.into_iter().rev() {
            let stall = &mut self.stalls[at];
            if before.saturating_sub(stall.span.end) > SOON_NS {
                break;
            }
            stall.for_huge = true;
            before = before.min(stall.span.start);
        }
        self.huge_pages.push(HugePageAt { ns, thread, got });
    }

    /// Its first figures are of what it did before the recording, unless it was started by it.
    fn used(&mut self, ns: u64, used: ThreadUsage) {
        let (started, from_ns) = (self.started, self.look_ns);
        let current = self.current(used.tid);
        let begin = ThreadUsage { tid: used.tid, user_ns: 0, sys_ns: 0, minor_faults: 0, major_faults: 0 };
        let before = current.usage.replace(used).or(started.then_some(begin));
        let thread = current.thread;
        if let Some(before) = before {
            self.steps.push(Step {
                thread,
                from_ns,
                to_ns: ns,
                sys_ns: used.sys_ns.saturating_sub(before.sys_ns),
                minor_faults: used.minor_faults.saturating_sub(before.minor_faults),
                ..Step::default()
            });
        }
    }

    fn delayed(&mut self, ns: u64, tid: u32, delays: Delays) {
        let (started, from_ns) = (self.started, self.look_ns);
        let current = self.current(tid);
        let waited = |delays: &Delays| (delays.compact.map_or(0, |delay| delay.ns), delays.reclaim.ns);
        let before = current.delays.replace(delays).or(started.then(Delays::default));
        let (now, thread) = (waited(&delays), current.thread);
        let Some(before) = before.as_ref().map(waited) else { return };
        let step = Step {
            thread,
            from_ns,
            to_ns: ns,
            compaction_ns: now.0.saturating_sub(before.0),
            reclaim_ns: now.1.saturating_sub(before.1),
            ..Step::default()
        };
        let accounted = self.threads[thread].accounted.get_or_insert((0, 0));
        accounted.0 += step.compaction_ns;
        accounted.1 += step.reclaim_ns;
        if step.compaction_ns + step.reclaim_ns > 0 {
            self.steps.push(step);
        }
    }

    fn end(self, header: Header, ending: Option<Ending>, unread: (u64, Option<String>)) -> Gathered {
        let (mut pauses, mut safepoints) = (Vec::new(), Vec::new());
        let logs = self.logs.values().map(|log| log.tell(&mut pauses, &mut safepoints)).collect();
        pauses.sort_by_key(|pause| (pause.span.start, pause.span.end));
        safepoints.sort_by_key(|safepoint| (safepoint.span.start, safepoint.span.end));
        let mut huge_pages = self.huge_pages;
        huge_pages.sort_by_key(|page| page.ns);
        let machine = self.counters.map_or_else(BTreeMap::new, |(first, last)| {
            let grown = |(name, now): (String, u64)| {
                let grown = now.saturating_sub(*first.vmstat.get(&name)?);
                Some((name, grown))
            };
            last.vmstat.into_iter().filter_map(grown).collect()
        });
        Gathered {
            header,
            ending,
            last_ns: self.last_ns,
            processes: self.processes,
            stalls: by_thread(self.stalls, self.threads.len()),
            threads: self.threads,
            open_stalls: self.open_stalls,
            huge_pages,
            steps: self.steps,
            pauses,
            safepoints,
            logs,
            memory: self.memory,
            machine,
            lost: self.lost,
            notes: self.notes,
            unread,
        }
    }
}

/// Each thread's own, in order, without overlaps: a thread waits for one thing at a time, and where the
/// kernel compacts within a reclaim it is compaction.
fn by_thread(stalls: Vec<Stall>, threads: usize) -> Vec<Vec<Stall>> {
    let mut all: Vec<[Vec<Stall>; 2]> = (0..threads).map(|_| [Vec::new(), Vec::new()]).collect();
    for stall in stalls {
        let kind = usize::from(stall.wait == Wait::Reclaim);
        all[stall.thread][kind].push(stall);
    }
    all.into_iter()
        .map(|[compaction, reclaim]| {
            let compaction = merge(compaction);
            let mut own: Vec<Stall> =
                merge(reclaim).into_iter().flat_map(|stall| without(stall, &compaction)).collect();
            own.extend(compaction);
            own.sort_by_key(|stall| stall.span.start);
            own
        })
        .collect()
}

/// What is left of a stall outside of others, which are in order.
fn without(stall: Stall, others: &[Stall]) -> Vec<Stall> {
    let (mut left, mut from) = (Vec::new(), stall.span.start);
    for other in super::spans::within(others, &stall.span.clone()) {
        if other.span.start > from {
            left.push(Stall { span: from..other.span.start, ..stall.clone() });
        }
        from = from.max(other.span.end);
    }
    if from < stall.span.end {
        left.push(Stall { span: from..stall.span.end, ..stall });
    }
    left
}
