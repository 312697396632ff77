//! Chunks of work, done by several threads.

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

/// The number of threads and their CPUs.
#[derive(Debug)]
pub(crate) struct Workers {
    pub threads: usize,
    /// The CPUs to run on; `None` for no restriction.
    pub cpus: Option<BTreeSet<u32>>,
}

impl Workers {
    /// `asked` threads, by default one per usable CPU; on the node of the memory at `address` if a policy
    /// binds it to one.
    pub fn for_memory(address: u64, asked: Option<NonZeroUsize>) -> Workers {
        let nodes = own::nodes_of_memory(address).unwrap_or_default();
        let allowed = own::allowed_cpus().unwrap_or_default();
        let near = nodes.into_iter().filter_map(|node| numa::cpus(&Root::live(), node).ok()).flatten();
        let cpus = near_and_allowed(&near.collect(), &allowed);
        let usable = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let usable = cpus.as_ref().map_or(usable, |cpus| usable.min(cpus.len()));
        Workers { threads: asked.map_or(usable, NonZeroUsize::get), cpus }
    }
}

/// The CPUs to run on; `None` for no restriction, also if no allowed CPU is near the memory.
fn near_and_allowed(near: &BTreeSet<u32>, allowed: &BTreeSet<u32>) -> Option<BTreeSet<u32>> {
    let both: BTreeSet<u32> = near.intersection(allowed).copied().collect();
    (!both.is_empty() && both != *allowed).then_some(both)
}

/// The result of the work.
#[derive(Debug, Default)]
pub(crate) struct WorkResult {
    /// Bytes in finished chunks.
    pub done: Bytes,
    /// Number of threads.
    pub threads: usize,
    /// Page faults of all threads.
    pub faults: Faults,
    /// Why the work ended early; `None` if it did not.
    pub stopped: Option<Stopped>,
}

/// Why work on a range ended early.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    /// The progress callback returned `Break`.
    #[error("cancelled by the progress callback")]
    Cancelled,
    /// The kernel returned an error.
    #[error("at {:#x}-{:#x}: {}", .addresses.start, .addresses.end, in_words(.error))]
    Refused {
        /// The chunk; a part of it may be done.
        addresses: Range<u64>,
        /// The error.
        error: io::Error,
    },
}

fn in_words(error: &io::Error) -> String {
    const ENOMEM: i32 = 12;
    const EFAULT: i32 = 14;
    const EHWPOISON: i32 = 133;
    let why = match error.raw_os_error() {
        Some(ENOMEM) => {
            "out of memory, on the machine or within the limit of the memory cgroup, or a part is not mapped"
        }
        Some(EFAULT) => "the pool has no free page, or the limit of the hugetlb cgroup is reached",
        Some(EHWPOISON) => "hardware memory error",
        _ => return error.to_string(),
    };
    format!("{why} ({error})")
}

/// Calls `work` for every chunk. The calling thread waits, and passes the bytes done so far to `progress`.
pub(crate) fn each(
    chunks: &Chunks,
    workers: &Workers,
    work: &(dyn Fn(Range<u64>) -> io::Result<()> + Sync),
    progress: &mut dyn FnMut(Bytes) -> ControlFlow<()>,
) -> WorkResult {
    let (next, stop, gate) = (AtomicU64::new(0), AtomicBool::new(false), Gate::default());
    let worker = |events: Sender<Result<Bytes, Stopped>>| {
        let before = own::faults().unwrap_or_default();
        if let Some(cpus) = &workers.cpus {
            // Without the affinity the work is only slower.
            let _ = own::set_affinity(cpus);
        }
        gate.wait();
        while !stop.load(Ordering::Relaxed) {
            let Some(chunk) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            let done = work(chunk.clone()).map(|()| Bytes(chunk.end - chunk.start));
            stop.fetch_or(done.is_err(), Ordering::Relaxed);
            // The receiver is gone only if the callback panicked.
            let _ = events.send(done.map_err(|error| Stopped::Refused { addresses: chunk, error }));
        }
        since(before)
    };
    let mut worked = WorkResult::default();
    let wanted = usize::try_from(chunks.count()).unwrap_or(usize::MAX).min(workers.threads.max(1));
    thread::scope(|scope| {
        let (sender, events) = mpsc::channel();
        let start = |events| {
            thread::Builder::new().name("hugewise".to_owned()).spawn_scoped(scope, || worker(events))
        };
        // Fewer threads suffice if a limit on threads is reached, or the work is done here.
        let most = if own::can_start() { wanted } else { 0 };
        let started: Vec<_> = (0..most).map_while(|_| start(sender.clone()).ok()).collect();
        gate.open_for(started.len());
        if started.is_empty() && wanted > 0 {
            worked.faults = worker(sender);
        } else {
            drop(sender);
        }
        worked.threads = started.len().max(wanted.min(1));
        for event in events {
            match event {
                Ok(bytes) => worked.done += bytes,
                Err(refused) => {
                    worked.stopped.get_or_insert(refused);
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
        worked.stopped = None; // Stopped after the last chunk.
    }
    worked
}

/// Holds the threads until all have started. A starting thread maps memory, for which it needs mmap_lock
/// exclusively; working threads hold that lock most of the time and take it again before a waiting writer,
/// which costs the starting thread milliseconds for each mapping.
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

    fn workers(threads: usize) -> Workers {
        Workers { threads, cpus: None }
    }

    #[test]
    fn a_refusal_ends_the_work_and_shows_where() {
        let chunks = Chunks::cut(0..100 << 12, Bytes(1 << 12), Some(Bytes(1 << 12)), 4);
        let refuse = |chunk: Range<u64>| {
            if chunk.start == 7 << 12 { Err(io::Error::from_raw_os_error(12)) } else { Ok(()) }
        };
        let worked = each(&chunks, &workers(1), &refuse, &mut |_| ControlFlow::Continue(()));
        assert_eq!(worked.done, Bytes(7 << 12));
        let stopped = worked.stopped.map(|stopped| stopped.to_string()).unwrap_or_default();
        assert!(stopped.starts_with("at 0x7000-0x8000: out of memory"), "{stopped}");
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
            let worked = each(&chunks, &workers(threads), &note, &mut |done| {
                if after.is_some_and(|pages| done >= Bytes(pages << 12)) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            let mut seen = seen.into_inner().expect("no thread panicked");
            seen.sort_unstable();
            let each_once = seen.windows(2).all(|pair| pair[0] < pair[1]);
            prop_assert!(each_once, "{:?}", seen);
            prop_assert_eq!(worked.done, Bytes((seen.len() as u64) << 12));
            prop_assert_eq!(worked.stopped.is_none(), seen.len() as u64 == pages);
            prop_assert!(worked.threads <= threads.max(1));
        }
    }
}
