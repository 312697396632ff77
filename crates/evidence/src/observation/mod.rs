//! Samples the memory of a running program, and the coverage of its region of interest.
//!
//! For each sample the kernel walks the page tables, so the sampling interval grows with the cost of a
//! sample: regular samples take at most 1/200 of the time, on every backing. Between them, the amount of
//! memory is read, which is cheap: growth leads to a sample at once. Growth is relative to the amount, so the
//! number of such samples is small for a program of any size. Until the region is resident and stops growing
//! fast, `MAX_INTERVAL_GROWING` limits the interval, regardless of the cost.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    io::Read,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use hugewise_databases::postgres;
use hugewise_jvm::{
    gc_log,
    regions::{Heap, HeapHints, HeapSource, locate_heap},
};
use hugewise_launch::proof::PassedOptions;
use hugewise_linux::{
    pages::coverage::Coverage,
    proc::{
        smaps::{self, Vma},
        threads, tree,
    },
    root::Root,
    sys::{file, process::thread_cpu},
    units::{Bytes, PageSize},
};

use crate::heap;

/// Longest sampling interval while samples are cheap.
const MAX_INTERVAL: Duration = Duration::from_millis(500);
/// Shortest interval between two readings of the amount of memory.
const MIN_READING_INTERVAL: Duration = Duration::from_millis(2);
/// A reading may cost 1/`MIN_INTERVAL_PER_COST` of the interval that follows it.
const MIN_INTERVAL_PER_COST: u32 = 200;
/// Longest sampling interval until the region is resident and stops growing fast, regardless of the cost: a
/// JVM may exit less than half a second after it mapped its heap, and the coverage of a heap that is being
/// populated is not its final coverage.
const MAX_INTERVAL_GROWING: Duration = Duration::from_millis(20);
/// Relative growth between two readings above which memory grows fast.
const FAST_GROWTH: f64 = 1.0 / 8.0;
/// Relative growth since the last sample that leads to a sample although memory still grows fast.
const MUCH_GROWTH: f64 = 1.0 / 2.0;

/// The region whose coverage is measured.
#[derive(Clone, Debug)]
pub enum RegionOfInterest {
    /// Memory without a file: malloc'd memory, stacks, anonymous mappings.
    Anonymous,
    /// The Java heap. The JVM's own log, in this file, has its addresses.
    JavaHeap(PathBuf),
    /// The heap of the JVM with most memory, located from its tables; of a program without a JVM, its anonymous memory.
    AnyJavaHeap,
    /// The shared memory of PostgreSQL, which its processes have in common.
    PostgresSharedMemory,
    /// A region that the program reports itself.
    Reported,
}

/// Samples a program and keeps the maxima.
#[derive(Debug)]
pub struct Observer {
    root: Root,
    region: RegionOfInterest,
    thp_size: Option<PageSize>,
    hints: HeapHints,
    heaps: BTreeMap<u32, Heap>,
    /// Options that were passed for the JVMs of the program.
    passed: Option<PassedOptions>,
    /// Why the JVMs with a heap did not take them, by process; `None` for those that did, or if it is unknown.
    shortcomings: BTreeMap<u32, Option<String>>,
    /// The process with the largest heap in the last sample.
    largest_heap_of: Option<u32>,
    /// Time from the last sample to the next one if memory does not grow.
    interval: Duration,
    last_sample: Option<Instant>,
    shortest_reading_interval: Duration,
    /// CPU time of a reading.
    reading_cost: Duration,
    /// Memory at the last reading, and at the last sample.
    last_memory: Bytes,
    sampled: Bytes,
    /// Largest sum of resident and hugetlb bytes of all its processes in one sample.
    pub peak_memory: Bytes,
    /// Largest size in one sample of the memory that the region `Anonymous` has mapped, touched or not: the
    /// kernel reserves the pages of a pool when memory is mapped.
    pub largest_mapped: Bytes,
    /// Largest time in one sample that the threads of all its processes had waited for a CPU. A lower bound:
    /// the waits of threads that had ended, and those after the last sample, are missing.
    pub cpu_wait: Duration,
    /// The region's coverage in the sample with the largest resident size.
    pub coverage: Option<Coverage>,
    /// Whether memory outside the Java heap is sampled, too.
    samples_off_heap: bool,
    /// Coverage outside the Java heap in the sample with the largest resident size there.
    pub off_heap_coverage: Option<Coverage>,
}

