//! Work on chunks by several threads at once.

use std::{
    collections::BTreeSet,
    io,
    num::NonZeroUsize,
    ops::{ControlFlow, Range},
    sync::{
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        mpsc::{self, Sender},
    },
    thread,
};

use hugewise_linux::{
    numa,
    root::Root,
    sys::{thread as own, thread::Faults},
    units::Bytes,
};

use crate::chunks::Chunks;

/// Who works, and where.
#[derive(Debug)]
pub(crate) struct Crew {
    /// How many threads.
    pub threads: usize,
    /// The CPUs they stay on; anywhere if none are named.
    pub cpus: Option<BTreeSet<u32>>,
}

impl Crew {
    /// So many threads as are asked for, or as CPUs may be used; on the node of the memory at `address`
    /// where a policy binds it to one.
    pub fn for_memory(address: u64, asked: Option<NonZeroUsize>) -> Crew {
        let nodes = own::nodes_of_memory(address).unwrap_or_default();
        let allowed = own::allowed_cpus().unwrap_or_default();
        let near = nodes.into_iter().filter_map(|node| numa::cpus(&Root::live(), node).ok()).flatten();
        let cpus = near_and_allowed(&near.collect(), &allowed);
        let usable = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let usable = cpus.as_ref().map_or(usable, |cpus| usable.min(cpus.len()));
        Crew { threads: asked.map_or(usable, NonZeroUsize::get), cpus }
    }
}

/// The CPUs to stay on; nothing where that is no restriction, or leaves no CPU at all.
fn near_and_allowed(near: &BTreeSet<u32>, allowed: &BTreeSet<u32>) -> Option<BTreeSet<u32>> {
    let both: BTreeSet<u32> = near.intersection(allowed).copied().collect();
    (!both.is_empty() && both != *allowed).then_some(both)
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Worked {
    /// Bytes in the chunks that were done to their end.
    pub done: Bytes,
    /// Threads that worked.
    pub threads: usize,
    /// Page faults of all of them.
    pub faults: Faults,
    /// Why not all was done.
    pub stopped: Option<Stopped>,
}

/// Why work on a range ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    /// The progress callback asked for it.
    #[error("it was told to stop")]
    Cancelled,
    /// The kernel refused.
    #[error("at {:#x}-{:#x}: {}", .addresses.start, .addresses.end, in_words(.error))]
    Refused {
        /// The chunk it was at; a part of it may be done.
        addresses: Range<u64>,
        /// What the kernel said.
        error: io::Error,
    },
}

fn in_words(error: &io::Error) -> String {
    const ENOMEM: i32 = 12;
    const EFAULT: i32 = 14;
    const EHWPOISON: i32 = 133;
    let why = match error.raw_os_error() {
        Some(ENOMEM) => {
            "there is no more memory, in the machine or within the limit of the memory cgroup, or part of it is not mapped"
        }
        Some(EFAULT) => "there is no more page in the pool, or within the limit of the hugetlb cgroup",
        Some(EHWPOISON) => "the memory is broken there",
        _ => return error.to_string(),
    };
    format!("{why} ({error})")
}

enum Event {
    Done(Bytes),
    Refused(Range<u64>, io::Error),
}

/// Has every chunk done by `work`. The caller's thread waits, and hears of the bytes done so far.
pub(crate) fn each(
    chunks: &Chunks,
    crew: &Crew,
    work: &(dyn Fn(Range<u64>) -> io::Result<()> + Sync),
    progress: &mut dyn FnMut(Bytes) -> ControlFlow<()>,
) -> Worked {
    let (next, stop, gate) = (AtomicU64::new(0), AtomicBool::new(false), Gate::default());
    let worker = |events: Sender<Event>| {
        let before = own::faults().unwrap_or_default();
        if let Some(cpus) = &crew.cpus {
            // Elsewhere the work is done as well, only not as fast.
            let _ = own::stay_on(cpus);
        }
        gate.wait();
        while !stop.load(Ordering::Relaxed) {
            let Some(chunk) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            let bytes = Bytes(chunk.end - chunk.start);
            let event = match work(chunk.clone()) {
                Ok(()) => Event::Done(bytes),
                Err(error) => Event::Refused(chunk, error),
            };
            stop.fetch_or(matches!(event, Event::Refused(..)), Ordering::Relaxed);
            // Nobody listens only after a panic of the callback.
            let _ = events.send(event);
        }
        since(before)
    };
    let mut worked = Worked::default();
    let wanted = usize::try_from(chunks.count()).unwrap_or(usize::MAX).min(crew.threads.max(1));
    thread::scope(|scope| {
        let (sender, events) = mpsc::channel();
        let start = |events| {
            thread::Builder::new().name("hugewise".to_owned()).spawn_scoped(scope, || worker(events))
        };
        // Fewer than wanted is well, too: a limit on threads is no reason to do nothing.
        let started: Vec<_> = (0..wanted).map_while(|_| start(sender.clone()).ok()).collect();
        gate.open_for(started.len());
        if started.is_empty() && wanted > 0 {
            worked.faults = worker(sender);
        } else {
            drop(sender);
        }
        worked.threads = started.len().max(wanted.min(1));
        for event in events {
            match event {
                Event::Done(bytes) => worked.done += bytes,
                Event::Refused(addresses, error) => {
                    worked.stopped.get_or_insert(Stopped::Refused { addresses, error });
                    continue;
                }
            }
            if progress(worked.done).is_break() && !stop.swap(true, Ordering::Relaxed) {
                worked.stopped.get_or_insert(Stopped::Cancelled);
            }
        }
        for thread in started {
            let faults = thread.join().unwrap_or_default();
            worked.faults.minor += faults.minor;
            worked.faults.major += faults.major;
        }
    });
    if worked.done == chunks.length() {
        worked.stopped = None; // Told to stop when there was nothing left to do.
    }
    worked
}

