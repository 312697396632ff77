//! Builds a [`RecordingData`] from the lines of a recording.

use std::{
    collections::{BTreeMap, HashMap},
    io::Read,
};

use hugewise_jvm::threads::Role;
use hugewise_linux::proc::taskstats::Delays;

use super::{
    gathered::{HugePageAttempt, RecordingData, Thread, UsageStep},
    intervals::{Stall, Wait, add, merge, within},
    log::Log,
    room::{MAX_KEPT_BYTES, Room},
};
use crate::recording::{
    Ending, Evidence, Header, Line, Machine, Memory, Process, Reader, Stall as RecordedStall,
    Thread as RecordedThread, ThreadUsage, memory_waits_ns,
};

/// Longest time from a wait to the allocation that it was for, in nanoseconds; the thread may be preempted in
/// between.
const MAX_WAIT_TO_ALLOCATION_NS: u64 = 100_000_000;

/// Largest number of machine-wide counters in a sample; a kernel has some hundreds.
const MAX_COUNTERS: usize = 4096;

/// The content of the lines read so far.
#[derive(Default)]
struct RecordingLoader {
    /// Most memory for the content, in bytes.
    limit_bytes: usize,
    /// Memory of texts and of the lines that are kept as they are, in bytes.
    text_bytes: usize,
    /// Lines beyond the limit.
    excess: u64,
    last_ns: u64,
    processes: BTreeMap<u32, Process>,
    threads: Vec<Thread>,
    /// The running thread of each TID, with its latest usage.
    current: HashMap<u32, Current>,
    stalls: Vec<Stall>,
    open_stalls: u64,
    huge_pages: Vec<HugePageAttempt>,
    steps: Vec<UsageStep>,
    /// Time of the previous sample of threads.
    sample_ns: u64,
    started: bool,
    logs: BTreeMap<u32, Log>,
    memory: Vec<Memory>,
    counters: Option<(Machine, Machine)>,
    lost: BTreeMap<Evidence, (u64, bool)>,
    notes: Vec<String>,
}

#[derive(Default)]
struct Current {
    thread: usize,
    started_ticks: Option<u64>,
    usage: Option<ThreadUsage>,
    delays: Option<Delays>,
    /// Indices of the waits since the previous allocation.
    waited: Vec<usize>,
}

impl RecordingData {
    /// Reads a recording to its end; lines that cannot be parsed, or need too much memory, are counted.
    pub fn read<R: Read>(reader: Reader<R>) -> RecordingData {
        RecordingData::read_within(reader, MAX_KEPT_BYTES)
    }

    /// Like [`RecordingData::read`], and keeps at most `limit_bytes`.
    pub(super) fn read_within<R: Read>(mut reader: Reader<R>, limit_bytes: usize) -> RecordingData {
        let header = reader.header().clone();
        let mut gathering = RecordingLoader {
            limit_bytes,
            last_ns: header.began_ns,
            sample_ns: header.began_ns,
            started: header.started,
            ..RecordingLoader::default()
        };
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
}

impl RecordingLoader {
    /// The memory of the content, in bytes.
    fn kept_bytes(&self) -> usize {
        // Waits are copied once, to order them by thread, and listed by thread before.
        let waits = self.stalls.len() * (2 * size_of::<Stall>() + size_of::<usize>());
        let threads = self.threads.len() * (size_of::<Thread>() + 3 * size_of::<Vec<Stall>>());
        let current = self.current.len() * 2 * size_of::<(u32, Current)>();
        let pages = self.huge_pages.len() * size_of::<HugePageAttempt>();
        let steps = self.steps.len() * size_of::<UsageStep>();
        self.text_bytes + waits + threads + current + pages + steps
    }