/// Memory of a process.
struct Amounts {
    own: Bytes,
    /// Shared memory, and pages of pools.
    shared: Bytes,
}

impl Observer {
    /// `thp_size` is the PMD size.
    pub fn new(root: &Root, region: RegionOfInterest, thp_size: Option<PageSize>) -> Observer {
        Observer {
            root: root.clone(),
            region,
            thp_size,
            hints: HeapHints::default(),
            heaps: BTreeMap::new(),
            passed: None,
            shortcomings: BTreeMap::new(),
            largest_heap_of: None,
            interval: MIN_READING_INTERVAL,
            last_sample: None,
            shortest_reading_interval: MIN_READING_INTERVAL,
            reading_cost: Duration::ZERO,
            last_memory: Bytes::ZERO,
            sampled: Bytes::ZERO,
            peak_memory: Bytes::ZERO,
            largest_mapped: Bytes::ZERO,
            cpu_wait: Duration::ZERO,
            coverage: None,
            samples_off_heap: false,
            off_heap_coverage: None,
        }
    }

    /// Also samples the anonymous memory and the hugetlb pages outside the Java heap and the code cache.
    #[must_use]
    pub fn with_off_heap(self) -> Observer {
        Observer { samples_off_heap: true, ..self }
    }

    /// Also reads whether the JVMs of the program took these options.
    #[must_use]
    pub fn with_passed(self, passed: Option<PassedOptions>) -> Observer {
        Observer { passed, ..self }
    }

    /// Why the JVM with the largest heap did not take the options that were passed; `None` if it did, or if that is
    /// unknown.
    pub fn shortcoming(&self) -> Option<&str> {
        self.shortcomings.get(&self.largest_heap_of?)?.as_deref()
    }

    /// Reads and samples only every `MAX_INTERVAL`, for a program that more readings would slow down
    /// measurably.
    pub fn with_longest_interval(self) -> Observer {
        Observer { interval: MAX_INTERVAL, shortest_reading_interval: MAX_INTERVAL, ..self }
    }

    /// Whether a Java heap was located.
    pub fn has_heap(&self) -> bool {
        !self.heaps.is_empty()
    }

    /// Time to wait until the next reading of the amount of memory, by [`Observer::sample_if_due`].
    pub fn reading_interval(&self) -> Duration {
        (self.reading_cost * MIN_INTERVAL_PER_COST).max(self.shortest_reading_interval).min(self.interval)
    }

    /// Reads the amount of memory of process `pid` and its descendants, and samples them if that is due.
    pub fn sample_if_due(&mut self, pid: u32) {
        if self.is_sample_due(pid) {
            self.sample(pid);
        }
    }

    /// Reads the amount of memory of process `pid` and its descendants. Whether it has grown since the last
    /// sample, or that sample is old. Processes that have ended are skipped.
    pub fn is_sample_due(&mut self, pid: u32) -> bool {
        let before = thread_cpu();
        let (_, memory) = self.read(pid);
        let grew = |since: Bytes, by: f64| memory.0 as f64 > since.0 as f64 * (1.0 + by);
        let grew_and_settled = grew(self.sampled, FAST_GROWTH) && !grew(self.last_memory, FAST_GROWTH);
        let is_old = self.last_sample.is_none_or(|last| last.elapsed() >= self.interval);
        let is_due = is_old || grew_and_settled || grew(self.sampled, MUCH_GROWTH);
        self.last_memory = memory;
        self.reading_cost = next_cost(self.reading_cost, cpu_since(before));
        is_due
    }

    /// Samples process `pid` and its descendants before the exit of one of them, `exiting`: of `pid` itself, and
    /// of a descendant unless they had more memory in the last sample.
    pub fn sample_before_exit(&mut self, pid: u32, exiting: u32) {
        let (tree, memory) = self.read(pid);
        if exiting == pid || memory >= self.sampled {
            self.sample_tree(&tree, memory);
        } else {
            self.read_cpu_wait(&tree);
        }
    }

