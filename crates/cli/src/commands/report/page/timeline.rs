//! The timeline of a recording in a compact form, to be embedded in the page.

use std::{cmp::Reverse, collections::BTreeMap};

use hugewise_record::{
    attribution::{Attribution, Pause, RecordingData, Safepoint, Wait},
    recording::Memory,
};
use serde::Serialize;

use crate::output::terminal::plain;

/// A recording as the page's script reads it. Times are microseconds since `begin_us` before the start of the
/// recording; lists of events are [`Numbers`], in which a stall takes about six bytes.
#[derive(Debug, Serialize)]
pub struct Timeline {
    /// Start of the recording; above 0 if events are older.
    begin_us: u64,
    /// End of the recording.
    end_us: u64,
    jvms: Vec<Jvm>,
    /// Threads that waited or requested huge pages: collector threads first, then by total waiting time.
    threads: Vec<Thread>,
    memory: Vec<MemoryOf>,
}

#[derive(Debug, Serialize)]
struct Jvm {
    pid: u32,
    name: String,
    kinds: Vec<String>,
    causes: Vec<String>,
    operations: Vec<String>,
    /// For each pause: start, relative to the start of the previous one; duration; index of the kind; and,
    /// increased by one, with 0 for none: index of the cause, id, time with a waiting thread, part of that
    /// for huge pages.
    pauses: Numbers,
    /// For each safepoint: start, relative to the start of the previous one; duration; and, increased by one,
    /// with 0 for none: time to safepoint, index of the operation.
    safepoints: Numbers,
}

#[derive(Debug, Serialize)]
struct Thread {
    tid: u32,
    pid: Option<u32>,
    name: String,
    collects: bool,
    /// For each stall: start, relative to the end of the previous one; duration times 4, plus 2 for reclaim,
    /// plus 1 for a huge page.
    stalls: Numbers,
    /// For each huge-page allocation: time, relative to the previous one, times 2, plus 1 if it succeeded.
    pages: Numbers,
}

/// The memory of one process, in KiB.
#[derive(Debug, Serialize)]
struct MemoryOf {
    pid: u32,
    name: String,
    /// For each sample: time, relative to the previous one; resident, on THP, on pool pages; and, increased
    /// by one, with 0 for none: resident in the heap, part of that on huge pages.
    samples: Numbers,
}

/// Numbers in Base64 digits of five bits each, the lowest first; 32 is added to all digits of a number but
/// the last.
#[derive(Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Numbers(String);

impl Numbers {
    fn push(&mut self, mut number: u64) {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        while number >= 32 {
            self.0.push(char::from(DIGITS[(number % 32 + 32) as usize]));
            number /= 32;
        }
        self.0.push(char::from(DIGITS[number as usize]));
    }

    /// Appends a number increased by one, or 0 for `None`.
    fn push_option(&mut self, number: Option<u64>) {
        self.push(number.map_or(0, |number| number.saturating_add(1)));
    }
}

/// Distinct strings, numbered in the order of their first use.
#[derive(Default)]
struct Names {
    places: BTreeMap<String, u64>,
    names: Vec<String>,
}

impl Names {
    fn place(&mut self, name: &str) -> u64 {
        let next = self.names.len() as u64;
        *self.places.entry(name.to_owned()).or_insert_with(|| {
            self.names.push(plain(name));
            next
        })
    }
}

/// The page's clock.
#[derive(Clone, Copy)]
struct Clock {
    origin_ns: u64,
}

impl Clock {
    fn of(gathered: &RecordingData) -> Clock {
        let firsts = gathered.stalls.iter().filter_map(|stalls| Some(stalls.first()?.span.start));
        let others = [
            gathered.pauses.first().map(|pause| pause.span.start),
            gathered.safepoints.first().map(|safepoint| safepoint.span.start),
            gathered.huge_pages.first().map(|page| page.ns),
            gathered.memory.iter().map(|memory| memory.ns).min(),
        ];
        let first = firsts.chain(others.into_iter().flatten()).min();
        Clock { origin_ns: first.map_or(gathered.header.began_ns, |ns| ns.min(gathered.header.began_ns)) }
    }

    fn us(self, ns: u64) -> u64 {
        ns.saturating_sub(self.origin_ns) / 1000
    }
}

impl Timeline {
    pub fn of(explanation: &Attribution) -> Timeline {
        let gathered = &explanation.gathered;
        let clock = Clock::of(gathered);
        let mut pids: Vec<u32> = gathered.logs.iter().map(|log| log.pid).collect();
        pids.dedup();
        Timeline {
            begin_us: clock.us(gathered.header.began_ns),
            end_us: clock.us(gathered.last_ns),
            jvms: pids.into_iter().map(|pid| Jvm::of(explanation, clock, pid)).collect(),
            threads: threads(gathered, clock),
            memory: memory(gathered, clock),
        }
    }

    /// Whether there is nothing to draw.
    pub fn is_empty(&self) -> bool {
        self.jvms.iter().all(|jvm| jvm.pauses == Numbers::default())
            && self.threads.is_empty()
            && self.memory.is_empty()
    }
}

