//! Page counts of a JVM's heap.
//!
//! [`hugewise_jvm::regions::locate_heap`] gives the heap's address ranges. Memory that is mapped several
//! times, as by ZGC before JDK 21, is counted once.

use std::ops::Range;

use hugewise_jvm::regions::{Heap, HeapHints, locate_heap};
use hugewise_linux::{
    pages::{
        count::{PageCounter, PageCounts},
        views,
    },
    proc::smaps::{self, Vma},
    root::Root,
    sys::pagemap::PresentBytes,
    units::PageSize,
};

/// Counts the pages of the heap. `vmas` are the mappings of process `pid` from smaps; `thp` is the PMD size.
pub fn pages(root: &Root, thp: Option<PageSize>, pid: u32, vmas: &[Vma], heap: &Heap) -> PageCounts {
    let inside =
        |vma: &Vma, range: &Range<u64>| vma.addresses.start < range.end && range.start < vma.addresses.end;
    let mut counter = PageCounter::of(root, pid);
    let duplicates = views::find(root, pid, vmas);
    let mut all = PageCounts::default();
    for range in &heap.ranges {
        for (index, vma) in vmas.iter().enumerate().filter(|(_, vma)| inside(vma, range)) {
            let mut pages = counter.count(vma, range, &[], thp);
            if let Some(view) = duplicates.get(&index).filter(|_| vma.addresses.start >= range.start) {
                pages.subtract(view.bytes, view.huge);
            }
            all.add(&pages);
        }
    }
    all
}

/// Present bytes of the heap, and those of them that huge page table entries map. It reads the page
/// table only, which is the cheapest sample. `None` before Linux 6.7, and if the process may not be read.
pub fn scan(root: &Root, pid: u32, heap: &Heap) -> Option<PresentBytes> {
    let pagemap = root.open_patiently(format!("proc/{pid}/pagemap")).ok()?;
    views::present_once(&pagemap, &maps(root, pid)?, &heap.ranges).ok()
}

/// Locates the heap of process `pid` without counting present pages.
pub fn locate(root: &Root, pid: u32, hints: &HeapHints) -> Option<Heap> {
    locate_heap(root, pid, &maps(root, pid)?, hints)
}

/// Reads maps, because the kernel walks the page table for the counters in smaps.
fn maps(root: &Root, pid: u32) -> Option<Vec<Vma>> {
    smaps::parse(&root.read(format!("proc/{pid}/maps")).ok()?).ok()
}
