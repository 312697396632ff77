//! Samples the memory of a running program, and the coverage of its region of interest.
//!
//! For each sample the kernel walks the page tables, so the sampling interval grows with the cost of a
//! sample: regular samples take at most 1/200 of the time, on every backing. Between them, the amount of
//! memory is read, which is cheap: growth leads to a sample at once. Growth is relative to the amount, so the
//! number of such samples is small for a program of any size. Until the region is resident and stops growing
//! fast, `MAX_INTERVAL_GROWING` limits the interval, regardless of the cost.

use std::{
    collections::BTreeMap,
    fs::File,
    io::Read,
    path::PathBuf,
    time::{Duration, Instant},
};

use hugewise_jvm::{
    gc_log,
    regions::{Heap, HeapHints, HeapSource, locate_heap},
};
use hugewise_linux::{
    pages::coverage::Coverage,
    proc::{
        smaps::{self, Vma},
        threads, tree,
    },
    root::Root,
    sys::process::thread_cpu,
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

impl Observer {
    /// `thp_size` is the PMD size.
    pub fn new(root: &Root, region: RegionOfInterest, thp_size: Option<PageSize>) -> Observer {
        Observer {
            root: root.clone(),
            region,
            thp_size,
            hints: HeapHints::default(),
            heaps: BTreeMap::new(),
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

    /// Reads and samples only every `MAX_INTERVAL`, for a program that more readings would slow down
    /// measurably.
    pub fn with_longest_interval(self) -> Observer {
        Observer { interval: MAX_INTERVAL, shortest_reading_interval: MAX_INTERVAL, ..self }
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
        let memory = tree.iter().filter_map(|pid| self.memory(*pid)).sum();
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

    /// The sum of `VmRSS` and `HugetlbPages`; `VmRSS` does not include the latter.
    fn memory(&self, pid: u32) -> Option<Bytes> {
        let status = self.root.read(format!("proc/{pid}/status")).ok()?;
        let amounts = status.lines().filter_map(|line| {
            let value = line.strip_prefix("VmRSS:").or_else(|| line.strip_prefix("HugetlbPages:"))?;
            value.parse::<Bytes>().ok()
        });
        Some(amounts.sum())
    }

    fn region_coverage(&mut self, tree: &[u32]) -> Option<Coverage> {
        match &self.region {
            RegionOfInterest::Reported => None,
            RegionOfInterest::Anonymous => {
                let read = |pid: &u32| smaps::read(&self.root, &pid.to_string()).ok();
                let processes: Vec<Vec<Vma>> = tree.iter().filter_map(read).collect();
                let is_malloced = |vma: &&Vma| vma.is_anonymous() || vma.is_hugetlb;
                let is_writable = |vma: &&Vma| vma.permissions.starts_with("rw-p");
                let writable = processes.iter().flatten().filter(is_malloced).filter(is_writable);
                let mapped = writable.map(|vma| Bytes(vma.addresses.end - vma.addresses.start)).sum();
                self.largest_mapped = self.largest_mapped.max(mapped);
                let coverage =
                    |vmas: &Vec<Vma>| smaps::coverage(vmas.iter().filter(is_malloced), self.thp_size);
                processes.iter().map(coverage).reduce(|mut whole, seen| {
                    whole.add(&seen);
                    whole
                })
            }
            RegionOfInterest::JavaHeap(log) => {
                if self.hints.logged.is_none() {
                    self.hints.logged = beginning_of(log).and_then(|text| gc_log::heap(&text));
                }
                // The first process of a launch line may be a wrapper that waits for the JVM, or a JVM that
                // starts others, as JMH does: the heap with most resident bytes counts, the last of equals.
                let heaps = tree.iter().filter_map(|pid| self.heap_coverage(*pid)).collect::<Vec<_>>();
                heaps.into_iter().max_by_key(|seen| seen.resident)
            }
        }
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
fn beginning_of(log: &PathBuf) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    File::open(log).ok()?.take(1 << 16).read_to_end(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::{error::Error, fs, io, path::Path};

    use super::*;

    /// A process of `machine` with a heap of ZGC; `resident` and `huge` are in KiB.
    fn jvm(machine: &Path, pid: u32, children: &str, resident: u64, huge: u64) -> io::Result<()> {
        let process = machine.join(format!("proc/{pid}"));
        fs::create_dir_all(process.join(format!("task/{pid}")))?;
        fs::write(process.join(format!("task/{pid}/children")), children)?;
        fs::write(
            process.join("smaps"),
            format!(
                "40000000000-40040000000 rw-s 00000000 00:01 9  /memfd:java_heap (deleted)\n\
                 Size: 1048576 kB\nRss: {resident} kB\nShmemPmdMapped: {huge} kB\n"
            ),
        )
    }

    fn observer(machine: &Path) -> Result<Observer, Box<dyn Error>> {
        let region = RegionOfInterest::JavaHeap(machine.join("no.log"));
        Ok(Observer::new(&Root::at(machine), region, Some("2m".parse()?)))
    }

    /// ZGC maps its heap before it touches it; a sample may be taken before or during the touching.
    #[test]
    fn sampling_stays_frequent_until_the_heap_is_populated() -> Result<(), Box<dyn Error>> {
        let machine = tempfile::tempdir()?;
        let mut observer = observer(machine.path())?;
        let mut sample = |resident, huge| -> io::Result<(Option<f64>, Duration)> {
            jvm(machine.path(), 10, "", resident, huge)?;
            // An expensive sample lengthens the interval, unless the region is unsettled.
            observer.interval = MAX_INTERVAL;
            observer.sample(10);
            Ok((observer.coverage.as_ref().and_then(Coverage::share), observer.interval))
        };
        assert_eq!(sample(0, 0)?, (None, MAX_INTERVAL_GROWING));
        assert_eq!(sample(4096, 4096)?, (Some(1.0), MAX_INTERVAL_GROWING));
        assert_eq!(sample(8192, 4096)?, (Some(0.5), MAX_INTERVAL_GROWING));
        let (share, interval) = sample(8704, 4352)?;
        assert!(share == Some(0.5) && interval >= MAX_INTERVAL, "{share:?}, {interval:?}");
        Ok(())
    }

    #[test]
    fn one_dear_reading_does_not_end_the_readings() {
        let of = Duration::from_micros;
        assert_eq!(next_cost(of(150), of(4_100)), of(300));
        assert_eq!(next_cost(of(300), of(150)), of(150));
        assert_eq!(next_cost(Duration::ZERO, of(900)), of(900));
    }

    /// Growth leads to a sample, at once if it is large, and otherwise when it ends.
    #[test]
    fn memory_that_grows_is_sampled_before_the_interval_is_over() -> Result<(), Box<dyn Error>> {
        let machine = tempfile::tempdir()?;
        let mut observer = observer(machine.path())?;
        let mut read = |resident: u64| -> Result<Option<Bytes>, Box<dyn Error>> {
            jvm(machine.path(), 10, "", resident, 0)?;
            fs::write(machine.path().join("proc/10/status"), format!("VmRSS: {resident} kB\n"))?;
            observer.interval = Duration::from_secs(1000);
            observer.sample_if_due(10);
            Ok(observer.coverage.as_ref().map(|seen| Bytes(seen.resident.0 >> 10)))
        };
        assert_eq!(read(1000)?, Some(Bytes(1000)));
        assert_eq!(read(1100)?, Some(Bytes(1000)));
        assert_eq!(read(1300)?, Some(Bytes(1000)));
        assert_eq!(read(1310)?, Some(Bytes(1310)));
        assert_eq!(read(2000)?, Some(Bytes(2000)));
        Ok(())
    }

    /// A buffer that is mapped at once and touched little by little, and address space that is only reserved.
    #[test]
    fn what_is_mapped_counts_before_it_is_touched() -> Result<(), Box<dyn Error>> {
        let machine = tempfile::tempdir()?;
        let process = machine.path().join("proc/10");
        fs::create_dir_all(process.join("task/10"))?;
        fs::write(process.join("task/10/children"), "")?;
        let text = "7000000000-7040000000 rw-p 00000000 00:00 0 \nRss: 4096 kB\n\
                    8000000000-8080000000 ---p 00000000 00:00 0 \nRss: 0 kB\n\
                    9000000000-9000200000 rw-s 00000000 00:01 7 /dev/shm/x\nRss: 2048 kB\n";
        fs::write(process.join("smaps"), text)?;
        let mut observer = Observer::new(&Root::at(machine.path()), RegionOfInterest::Anonymous, None);
        observer.sample(10);
        assert_eq!(observer.largest_mapped, Bytes(1 << 30));
        Ok(())
    }

    /// JMH's own JVM is on huge pages; the forked JVM, which runs the benchmark, is not.
    #[test]
    fn of_several_jvms_the_one_with_the_fullest_heap_counts() -> Result<(), Box<dyn Error>> {
        let machine = tempfile::tempdir()?;
        jvm(machine.path(), 10, "11 ", 4096, 4096)?;
        jvm(machine.path(), 11, "", 8192, 0)?;
        let mut observer = observer(machine.path())?;
        observer.sample(10);
        let seen = observer.coverage.ok_or("nothing was seen")?;
        assert_eq!(seen.resident, Bytes(8192 << 10));
        assert!(seen.huge.is_empty() || seen.huge.values().all(|bytes| *bytes == Bytes::ZERO));
        Ok(())
    }
}