    fn add(&mut self, line: Line) {
        let grows = !matches!(&line, Line::Machine(_) | Line::Lost(_) | Line::End(_));
        let is_too_large = matches!(&line, Line::Machine(machine) if machine.vmstat.len() > MAX_COUNTERS);
        if is_too_large || (grows && self.kept_bytes() >= self.limit_bytes) {
            self.excess += 1;
            return;
        }
        self.text_bytes += text_bytes(&line);
        match line {
            Line::Header(_) => {}
            Line::Process(process) => {
                self.note_time(process.ns);
                self.processes.insert(process.pid, process);
            }
            Line::Thread(thread) => self.thread(thread),
            Line::Stall(stall) => self.stall(&stall),
            Line::HugePage(page) => {
                self.note_time(page.ns);
                self.huge_page(page.ns, page.tid, page.got);
            }
            Line::Collapse(collapse) => self.note_time(collapse.ns),
            Line::Usage(usage) => {
                self.note_time(usage.ns);
                usage.threads.into_iter().for_each(|used| self.used(usage.ns, used));
            }
            Line::Delays(delays) => {
                self.note_time(delays.ns);
                delays.threads.into_iter().for_each(|of| self.delayed(delays.ns, of.tid, of.delays));
            }
            Line::ThreadEnd(end) => {
                self.note_time(end.ns);
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
                self.note_time(machine.ns);
                // Each sample ends with a line `machine`.
                self.sample_ns = machine.ns;
                match &mut self.counters {
                    Some((_, last)) => *last = machine,
                    None => self.counters = Some((machine.clone(), machine)),
                }
            }
            Line::Memory(memory) => {
                self.note_time(memory.ns);
                self.memory.push(memory);
            }
            Line::JvmLogSource(source) => {
                self.note_time(source.ns);
                self.logs
                    .entry(source.pid)
                    .or_insert_with(|| Log::new(source.pid, source.source, source.monotonic));
            }
            Line::JvmLog(log) => {
                self.note_time(log.ns);
                if let Some(known) = self.logs.get_mut(&log.pid) {
                    known.add(log.ns, &log.lines);
                }
            }
            Line::Lost(lost) => {
                let sum = self.lost.entry(lost.of).or_default();
                add(&mut sum.0, lost.count.unwrap_or(0));
                sum.1 |= lost.count.is_none();
            }
            Line::Note(note) => self.notes.push(note.text),
            Line::End(end) => self.note_time(end.ns),
        }
    }

    fn note_time(&mut self, ns: u64) {
        self.last_ns = self.last_ns.max(ns);
    }

    /// The running thread with this TID; adds a thread without a name if there is none.
    fn current(&mut self, tid: u32) -> &mut Current {
        let threads = &mut self.threads;
        self.current.entry(tid).or_insert_with(|| {
            threads.push(Thread { tid, pid: None, name: None, role: Role::Application, accounted: None });
            Current { thread: threads.len() - 1, ..Current::default() }
        })
    }

