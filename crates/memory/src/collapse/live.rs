//! The engine on a process of this machine.

use std::{
    io,
    ops::Range,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use hugewise_linux::{
    hugepages::{
        headroom::{self, Headroom},
        page_sizes::PageSizes,
    },
    interrupt::Interrupt,
    pages::occupancy::Occupancy,
    proc::{pressure, threads, vmstat::VmStat},
    root::Root,
    sys::{pidfd::Adviser, process::thread_cpu},
    units::{PageSize, Pages},
};

use super::{
    candidates::Candidate,
    engine::{self, CollapseHost, CollapseResult, Settings},
    pressure_pauses::{Interference, InterferenceDetector, Sample},
};

/// Minimum interval between two samples.
const MIN_SAMPLE_INTERVAL: Duration = Duration::from_millis(20);
/// Minimum interval between two samples, as a multiple of a sample's CPU time.
const MIN_INTERVAL_PER_COST: u32 = 20;

/// The process whose memory is collapsed.
#[derive(Debug)]
pub struct CollapseTarget<'a> {
    /// The machine's files.
    pub root: &'a Root,
    /// The process id, for files in /proc.
    pub pid: u32,
    /// A pidfd, which stays valid if the pid is reused.
    pub adviser: &'a Adviser,
    /// The page sizes of the machine.
    pub sizes: &'a PageSizes,
    /// The user's request to stop; `None` if the user cannot stop the collapse.
    pub interrupt: Option<&'a Interrupt>,
}

/// Collapses `candidates` of the process. `progress` receives the number of candidates tried and of all.
pub fn collapse_all(
    target: &CollapseTarget<'_>,
    candidates: &[Candidate],
    settings: Settings,
    progress: &mut dyn FnMut(usize, usize),
) -> CollapseResult {
    change_all(target, candidates, settings, &|addresses| target.adviser.collapse(addresses), progress)
}

/// Splits the huge pages `pages` of the process, at most `rate` bytes per second. Pauses like a collapse, and
/// needs no free memory.
pub fn split_all(
    target: &CollapseTarget<'_>,
    pages: &[Candidate],
    size: PageSize,
    rate: Option<f64>,
    progress: &mut dyn FnMut(usize, usize),
) -> CollapseResult {
    let settings = Settings { size, rate, allow_reclaim: true };
    let split = |addresses: &Range<u64>| target.adviser.split(addresses.start, target.sizes.base);
    change_all(target, pages, settings, &split, progress)
}

fn change_all(
    target: &CollapseTarget<'_>,
    candidates: &[Candidate],
    settings: Settings,
    call: &dyn Fn(&Range<u64>) -> io::Result<()>,
    progress: &mut dyn FnMut(usize, usize),
) -> CollapseResult {
    let watch = Sampler::default();
    thread::scope(|scope| {
        let begin = Instant::now();
        // Sampled in another thread, so also during the calls: stalls end with the call that causes them.
        let watch = &watch;
        let sampler = scope.spawn(move || watch.run(target.root, target.pid, begin));
        let occupancy = Occupancy::open(target.root, target.pid, target.sizes.base, settings.size).ok();
        let mut live = LiveHost { target, call, size: settings.size, occupancy, watch, begin, progress };
        watch.wait_for_first();
        let done = engine::collapse_all(&mut live, candidates, settings);
        watch.over.store(true, Ordering::Relaxed);
        // The sampler may wait for up to a second.
        sampler.thread().unpark();
        done
    })
}

/// Memory free now for huge pages of `size`.
pub fn room(root: &Root, base: PageSize, size: PageSize) -> Result<Headroom, String> {
    headroom::read(root, base, size).map_err(|error| error.to_string())
}

struct LiveHost<'a> {
    target: &'a CollapseTarget<'a>,
    /// The call that changes one huge page.
    call: &'a dyn Fn(&Range<u64>) -> io::Result<()>,
    size: PageSize,
    occupancy: Option<Occupancy>,
    watch: &'a Sampler,
    begin: Instant,
    progress: &'a mut dyn FnMut(usize, usize),
}

impl CollapseHost for LiveHost<'_> {
    fn collapse(&mut self, addresses: &Range<u64>) -> io::Result<()> {
        (self.call)(addresses)
    }

    fn has_ended(&mut self) -> bool {
        self.target.adviser.has_ended()
    }

    fn is_present(&mut self, addresses: &Range<u64>) -> Option<bool> {
        let slots = self.occupancy.as_ref()?.slots(addresses).ok()?;
        Some(!slots.is_empty())
    }

    fn room(&mut self) -> Option<Pages> {
        room(self.target.root, self.target.sizes.base, self.size).ok().map(|room| room.at_once)
    }

    fn interference(&mut self) -> Option<Interference> {
        *self.watch.interference.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pause(&mut self, paused: bool) {
        self.watch.paused.store(paused, Ordering::Relaxed);
    }

    fn is_interrupted(&self) -> bool {
        self.target.interrupt.is_some_and(|interrupt| interrupt.signal().is_some())
    }

    fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    fn wait(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while !self.is_interrupted() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            thread::sleep(left.min(Duration::from_millis(50)));
        }
    }

    fn progress(&mut self, done: usize, total: usize) {
        (self.progress)(done, total);
    }
}

/// Samples the process and the machine in a thread of its own.
#[derive(Default)]
struct Sampler {
    interference: Mutex<Option<Interference>>,
    paused: AtomicBool,
    sampled: AtomicBool,
    over: AtomicBool,
}

impl Sampler {
    fn run(&self, root: &Root, pid: u32, begin: Instant) {
        let mut judge = InterferenceDetector::default();
        while !self.over.load(Ordering::Relaxed) {
            // CPU time: with elapsed time, the interval would also grow on a busy machine.
            let before = thread_cpu();
            let sample = sample(root, pid, begin);
            let interference = judge.evaluate(&sample, self.paused.load(Ordering::Relaxed));
            *self.interference.lock().unwrap_or_else(PoisonError::into_inner) = interference;
            self.sampled.store(true, Ordering::Relaxed);
            let cost = thread_cpu().saturating_sub(before);
            let interval = MIN_SAMPLE_INTERVAL.max(cost * MIN_INTERVAL_PER_COST);
            thread::park_timeout(interval.min(Duration::from_secs(1)));
        }
    }

    /// The first sample, before any collapse, is the reference.
    fn wait_for_first(&self) {
        while !self.sampled.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn sample(root: &Root, pid: u32, begin: Instant) -> Sample {
    let waited = pressure::read(root).ok().map(|pressure| pressure.some);
    let direct_reclaims = || VmStat::read(root).ok()?.stalls();
    Sample {
        at: begin.elapsed(),
        stalled: threads::read(root, pid).ok().map(|threads| threads.stalled),
        waited,
        direct_reclaims: if waited.is_none() { direct_reclaims() } else { None },
    }
}
