//! Attributes the kernel's work to the pauses in which it happened.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    ops::Range,
};

use hugewise_jvm::{gc_log::Cpu, threads::Role};

use super::{
    gathered::{RecordingData, UsageStep},
    intervals::{Stall, Wait, add, overlap, sum, union, within},
    log::{LoggedPause, Safepoint},
    room::Room,
    touch_bounds::{Costs, share_out},
};
use crate::recording::Evidence;

/// A pause with the attribution of its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Pause {
    pub stop: LoggedPause,
    /// The time to safepoint before the pause; `None` if it is not logged.
    pub time_to_safepoint: Option<TimeToSafepoint>,
    /// Time with at least one waiting collector thread, in nanoseconds; `None` without kernel events.
    pub stalled_ns: Option<u64>,
    /// The part of `stalled_ns` that was for huge pages.
    pub stalled_for_huge_ns: Option<u64>,
    /// Lower bound of the time of first touch, including the zeroing of huge pages, in nanoseconds; `None` if the
    /// cost of a page is unknown.
    pub least_touch_ns: Option<u64>,
    /// Time of the collector's threads by activity.
    pub split: TimeByActivity,
    /// The collector's threads that waited or touched memory.
    pub threads: Vec<ThreadPart>,
}

/// Thread time in nanoseconds, so that two threads spend two seconds in a second; `None` if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeByActivity {
    /// Waiting for direct compaction.
    pub compaction_ns: Option<u64>,
    /// Waiting for direct reclaim.
    pub reclaim_ns: Option<u64>,
    /// Upper bound of the time to allocate and zero huge pages; see [`split`].
    pub zeroing_ns: Option<u64>,
    /// Upper bound of the time to allocate and zero base pages.
    pub first_touch_ns: Option<u64>,
    /// Other system time; `None` if the log has no CPU times.
    pub other_system_ns: Option<u64>,
    /// Time in user space; `None` if the log has no CPU times.
    pub user_ns: Option<u64>,
}

/// A collector thread in a pause.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThreadPart {
    /// Index into [`RecordingData::threads`].
    pub thread: usize,
    /// Waits for compaction.
    pub compaction: WaitTotal,
    /// Waits for reclaim.
    pub reclaim: WaitTotal,
    /// Number of huge pages allocated.
    pub huge_pages: u64,
    /// Number of failed attempts to allocate a huge page.
    pub huge_pages_failed: u64,
    /// Number of base-page faults. Faults are sampled, and attributed to the pauses between two samples in
    /// proportion to their durations.
    pub base_faults: u64,
}

/// Waits of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitTotal {
    /// Number of waits; 0 without kernel events.
    pub count: u64,
    /// Total duration, in nanoseconds.
    pub ns: u64,
}

/// The time to safepoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimeToSafepoint {
    /// Time from the request until the last thread had stopped, in nanoseconds.
    pub ns: u64,
    /// Time with at least one waiting application thread, in nanoseconds.
    pub stalled_ns: u64,
    /// The part of `stalled_ns` that was for huge pages.
    pub stalled_for_huge_ns: u64,
    /// Waits by application thread and kind: index into [`RecordingData::threads`], kind, and nanoseconds.
    pub blockers: Vec<(usize, Wait, u64)>,
}

/// All pauses with their attribution, by start.
///
/// Compaction and reclaim come from kernel events, or without these from delay accounting. Faults are only
/// counted; their time is an upper bound: the threads' remaining time, at most the system time, and at most 4
/// times the highest cost per page that the recorder measured. The rest is a lower bound of other system
/// time, as a thread that waits for compaction works for some of that time. The lower bound of the time of first
/// touch is the lowest cost per page that the recorder measured.
///
/// The second value is the memory that is left for more threads in pauses, and the number of threads left out.
pub fn split(gathered: &RecordingData) -> (Vec<Pause>, Room) {
    let mut room = gathered.room;
    let mut pauses: Vec<PartialPause> = gathered
        .pauses
        .iter()
        .map(|stop| PartialPause { stop, threads: BTreeMap::new(), sys_ns: 0.0 })
        .collect();
    for step in &gathered.steps {
        attribute_step(gathered, step, &mut pauses, &mut room);
    }
    attribute_huge_pages(gathered, &mut pauses, &mut room);
    let costs = Costs::of(gathered);
    let pauses = pauses.into_iter().map(|partial| partial.explain(gathered, &costs, &mut room)).collect();
    (pauses, room)
}

