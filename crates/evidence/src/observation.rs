//! Watching a running program from outside: its memory, and what the region that matters got.
//!
//! Looking costs the kernel a walk of the page tables, so looks become rarer as they become dearer:
//! they take no more than one two-hundredth of the time, whatever the backing, from the moment on
//! when the region that matters was seen and no longer grows fast. Growth is counted in parts of what was
//! there, so few looks are frequent, however large it becomes.

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
    proc::{smaps, tree},
    root::Root,
    units::{Bytes, PageSize},
};

use crate::heap;

/// The longest time between two looks that are cheap.
const LONGEST_GAP: Duration = Duration::from_millis(500);
/// A look may cost this fraction of the time until the next.
const BUDGET: u32 = 200;
/// The longest time between two looks as long as the region was not seen or grows fast, whatever they cost:
/// a JVM may end less than half a second after its heap was there, and what is seen of a heap that is
/// being filled is not what it gets.
const LONGEST_GAP_UNSETTLED: Duration = Duration::from_millis(20);
/// The region grows fast if it became larger by this part of itself from one look to the next.
const FAST_GROWTH: f64 = 1.0 / 8.0;

/// Whose coverage is meant.
#[derive(Clone, Debug)]
pub enum RegionOfInterest {
    /// Memory that belongs to no file: malloc'd memory, stacks, anonymous mappings.
    Anonymous,
    /// The Java heap; the JVM's own log in this file tells where it lies.
    JavaHeap(PathBuf),
    /// The program tells itself.
    Reported,
}

/// What was seen of a program so far.
#[derive(Debug)]
pub struct Observer {
    root: Root,
    region: RegionOfInterest,
    thp_size: Option<PageSize>,
    hints: HeapHints,
    heaps: BTreeMap<u32, Heap>,
    gap: Duration,
    /// The most memory seen at once: resident plus hugetlb, all its processes together.
    pub peak_memory: Bytes,
    /// The region's coverage when most of it was resident.
    pub coverage: Option<Coverage>,
}

impl Observer {
    /// Nothing seen yet. `thp_size` is the size of a whole THP.
    #[must_use]
    pub fn new(root: &Root, region: RegionOfInterest, thp_size: Option<PageSize>) -> Observer {
        Observer {
            root: root.clone(),
            region,
            thp_size,
            hints: HeapHints::default(),
            heaps: BTreeMap::new(),
            gap: Duration::from_millis(2),
            peak_memory: Bytes::ZERO,
            coverage: None,
        }
    }

    /// The same, looking as rarely as it ever does from the start: where even a look would be measured.
    #[must_use]
    pub fn looking_rarely(self) -> Observer {
        Observer { gap: LONGEST_GAP, ..self }
    }

    /// How long to wait until the next look.
    #[must_use]
    pub fn gap(&self) -> Duration {
        self.gap
    }

    /// Looks at process `pid` and its descendants. One that has just ended is passed over.
    pub fn look(&mut self, pid: u32) {
        let begin = Instant::now();
        let tree = tree::processes(&self.root, pid);
        let memory = tree.iter().filter_map(|pid| self.memory(*pid)).sum();
        self.peak_memory = self.peak_memory.max(memory);
        let before = self.coverage.as_ref().map_or(Bytes::ZERO, |before| before.resident);
        // What is mapped and not touched yet has no pages.
        let seen = self.region_coverage(&tree).filter(|seen| seen.resident > Bytes::ZERO);
        if let Some(seen) = seen.filter(|seen| seen.resident >= before) {
            self.coverage = Some(seen);
        }
        let after = self.coverage.as_ref().map_or(Bytes::ZERO, |after| after.resident);
        let settled = after > Bytes::ZERO && after.0 as f64 <= before.0 as f64 * (1.0 + FAST_GROWTH);
        self.gap = (self.gap * 5 / 4).min(LONGEST_GAP).max(begin.elapsed() * BUDGET);
        if !settled && !matches!(self.region, RegionOfInterest::Reported) {
            self.gap = self.gap.min(LONGEST_GAP_UNSETTLED);
        }
    }