    /// Samples process `pid` and its descendants.
    pub fn sample(&mut self, pid: u32) {
        let (tree, memory) = self.read(pid);
        self.sample_tree(&tree, memory);
    }

    /// The processes, and the sum of their memory.
    fn read(&mut self, pid: u32) -> (Vec<u32>, Bytes) {
        let tree = tree::processes(&self.root, pid);
        let amounts: Vec<Amounts> = tree.iter().filter_map(|pid| self.amounts(*pid)).collect();
        let own = amounts.iter().map(|amounts| amounts.own).sum::<Bytes>();
        let shared = amounts.iter().map(|amounts| amounts.shared);
        let memory = match self.region {
            // Each process has a part of the same memory, one of them all that was used so far or nearly so.
            RegionOfInterest::PostgresSharedMemory => own + shared.max().unwrap_or_default(),
            _ => own + shared.sum::<Bytes>(),
        };
        self.peak_memory = self.peak_memory.max(memory);
        (tree, memory)
    }

    fn read_cpu_wait(&mut self, tree: &[u32]) {
        let wait = tree.iter().map(|pid| threads::cpu_wait(&self.root, *pid)).sum();
        self.cpu_wait = self.cpu_wait.max(wait);
    }

    fn sample_tree(&mut self, tree: &[u32], memory: Bytes) {
        let cpu_before = thread_cpu();
        self.sampled = memory;
        self.read_cpu_wait(tree);
        let before = self.coverage.as_ref().map_or(Bytes::ZERO, |before| before.resident);
        // Memory that is mapped and not touched yet has no pages.
        let seen = self.region_coverage(tree).filter(|seen| seen.resident > Bytes::ZERO);
        if let Some(seen) = seen.filter(|seen| seen.resident >= before) {
            self.coverage = Some(seen);
        }
        let after = self.coverage.as_ref().map_or(Bytes::ZERO, |after| after.resident);
        let settled = after > Bytes::ZERO && after.0 as f64 <= before.0 as f64 * (1.0 + FAST_GROWTH);
        self.interval =
            (self.interval * 5 / 4).min(MAX_INTERVAL).max(cpu_since(cpu_before) * MIN_INTERVAL_PER_COST);
        if !settled && !matches!(self.region, RegionOfInterest::Reported) {
            self.interval = self.interval.min(MAX_INTERVAL_GROWING);
        }
        self.last_sample = Some(Instant::now());
    }