/// A pause while the usage of threads is attributed to it.
struct PartialPause<'a> {
    stop: &'a LoggedPause,
    threads: BTreeMap<usize, Counted>,
    /// System time of the collector's threads, from samples, in nanoseconds.
    sys_ns: f64,
}

#[derive(Clone, Copy, Default)]
struct Counted {
    faults: f64,
    /// Of `faults`, those that cannot be of the pre-touch before the first pause.
    certain_faults: f64,
    compaction_ns: f64,
    reclaim_ns: f64,
    huge_pages: u64,
    huge_pages_failed: u64,
}

/// The pauses of process `pid` that overlap `span`.
fn touched<'p, 'a>(
    pauses: &'p mut [PartialPause<'a>],
    pid: Option<u32>,
    span: &Range<u64>,
) -> impl Iterator<Item = &'p mut PartialPause<'a>> {
    // Pauses of one JVM do not overlap, and pauses of two rarely do: ends are in the order of starts.
    let first = pauses.partition_point(|partial| partial.stop.span.end <= span.start);
    let end = span.end;
    pauses[first..]
        .iter_mut()
        .take_while(move |partial| partial.stop.span.start < end)
        .filter(move |partial| Some(partial.stop.pid) == pid)
}

fn attribute_step(
    gathered: &RecordingData,
    step: &UsageStep,
    pauses: &mut [PartialPause<'_>],
    room: &mut Room,
) {
    let thread = &gathered.threads[step.thread];
    if !thread.role.collects() {
        return;
    }
    let span = step.from_ns..step.to_ns;
    // The collector's threads pre-touch the heap before the first pause of their JVM.
    let first = pauses.iter().find(|partial| Some(partial.stop.pid) == thread.pid);
    let is_after_pre_touch = first.is_some_and(|first| step.from_ns >= first.stop.span.start);
    let shared = sum(touched(pauses, thread.pid, &span).map(|partial| overlap(&partial.stop.span, &span)));
    // A thread that works only in pauses did all of its work there.
    let whole = match thread.role {
        Role::Collector => shared,
        _ => step.to_ns.saturating_sub(step.from_ns),
    };
    if shared == 0 || whole == 0 {
        return;
    }
    for partial in touched(pauses, thread.pid, &span) {
        let share = overlap(&partial.stop.span, &span) as f64 / whole as f64;
        partial.sys_ns += share * step.sys_ns as f64;
        let Some(counted) = partial.counted(step.thread, room) else { continue };
        counted.faults += share * step.minor_faults as f64;
        if is_after_pre_touch {
            counted.certain_faults += share * step.minor_faults as f64;
        }
        counted.compaction_ns += share * step.compaction_ns as f64;
        counted.reclaim_ns += share * step.reclaim_ns as f64;
    }
}

fn attribute_huge_pages(gathered: &RecordingData, pauses: &mut [PartialPause<'_>], room: &mut Room) {
    for page in &gathered.huge_pages {
        let thread = &gathered.threads[page.thread];
        let at = page.ns..page.ns.saturating_add(1);
        if !thread.role.collects() {
            continue;
        }
        if let Some(partial) = touched(pauses, thread.pid, &at).next() {
            let Some(counted) = partial.counted(page.thread, room) else { continue };
            *(if page.got { &mut counted.huge_pages } else { &mut counted.huge_pages_failed }) += 1;
        }
    }
}

impl PartialPause<'_> {
    /// The figures of a thread; `None` if the limit of memory is reached and the thread is left out.
    fn counted(&mut self, thread: usize, room: &mut Room) -> Option<&mut Counted> {
        match self.threads.entry(thread) {
            Entry::Occupied(known) => Some(known.into_mut()),
            Entry::Vacant(new) => {
                room.take::<(usize, Counted, ThreadPart)>(1).then(|| new.insert(Counted::default()))
            }
        }
    }

    fn explain(self, gathered: &RecordingData, costs: &Costs, room: &mut Room) -> Pause {
        let events = gathered.has(Evidence::Events);
        let accounted = gathered.has(Evidence::Delays);
        let stop = self.stop;
        let mut threads: BTreeMap<usize, ThreadPart> = BTreeMap::new();
        let part = |thread| ThreadPart { thread, ..ThreadPart::default() };
        for (thread, counted) in &self.threads {
            let own = threads.entry(*thread).or_insert_with(|| part(*thread));
            (own.huge_pages, own.huge_pages_failed) = (counted.huge_pages, counted.huge_pages_failed);
            // A huge page counts as one fault, too.
            own.base_faults = (counted.faults.round() as u64).saturating_sub(counted.huge_pages);
            if !events {
                own.compaction.ns = counted.compaction_ns as u64;
                own.reclaim.ns = counted.reclaim_ns as u64;
            }
        }
        let stalls = stalls_within(gathered, stop.pid, Role::collects, &stop.span);
        for stall in &stalls {
            let own = threads.entry(stall.thread).or_insert_with(|| part(stall.thread));
            let kind = match stall.wait {
                Wait::Compaction => &mut own.compaction,
                Wait::Reclaim => &mut own.reclaim,
            };
            kind.count += 1;
            add(&mut kind.ns, stall.span.end - stall.span.start);
        }
        threads.retain(|thread, part| *part != ThreadPart { thread: *thread, ..ThreadPart::default() });
        // Threads with figures have their room already.
        let mut has_room = |part: &ThreadPart| {
            self.threads.contains_key(&part.thread) || room.take::<(usize, Counted, ThreadPart)>(1)
        };
        let threads: Vec<ThreadPart> = threads.into_values().filter(&mut has_room).collect();
        let waited = |of: fn(&ThreadPart) -> u64| (events || accounted).then(|| sum(threads.iter().map(of)));
        let (compaction_ns, reclaim_ns) = (waited(|part| part.compaction.ns), waited(|part| part.reclaim.ns));
        // The system time from samples covers more than the pauses: a concurrent collector spends most of it
        // outside. It is an upper bound for the known causes, not a measure of the rest.
        let sampled_ns = self.sys_ns as u64;
        let (system_ns, user_ns) = stop.cpu.map_or((sampled_ns, 0), |cpu| (cpu.sys_ns, cpu.user_ns));
        let system_is_reported = stop.cpu.is_some() || sampled_ns == 0;
        let waiting_ns = compaction_ns.unwrap_or(0).saturating_add(reclaim_ns.unwrap_or(0));
        // Each working thread can use a CPU during all time in which it does not wait.
        let duration_ns = stop.span.end - stop.span.start;
        let wall_ns = duration_ns.saturating_mul(working(&threads, duration_ns, costs.base_in_huge));
        let left = system_ns.min(wall_ns.saturating_sub(waiting_ns).saturating_sub(user_ns));
        let all = |of: fn(&ThreadPart) -> u64| sum(threads.iter().map(of));
        let (huge_pages, base_faults) = (all(|part| part.huge_pages), all(|part| part.base_faults));
        let certain = self
            .threads
            .values()
            .map(|counted| (counted.certain_faults as u64).saturating_sub(counted.huge_pages));
        let certain_base_faults = sum(certain);
        let of_pages = |pages: u64, cost: Option<u64>| match pages {
            0 => Some(0),
            pages => Some(pages.saturating_mul(cost?)),
        };
        let (zeroing_ns, first_touch_ns) =
            share_out(left, of_pages(huge_pages, costs.huge_ns), of_pages(base_faults, costs.base_ns));
        let least_ns =
            of_pages(huge_pages, costs.least_huge_ns).zip(of_pages(certain_base_faults, costs.least_base_ns));
        let explained_ns =
            zeroing_ns.zip(first_touch_ns).map(|(zeroing, touch)| zeroing.saturating_add(touch));
        Pause {
            time_to_safepoint: time_to_safepoint(gathered, stop, room),
            stalled_ns: events.then(|| stalled_ns(&stalls)),
            stalled_for_huge_ns: events.then(|| stalled_for_huge_ns(&stalls)),
            least_touch_ns: least_ns.map(|(huge, base)| left.min(huge.saturating_add(base))),
            split: TimeByActivity {
                compaction_ns,
                reclaim_ns,
                zeroing_ns,
                first_touch_ns,
                other_system_ns: explained_ns
                    .filter(|_| system_is_reported)
                    .map(|ns| system_ns.saturating_sub(waiting_ns).saturating_sub(ns)),
                user_ns: stop.cpu.map(|cpu| cpu.user_ns),
            },
            threads,
            stop: stop.clone(),
        }
    }
}

/// Number of threads with a significant part in a pause; the VM thread touches a page or two in most pauses.
fn working(threads: &[ThreadPart], duration_ns: u64, base_in_huge: Option<u64>) -> u64 {
    let of_huge = |part: &ThreadPart| part.huge_pages.saturating_mul(base_in_huge.unwrap_or(1));
    let pages = |part: &ThreadPart| part.base_faults.saturating_add(of_huge(part));
    let touched = sum(threads.iter().map(pages));
    let works = |part: &&ThreadPart| {
        pages(part) > touched / 100 || part.compaction.ns.saturating_add(part.reclaim.ns) > duration_ns / 100
    };
    threads.iter().filter(works).count() as u64
}

impl Pause {
    /// Whether sys exceeds user by more than the rounding of CPU times can explain.
    pub fn sys_exceeds_user(&self) -> bool {
        self.stop.cpu.is_some_and(Cpu::sys_exceeds_user)
    }

    /// Duration with the time to safepoint, in nanoseconds.
    pub fn with_time_to_safepoint_ns(&self) -> u64 {
        let own = self.stop.span.end - self.stop.span.start;
        own.saturating_add(self.time_to_safepoint.as_ref().map_or(0, |before| before.ns))
    }
}

/// The time to safepoint of the safepoint that a pause lies in, and the waits during it.
fn time_to_safepoint(
    gathered: &RecordingData,
    stop: &LoggedPause,
    room: &mut Room,
) -> Option<TimeToSafepoint> {
    let middle = stop.span.start + (stop.span.end - stop.span.start) / 2;
    // Safepoints do not overlap: the last one that began before the middle of the pause.
    let mine = |safepoint: &&Safepoint| safepoint.pid == stop.pid && safepoint.span.contains(&middle);
    let before = gathered.safepoints.partition_point(|safepoint| safepoint.span.start <= middle);
    let safepoint = gathered.safepoints[..before].iter().rev().take(8).find(mine)?;
    let mut before = waiting_for(gathered, safepoint.pid, safepoint.span.start..safepoint.reached_ns?);
    if !room.take::<(usize, Wait, u64)>(before.blockers.len()) {
        before.blockers.clear();
    }
    Some(before)
}

/// The waits of application threads within `span`, while the other threads have stopped.
fn waiting_for(gathered: &RecordingData, pid: u32, span: Range<u64>) -> TimeToSafepoint {
    let stalls = stalls_within(gathered, pid, |role| role == Role::Application, &span);
    let mut blockers: Vec<(usize, Wait, u64)> = Vec::new();
    for stall in &stalls {
        let ns = stall.span.end - stall.span.start;
        match blockers.iter_mut().find(|(who, wait, _)| (*who, *wait) == (stall.thread, stall.wait)) {
            Some((.., sum)) => add(sum, ns),
            None => blockers.push((stall.thread, stall.wait, ns)),
        }
    }
    blockers.sort_by_key(|(_, _, ns)| std::cmp::Reverse(*ns));
    TimeToSafepoint {
        ns: span.end.saturating_sub(span.start),
        stalled_ns: stalled_ns(&stalls),
        stalled_for_huge_ns: stalled_for_huge_ns(&stalls),
        blockers,
    }
}

/// The waits of the threads of process `pid` with one of the roles, cut to `span`.
fn stalls_within(
    gathered: &RecordingData,
    pid: u32,
    has_role: impl Fn(Role) -> bool,
    span: &Range<u64>,
) -> Vec<Stall> {
    let cut = |stall: &Stall| Stall {
        span: stall.span.start.max(span.start)..stall.span.end.min(span.end),
        ..stall.clone()
    };
    let by_thread = gathered.stalls.iter().zip(&gathered.threads);
    let meant = by_thread.filter(|(_, thread)| thread.pid == Some(pid) && has_role(thread.role));
    meant.flat_map(|(stalls, _)| within(stalls, span)).map(cut).collect()
}

/// Time with at least one waiting thread, in nanoseconds.
fn stalled_ns(stalls: &[Stall]) -> u64 {
    union(stalls.iter().map(|stall| &stall.span))
}

/// Time with at least one thread that waits for a huge page, in nanoseconds.
fn stalled_for_huge_ns(stalls: &[Stall]) -> u64 {
    union(stalls.iter().filter(|stall| stall.for_huge).map(|stall| &stall.span))
}