/// Holds threads until all have started. A thread that starts has memory mapped for itself, for which it
/// needs the lock of all mappings alone; those at work already hold it most of the time, and take it again
/// before one that waits for it (milliseconds for each mapping, until the kernel hands it over).
#[derive(Default)]
struct Gate {
    waiting: AtomicUsize,
    open: AtomicBool,
}

impl Gate {
    fn wait(&self) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        while !self.open.load(Ordering::Acquire) {
            thread::yield_now();
        }
    }

    fn open_for(&self, threads: usize) {
        while self.waiting.load(Ordering::Acquire) < threads {
            thread::yield_now();
        }
        self.open.store(true, Ordering::Release);
    }
}

fn since(before: Faults) -> Faults {
    let now = own::faults().unwrap_or_default();
    Faults { minor: now.minor.saturating_sub(before.minor), major: now.major.saturating_sub(before.major) }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use proptest::prelude::*;

    use super::*;

    fn set(cpus: &[u32]) -> BTreeSet<u32> {
        cpus.iter().copied().collect()
    }

    #[test]
    fn threads_stay_near_the_memory_only_where_they_may() {
        assert_eq!(near_and_allowed(&set(&[2, 3]), &set(&[0, 1, 2, 3])), Some(set(&[2, 3])));
        assert_eq!(near_and_allowed(&set(&[2, 3]), &set(&[3])), None);
        assert_eq!(near_and_allowed(&set(&[2, 3]), &set(&[0, 1])), None);
        assert_eq!(near_and_allowed(&set(&[]), &set(&[0, 1])), None);
    }

    fn crew(threads: usize) -> Crew {
        Crew { threads, cpus: None }
    }

    #[test]
    fn a_refusal_ends_the_work_and_tells_where() {
        let chunks = Chunks::cut(0..100 << 12, Bytes(1 << 12), Some(Bytes(1 << 12)), 4);
        let refuse = |chunk: Range<u64>| {
            if chunk.start == 7 << 12 { Err(io::Error::from_raw_os_error(12)) } else { Ok(()) }
        };
        let worked = each(&chunks, &crew(1), &refuse, &mut |_| ControlFlow::Continue(()));
        assert_eq!(worked.done, Bytes(7 << 12));
        let stopped = worked.stopped.map(|stopped| stopped.to_string()).unwrap_or_default();
        assert!(stopped.starts_with("at 0x7000-0x8000: there is no more memory"), "{stopped}");
    }

    proptest! {
        #[test]
        fn every_chunk_is_done_once_up_to_the_moment_of_cancelling(
            pages in 0u64..200, threads in 0usize..9, after in proptest::option::of(0u64..200),
        ) {
            let chunks = Chunks::cut(0..pages << 12, Bytes(1 << 12), Some(Bytes(1 << 12)), threads);
            let seen = Mutex::new(Vec::new());
            let note = |chunk: Range<u64>| {
                seen.lock().map_err(|_| io::Error::other("poisoned"))?.push(chunk.start >> 12);
                Ok(())
            };
            let worked = each(&chunks, &crew(threads), &note, &mut |done| {
                if after.is_some_and(|pages| done >= Bytes(pages << 12)) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            let mut seen = seen.into_inner().expect("nobody panicked");
            seen.sort_unstable();
            let each_once = seen.windows(2).all(|pair| pair[0] < pair[1]);
            prop_assert!(each_once, "{:?}", seen);
            prop_assert_eq!(worked.done, Bytes((seen.len() as u64) << 12));
            prop_assert_eq!(worked.stopped.is_none(), seen.len() as u64 == pages);
            prop_assert!(worked.threads <= threads.max(1));
        }
    }
}
