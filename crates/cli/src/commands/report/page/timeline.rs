//! What happened when, small enough to stand in a page.

use std::{cmp::Reverse, collections::BTreeMap};

use hugewise_record::{
    attribution::{Explained as Pause, Explanation, Gathered, Safepoint, Wait},
    recording::Memory,
};
use serde::Serialize;

use crate::output::terminal::plain;

/// A recording as the page's script reads it. Times are microseconds since `begin_us` before the begin
/// of the recording; lists of what happened are [`Numbers`], so that a stall takes some six bytes.
#[derive(Debug, Serialize)]
pub struct Timeline {
    /// When the recording began: later than 0 where something happened before.
    begin_us: u64,
    /// The last moment of the recording.
    end_us: u64,
    jvms: Vec<Jvm>,
    /// Those that waited or asked for huge pages: collectors first, and who waited longest.
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
    /// Of each: from the begin of the one before; length; kind; and, each increased by one so that 0 is
    /// none: cause, id, how long threads waited, and how long for huge pages.
    pauses: Numbers,
    /// Of each: from the begin of the one before; length; and, increased by one: how long until all
    /// threads stood still, operation.
    safepoints: Numbers,
}

#[derive(Debug, Serialize)]
struct Thread {
    tid: u32,
    pid: Option<u32>,
    name: String,
    collects: bool,
    /// Of each: from the end of the one before; length, times 4, with 2 for reclaim and 1 for a huge page.
    stalls: Numbers,
    /// Of each huge page that it asked for: from the one before, times 2, with 1 where it got it.
    pages: Numbers,
}

/// The memory of one process. Sizes are KiB.
#[derive(Debug, Serialize)]
struct MemoryOf {
    pid: u32,
    name: String,
    /// Of each look: from the one before; resident, on THP, on pages of pools; and, increased by one:
    /// of the heap resident, and of that on huge pages.
    looks: Numbers,
}

/// Numbers in the digits of Base64, five bits in each, the lowest first; 32 is added to all digits of a
/// number but its last.
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

    /// Increased by one, so that nothing is 0.
    fn push_option(&mut self, number: Option<u64>) {
        self.push(number.map_or(0, |number| number.saturating_add(1)));
    }
}

/// Strings by the order in which they were met.
#[derive(Default)]
struct Names {
    places: BTreeMap<String, u64>,
    names: Vec<String>,
}

impl Names {
    fn place(&mut self, name: &str) -> u64 {
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        let place = self.names.len() as u64;
        self.places.insert(name.to_owned(), place);
        self.names.push(plain(name));
        place
    }
}

/// The page's clock.
#[derive(Clone, Copy)]
struct Clock {
    origin_ns: u64,
}

impl Clock {
    fn of(gathered: &Gathered) -> Clock {
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
    /// Of a recording that was explained.
    pub fn of(explanation: &Explanation) -> Timeline {
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

    /// Is there nothing to draw?
    pub fn is_empty(&self) -> bool {
        self.jvms.iter().all(|jvm| jvm.pauses == Numbers::default())
            && self.threads.is_empty()
            && self.memory.is_empty()
    }
}

fn name_of(gathered: &Gathered, pid: u32) -> String {
    gathered.processes.get(&pid).map_or_else(String::new, |process| plain(&process.name))
}

impl Jvm {
    fn of(explanation: &Explanation, clock: Clock, pid: u32) -> Jvm {
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

fn threads(gathered: &Gathered, clock: Clock) -> Vec<Thread> {
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

fn memory(gathered: &Gathered, clock: Clock) -> Vec<MemoryOf> {
    let mut looks: BTreeMap<u32, Vec<&Memory>> = BTreeMap::new();
    for look in &gathered.memory {
        looks.entry(look.pid).or_default().push(look);
    }
    let mut all: Vec<(u64, MemoryOf)> = Vec::new();
    for (pid, mut looks) in looks {
        looks.sort_by_key(|look| look.ns);
        let (mut numbers, mut before, mut most) = (Numbers::default(), 0, 0);
        for look in looks {
            let at = clock.us(look.ns);
            numbers.push(at - before);
            for bytes in [look.resident_bytes, look.thp_bytes, look.hugetlb_bytes] {
                numbers.push(bytes.0 / 1024);
            }
            numbers.push_option(look.heap.map(|heap| heap.resident_bytes.0 / 1024));
            numbers.push_option(look.heap.map(|heap| heap.huge_bytes.0 / 1024));
            most = most.max(look.resident_bytes.0);
            before = at;
        }
        all.push((most, MemoryOf { pid, name: name_of(gathered, pid), looks: numbers }));
    }
    all.sort_by_key(|(most, _)| Reverse(*most));
    all.into_iter().map(|(_, of)| of).collect()
}