fn name_of(gathered: &RecordingData, pid: u32) -> String {
    gathered.processes.get(&pid).map_or_else(String::new, |process| plain(&process.name))
}

impl Jvm {
    fn of(explanation: &Attribution, clock: Clock, pid: u32) -> Jvm {
        let gathered = &explanation.gathered;
        let (mut kinds, mut causes, mut operations) = (Names::default(), Names::default(), Names::default());
        let (mut pauses, mut safepoints) = (Numbers::default(), Numbers::default());
        let mut before = 0;
        for Pause { stop, stalled_ns, stalled_for_huge_ns, .. } in
            explanation.pauses.iter().filter(|pause| pause.stop.pid == pid)
        {
            let (start, end) = (clock.us(stop.span.start), clock.us(stop.span.end));
            pauses.push(start - before);
            pauses.push(end - start);
            pauses.push(kinds.place(&stop.kind));
            pauses.push_option(stop.cause.as_ref().map(|cause| causes.place(cause)));
            pauses.push_option(stop.gc_id);
            pauses.push_option(stalled_ns.map(|ns| ns / 1000));
            pauses.push_option(stalled_for_huge_ns.map(|ns| ns / 1000));
            before = start;
        }
        before = 0;
        for Safepoint { operation, span, reached_ns, .. } in
            gathered.safepoints.iter().filter(|safepoint| safepoint.pid == pid)
        {
            let (start, end) = (clock.us(span.start), clock.us(span.end));
            safepoints.push(start - before);
            safepoints.push(end - start);
            safepoints.push_option(reached_ns.map(|ns| clock.us(ns).saturating_sub(start)));
            safepoints.push_option(operation.as_ref().map(|operation| operations.place(operation)));
            before = start;
        }
        Jvm {
            pid,
            name: name_of(gathered, pid),
            kinds: kinds.names,
            causes: causes.names,
            operations: operations.names,
            pauses,
            safepoints,
        }
    }
}

fn threads(gathered: &RecordingData, clock: Clock) -> Vec<Thread> {
    let mut pages: Vec<(u64, Numbers)> = gathered.threads.iter().map(|_| Default::default()).collect();
    for page in &gathered.huge_pages {
        if let Some((before, numbers)) = pages.get_mut(page.thread) {
            let at = clock.us(page.ns);
            numbers.push((at - *before) * 2 + u64::from(page.got));
            *before = at;
        }
    }
    let mut threads: Vec<(u64, Thread)> = Vec::new();
    for (at, (known, (_, pages))) in gathered.threads.iter().zip(pages).enumerate() {
        let (mut stalls, mut waited, mut before) = (Numbers::default(), 0, 0);
        for stall in gathered.stalls.get(at).into_iter().flatten() {
            let (start, end) = (clock.us(stall.span.start), clock.us(stall.span.end));
            let marks = 2 * u64::from(stall.wait == Wait::Reclaim) + u64::from(stall.for_huge);
            stalls.push(start.saturating_sub(before));
            stalls.push((end - start) * 4 + marks);
            waited += stall.span.end - stall.span.start;
            before = end;
        }
        if stalls != Numbers::default() || pages != Numbers::default() {
            let thread = Thread {
                tid: known.tid,
                pid: known.pid,
                name: plain(gathered.name(at)),
                collects: known.role.collects(),
                stalls,
                pages,
            };
            threads.push((waited, thread));
        }
    }
    threads.sort_by_key(|(waited, thread)| (Reverse(thread.collects), Reverse(*waited)));
    threads.into_iter().map(|(_, thread)| thread).collect()
}

fn memory(gathered: &RecordingData, clock: Clock) -> Vec<MemoryOf> {
    let mut samples: BTreeMap<u32, Vec<&Memory>> = BTreeMap::new();
    for sample in &gathered.memory {
        samples.entry(sample.pid).or_default().push(sample);
    }
    let mut all: Vec<(u64, MemoryOf)> = Vec::new();
    for (pid, mut samples) in samples {
        samples.sort_by_key(|sample| sample.ns);
        let (mut numbers, mut before, mut most) = (Numbers::default(), 0, 0);
        for sample in samples {
            let at = clock.us(sample.ns);
            numbers.push(at - before);
            for bytes in [sample.resident_bytes, sample.thp_bytes, sample.hugetlb_bytes] {
                numbers.push(bytes.0 / 1024);
            }
            numbers.push_option(sample.heap.map(|heap| heap.resident_bytes.0 / 1024));
            numbers.push_option(sample.heap.map(|heap| heap.huge_bytes.0 / 1024));
            most = most.max(sample.resident_bytes.0);
            before = at;
        }
        all.push((most, MemoryOf { pid, name: name_of(gathered, pid), samples: numbers }));
    }
    all.sort_by_key(|(most, _)| Reverse(*most));
    all.into_iter().map(|(_, of)| of).collect()
}