    /// `VmRSS` does not include the pages of pools.
    fn amounts(&self, pid: u32) -> Option<Amounts> {
        let status = self.root.read(format!("proc/{pid}/status")).ok()?;
        let value = |key: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(key))?;
            value.parse::<Bytes>().ok()
        };
        let shared = value("RssShmem:").unwrap_or_default();
        let own = value("VmRSS:").unwrap_or_default().saturating_sub(shared);
        Some(Amounts { own, shared: shared + value("HugetlbPages:").unwrap_or_default() })
    }

    fn region_coverage(&mut self, tree: &[u32]) -> Option<Coverage> {
        match &self.region {
            RegionOfInterest::Reported => None,
            RegionOfInterest::Anonymous => self.anonymous_coverage(tree),
            RegionOfInterest::JavaHeap(log) => {
                if self.hints.logged.is_none() {
                    self.hints.logged = beginning_of(log).and_then(|text| gc_log::heap(&text));
                }
                self.largest_heap(tree)
            }
            RegionOfInterest::AnyJavaHeap => {
                let anonymous = self.anonymous_coverage(tree);
                let had_heap = self.has_heap();
                let heap = self.largest_heap(tree);
                if self.has_heap() && !had_heap {
                    // The samples before were of other memory.
                    self.coverage = None;
                }
                if self.has_heap() { heap } else { anonymous }
            }
            RegionOfInterest::PostgresSharedMemory => {
                let read = |pid: &u32| smaps::read(&self.root, &pid.to_string()).ok();
                let servers = tree.iter().filter_map(read).filter(|vmas| postgres::runs_in(vmas));
                let coverage = |vmas: Vec<Vma>| {
                    Some(smaps::coverage(postgres::shared_memory(&vmas), self.thp_size))
                        .filter(|seen| seen.resident > Bytes::ZERO)
                };
                servers.filter_map(coverage).max_by_key(|seen| seen.resident)
            }
        }
    }

    fn anonymous_coverage(&mut self, tree: &[u32]) -> Option<Coverage> {
        let read = |pid: &u32| smaps::read(&self.root, &pid.to_string()).ok();
        let processes: Vec<Vec<Vma>> = tree.iter().filter_map(read).collect();
        let is_malloced = |vma: &&Vma| vma.is_anonymous() || vma.is_hugetlb;
        let is_writable = |vma: &&Vma| vma.permissions.starts_with("rw-p");
        let writable = processes.iter().flatten().filter(is_malloced).filter(is_writable);
        let mapped = writable.map(|vma| Bytes(vma.addresses.end - vma.addresses.start)).sum();
        self.largest_mapped = self.largest_mapped.max(mapped);
        let coverage = |vmas: &Vec<Vma>| smaps::coverage(vmas.iter().filter(is_malloced), self.thp_size);
        processes.iter().map(coverage).reduce(|mut whole, seen| {
            whole.add(&seen);
            whole
        })
    }

    /// The first process of a launch line may be a wrapper that waits for the JVM, or a JVM that starts others, as JMH
    /// does: the heap with most resident bytes counts, the last of equals.
    fn largest_heap(&mut self, tree: &[u32]) -> Option<Coverage> {
        let heaps: Vec<(u32, Coverage)> =
            tree.iter().filter_map(|pid| Some((*pid, self.heap_coverage(*pid)?))).collect();
        let (pid, largest) = heaps.into_iter().max_by_key(|(_, seen)| seen.resident)?;
        self.largest_heap_of = Some(pid);
        Some(largest)
    }

    fn heap_coverage(&mut self, pid: u32) -> Option<Coverage> {
        let vmas = smaps::read(&self.root, &pid.to_string()).ok()?;
        // Reading the tables is slow, and a heap located through them does not move.
        let known = self.heaps.get(&pid).filter(|heap| heap.source == HeapSource::Tables);
        let heap = known.cloned().or_else(|| locate_heap(&self.root, pid, &vmas, &self.hints))?;
        let pages = heap::pages(&self.root, self.thp_size, pid, &vmas, &heap);
        if self.samples_off_heap {
            let seen = self.off_heap_coverage_of(&vmas, &heap);
            let before = self.off_heap_coverage.as_ref().map_or(Bytes::ZERO, |before| before.resident);
            if seen.resident >= before {
                self.off_heap_coverage = Some(seen);
            }
        }
        self.heaps.insert(pid, heap);
        if let Some(passed) = self.passed.as_ref().filter(|_| !self.shortcomings.contains_key(&pid)) {
            let taken = passed.taken_by(&self.root, pid);
            self.shortcomings.insert(pid, taken.and_then(|taken| passed.shortcoming(&taken, pid)));
        }
        Some(pages.coverage(self.thp_size, "smaps and PAGEMAP_SCAN"))
    }

    fn off_heap_coverage_of(&self, vmas: &[Vma], heap: &Heap) -> Coverage {
        let in_heap = |vma: &Vma| heap.ranges.iter().any(|range| range.contains(&vma.addresses.start));
        let is_code = |vma: &Vma| vma.permissions.contains('x');
        let is_off_heap =
            |vma: &&Vma| (vma.is_anonymous() || vma.is_hugetlb) && !in_heap(vma) && !is_code(vma);
        smaps::coverage(vmas.iter().filter(is_off_heap), self.thp_size)
    }
}

/// The CPU time of this thread since `before`: elapsed time would make a reading expensive whenever a busy
/// machine interrupts it, and the memory of a program would go unread for a second or more.
fn cpu_since(before: Duration) -> Duration {
    thread_cpu().saturating_sub(before)
}

/// The cost of a reading that took `cpu`: at most twice the cost before, because a single interrupt, or a stop of
/// a virtual machine, may take the thirtyfold time of a reading.
fn next_cost(before: Duration, cpu: Duration) -> Duration {
    if before.is_zero() { cpu } else { cpu.min(before * 2) }
}

/// The first part of a log, which contains the heap's addresses.
fn beginning_of(log: &Path) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    file::open(log).ok()?.take(1 << 16).read_to_end(&mut text).ok()?;
    Some(text)
}