    fn thread(&mut self, thread: RecordedThread) {
        self.note_time(thread.ns);
        let ticks = Some(thread.started_ticks);
        // A reused TID, if the exit of the previous thread was not reported.
        let before = self.current.get(&thread.tid).and_then(|before| before.started_ticks);
        if before.is_some() && before != ticks {
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

    fn stall(&mut self, stall: &RecordedStall) {
        let (Some(begin), Some(end)) = (stall.begin_ns, stall.end_ns) else {
            self.open_stalls += 1;
            return;
        };
        self.note_time(end);
        let at = self.stalls.len();
        let current = self.current(stall.tid);
        current.waited.push(at);
        let thread = current.thread;
        let span = begin..end.max(begin);
        self.stalls.push(Stall { thread, wait: Wait::from(stall.cause), span, for_huge: false });
    }

    /// Marks the waits before the allocation, in immediate succession, as waits for this page.
    fn huge_page(&mut self, ns: u64, tid: u32, got: bool) {
        let current = self.current(tid);
        let (thread, waited) = (current.thread, std::mem::take(&mut current.waited));
        let mut before = ns;
        for at in waited.into_iter().rev() {
            let stall = &mut self.stalls[at];
            if before.saturating_sub(stall.span.end) > MAX_WAIT_TO_ALLOCATION_NS {
                break;
            }
            stall.for_huge = true;
            before = before.min(stall.span.start);
        }
        self.huge_pages.push(HugePageAttempt { ns, thread, got });
    }

    /// The first figures of a thread are its usage before the recording, unless the recorder started its
    /// process.
    fn used(&mut self, ns: u64, used: ThreadUsage) {
        let (started, from_ns) = (self.started, self.sample_ns);
        let current = self.current(used.tid);
        let begin = ThreadUsage { tid: used.tid, user_ns: 0, sys_ns: 0, minor_faults: 0, major_faults: 0 };
        let before = current.usage.replace(used).or(started.then_some(begin));
        let thread = current.thread;
        if let Some(before) = before {
            self.steps.push(UsageStep {
                thread,
                from_ns,
                to_ns: ns,
                sys_ns: used.sys_ns.saturating_sub(before.sys_ns),
                minor_faults: used.minor_faults.saturating_sub(before.minor_faults),
                ..UsageStep::default()
            });
        }
    }

    fn delayed(&mut self, ns: u64, tid: u32, delays: Delays) {
        let (started, from_ns) = (self.started, self.sample_ns);
        let current = self.current(tid);
        let before = current.delays.replace(delays).or(started.then(Delays::default));
        let (now, thread) = (memory_waits_ns(&delays), current.thread);
        let Some(before) = before.as_ref().map(memory_waits_ns) else { return };
        let step = UsageStep {
            thread,
            from_ns,
            to_ns: ns,
            compaction_ns: now.0.saturating_sub(before.0),
            reclaim_ns: now.1.saturating_sub(before.1),
            ..UsageStep::default()
        };
        let accounted = self.threads[thread].accounted.get_or_insert((0, 0));
        add(&mut accounted.0, step.compaction_ns);
        add(&mut accounted.1, step.reclaim_ns);
        if (step.compaction_ns, step.reclaim_ns) != (0, 0) {
            self.steps.push(step);
        }
    }

    fn end(mut self, header: Header, ending: Option<Ending>, unread: (u64, Option<String>)) -> RecordingData {
        let (mut pauses, mut safepoints) = (Vec::new(), Vec::new());
        let mut room = Room { left_bytes: self.limit_bytes.saturating_sub(self.kept_bytes()), excess: 0 };
        let logs = std::mem::take(&mut self.logs);
        let logs =
            logs.into_values().map(|log| log.describe(&mut pauses, &mut safepoints, &mut room)).collect();
        room.excess += self.excess;
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
        RecordingData {
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
            room,
        }
    }
}

/// The memory of a line's texts, and of the line itself if it is kept, in bytes.
fn text_bytes(line: &Line) -> usize {
    let texts = |texts: &[String]| texts.iter().map(|text| size_of::<String>() + text.len()).sum::<usize>();
    // With the node of the map or list that keeps it.
    let kept = |bytes: usize| 2 * size_of::<Process>() + bytes;
    match line {
        Line::Process(process) => kept(process.name.len() + texts(&process.command)),
        Line::Thread(thread) => thread.name.len(),
        Line::ThreadEnd(end) => end.name.len(),
        Line::Memory(_) => size_of::<Memory>(),
        Line::JvmLogSource(source) => kept(size_of::<Log>() + source.source.len()),
        Line::JvmLog(log) => size_of::<(u64, u64)>() + texts(&log.lines),
        Line::Note(note) => kept(note.text.len()),
        _ => 0,
    }
}

/// The waits of each thread, ordered and without overlaps: a thread waits for one thing at a time, and
/// compaction within a reclaim counts as compaction.
fn by_thread(stalls: Vec<Stall>, threads: usize) -> Vec<Vec<Stall>> {
    let mut all = vec![[Vec::new(), Vec::new()]; threads];
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

/// The parts of a stall outside of `others`, which must be ordered.
fn without(stall: Stall, others: &[Stall]) -> Vec<Stall> {
    let (mut left, mut from) = (Vec::new(), stall.span.start);
    for other in within(others, &stall.span.clone()) {
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
