//! One pretouch by this program, in a process of its own.

use std::{
    fmt::Display,
    io,
    num::NonZeroUsize,
    ops::ControlFlow,
    path::Path,
    sync::atomic::{AtomicU8, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use hugewise_linux::{
    hugepages::backing::Backing,
    pages::coverage::Coverage,
    proc::vmstat::VmStat,
    reading::{Reading, Reason},
    root::{ReadError, Root},
    sys::parallel_range::Span,
    units::Bytes,
};
use hugewise_memory::{
    pretouch::Pretouch,
    region::{self, Region},
};

use super::{Case, Implementation, Sample, Variant};
use crate::{execution::Launch, touch::page_sizes};

/// The command of a process that does one pretouch and prints a [`Sample`] as JSON.
pub fn launch(program: &Path, case: &Case, way: &Variant) -> Launch {
    let launch = Launch::worker(program, "pretouch-worker", &(case, way));
    Launch { thp_disabled: case.backing == Backing::Base, ..launch }
}

/// Does one pretouch in this process.
pub fn run(case: &Case, way: &Variant) -> Result<Sample, Reason> {
    let root = Root::live();
    let sizes = page_sizes(&root)?;
    let mut region = region::reserve(case.bytes, &[case.backing], &sizes)?;
    let before = VmStat::read(&root);
    let done = match way.by {
        Implementation::Engine => {
            let how = Pretouch { threads: NonZeroUsize::new(case.threads), chunk: way.chunk, way: None };
            let done = region.pretouch(&how, &mut |_| ControlFlow::Continue(()));
            if let Some(stopped) = done.stopped {
                return Err(incomplete(case.bytes, format!("{stopped}, after {}", done.done)));
            }
            Done { elapsed: done.elapsed, threads: done.threads, chunk: Some(done.chunk) }
        }
        Implementation::Loop => in_shares(&mut region, case, &|share| {
            let step = usize::try_from(sizes.base.bytes().0).unwrap_or(usize::MAX);
            share.iter_mut().step_by(step).for_each(|byte| *byte = 1);
            Ok(())
        })?,
        Implementation::Kernel => in_shares(&mut region, case, &|share| {
            let span = Span::new(share);
            span.populate(span.addresses())
        })?,
        Implementation::Jvm(_) => {
            return Reason::err("a JVM is a process of its own and cannot be measured in this one");
        }
    };
    let (fallbacks, stalls) = growth(&before, &VmStat::read(&root));
    let coverage = region.coverage().and_then(|coverage| share(&coverage));
    Ok(Sample {
        repetition: 0,
        seconds: done.elapsed.as_secs_f64(),
        release_seconds: release(region, case, way.by),
        coverage,
        fallbacks,
        stalls,
        threads: done.threads,
        chunk: done.chunk,
    })
}

/// Releases the memory, by the engine for the engine and else by `munmap`; returns the time in seconds.
fn release(region: Region, case: &Case, by: Implementation) -> Reading<f64> {
    if by == Implementation::Engine {
        let released = region.release(NonZeroUsize::new(case.threads));
        return match released.stopped {
            None => Reading::Known(released.elapsed.as_secs_f64()),
            Some(stopped) => Reading::unknown(stopped),
        };
    }
    let begin = Instant::now();
    drop(region);
    Reading::Known(begin.elapsed().as_secs_f64())
}

/// Share on huge pages, 0 to 1.
pub(crate) fn share(coverage: &Coverage) -> Result<f64, Reason> {
    coverage
        .share()
        .ok_or_else(|| Reason::new(format!("no page of it is resident, according to {}", coverage.source)))
}

pub(crate) fn incomplete(bytes: Bytes, cause: impl Display) -> Reason {
    Reason::new(format!("not all of {bytes} could be populated: {cause}"))
}

/// Growth of the machine's counters of failed huge-page faults and of stalls.
pub(crate) fn growth(
    before: &Result<VmStat, ReadError>,
    after: &Result<VmStat, ReadError>,
) -> (Reading<u64>, Reading<u64>) {
    let grown = |name: &str, count: &dyn Fn(&VmStat) -> Option<u64>| match (before, after) {
        (Ok(before), Ok(after)) => match count(before).zip(count(after)) {
            Some((before, after)) => Reading::Known(after.saturating_sub(before)),
            None => Reading::unknown(format!("this kernel does not count {name}")),
        },
        (Err(error), _) | (_, Err(error)) => Reading::unknown(error),
    };
    let fallbacks = grown("thp_fault_fallback", &|vmstat| vmstat.get("thp_fault_fallback"));
    (fallbacks, grown("compact_stall, allocstall", &VmStat::stalls))
}

struct Done {
    elapsed: Duration,
    threads: usize,
    chunk: Option<Bytes>,
}

/// Runs `work` on an equal share for each thread and times it from before the start of the first thread to
/// the end of the last, as HotSpot's log does.
///
/// All threads begin together: a starting thread maps memory for itself, and would otherwise wait for the
/// mmap lock held by a populating thread.
fn in_shares(
    region: &mut Region,
    case: &Case,
    work: &(dyn Fn(&mut [u8]) -> io::Result<()> + Sync),
) -> Result<Done, Reason> {
    let page = region.page_size();
    let pages = case.bytes.pages_needed(page);
    let share = page.bytes().0 * pages.0.div_ceil(case.threads.max(1) as u64).max(1);
    let begin = Instant::now();
    let mut shares = region.bytes_mut().chunks_mut(usize::try_from(share).unwrap_or(usize::MAX));
    let gate = Gate::default();
    let mut threads = 1;
    let ended: io::Result<()> = thread::scope(|scope| {
        let first = shares.next().unwrap_or_default();
        let mut others = Vec::new();
        for share in shares {
            let wait_and_work = || if gate.opens() { work(share) } else { Ok(()) };
            match thread::Builder::new().spawn_scoped(scope, wait_and_work) {
                Ok(other) => others.push(other),
                Err(error) => {
                    gate.state.store(Gate::NEVER, Ordering::Release);
                    return Err(error);
                }
            }
        }
        threads += others.len();
        gate.open_for(others.len());
        let mut ended = work(first);
        for other in others {
            let end = other.join().unwrap_or_else(|_| Err(io::Error::other("a thread ended early")));
            ended = ended.and(end);
        }
        ended
    });
    let elapsed = begin.elapsed();
    ended.map_err(|error| incomplete(case.bytes, error))?;
    Ok(Done { elapsed, threads, chunk: Some(Bytes(share)) })
}

/// Lets threads begin together, or not at all.
#[derive(Default)]
struct Gate {
    waiting: AtomicUsize,
    state: AtomicU8,
}

impl Gate {
    const CLOSED: u8 = 0;
    const OPEN: u8 = 1;
    const NEVER: u8 = 2;

    /// Waits for the decision; returns whether the gate opened.
    fn opens(&self) -> bool {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        loop {
            match self.state.load(Ordering::Acquire) {
                Gate::CLOSED => thread::yield_now(),
                state => return state == Gate::OPEN,
            }
        }
    }

    /// Opens the gate as soon as `threads` threads wait.
    fn open_for(&self, threads: usize) {
        while self.waiting.load(Ordering::Acquire) < threads {
            thread::yield_now();
        }
        self.state.store(Gate::OPEN, Ordering::Release);
    }
}