    /// `VmRSS` and `HugetlbPages`, which is not in it.
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
                let mut whole: Option<Coverage> = None;
                for pid in tree {
                    let Ok(vmas) = smaps::read(&self.root, &pid.to_string()) else { continue };
                    let seen = smaps::coverage(
                        vmas.iter().filter(|v| v.is_anonymous() || v.is_hugetlb),
                        self.thp_size,
                    );
                    match &mut whole {
                        Some(whole) => whole.add(&seen),
                        None => whole = Some(seen),
                    }
                }
                whole
            }
            RegionOfInterest::JavaHeap(log) => {
                if self.hints.logged.is_none() {
                    self.hints.logged = beginning_of(log).and_then(|text| gc_log::heap(&text));
                }
                // The first process of a launch line may be a wrapper that waits for the JVM, or a JVM
                // that has others do the work, as JMH does: the fullest heap counts, the last of equals.
                let heaps = tree.iter().filter_map(|pid| self.heap_coverage(*pid)).collect::<Vec<_>>();
                heaps.into_iter().max_by_key(|seen| seen.resident)
            }
        }
    }

    fn heap_coverage(&mut self, pid: u32) -> Option<Coverage> {
        let vmas = smaps::read(&self.root, &pid.to_string()).ok()?;
        // The tables take long to read, and a heap that they lead to stays where it is.
        let known = self.heaps.get(&pid).filter(|heap| heap.source == HeapSource::Tables);
        let heap = known.cloned().or_else(|| locate_heap(&self.root, pid, &vmas, &self.hints))?;
        let pages = heap::pages(&self.root, self.thp_size, pid, &vmas, &heap);
        self.heaps.insert(pid, heap);
        Some(pages.coverage(self.thp_size, "smaps and PAGEMAP_SCAN"))
    }
}

/// The first part of a log, in which the heap's place stands.
fn beginning_of(log: &PathBuf) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    File::open(log).ok()?.take(1 << 16).read_to_end(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::{error::Error, fs, io, path::Path};

    use super::*;

    /// A process of `machine` with a heap of ZGC, of which so many KiB are resident and on huge pages.
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

    /// ZGC maps its heap before it touches it; a look may fall between the two, or into the touching.
    #[test]
    fn looks_stay_frequent_until_the_heap_is_filled() -> Result<(), Box<dyn Error>> {
        let machine = tempfile::tempdir()?;
        let mut observer = observer(machine.path())?;
        let mut look = |resident, huge| -> io::Result<(Option<f64>, Duration)> {
            jvm(machine.path(), 10, "", resident, huge)?;
            // A look that costs much makes the gap long, where it may.
            observer.gap = LONGEST_GAP;
            observer.look(10);
            Ok((observer.coverage.as_ref().and_then(Coverage::share), observer.gap))
        };
        assert_eq!(look(0, 0)?, (None, LONGEST_GAP_UNSETTLED));
        assert_eq!(look(4096, 4096)?, (Some(1.0), LONGEST_GAP_UNSETTLED));
        assert_eq!(look(8192, 4096)?, (Some(0.5), LONGEST_GAP_UNSETTLED));
        let (share, gap) = look(8704, 4352)?;
        assert!(share == Some(0.5) && gap >= LONGEST_GAP, "{share:?}, {gap:?}");
        Ok(())
    }

    /// JMH's own JVM has its pages; the one that it has started to measure has not.
    #[test]
    fn of_several_jvms_the_one_with_the_fullest_heap_counts() -> Result<(), Box<dyn Error>> {
        let machine = tempfile::tempdir()?;
        jvm(machine.path(), 10, "11 ", 4096, 4096)?;
        jvm(machine.path(), 11, "", 8192, 0)?;
        let mut observer = observer(machine.path())?;
        observer.look(10);
        let seen = observer.coverage.ok_or("nothing was seen")?;
        assert_eq!(seen.resident, Bytes(8192 << 10));
        assert!(seen.huge.is_empty() || seen.huge.values().all(|bytes| *bytes == Bytes::ZERO));
        Ok(())
    }
}
