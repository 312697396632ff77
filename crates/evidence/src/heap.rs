//! Which pages the heap of a JVM lies on.
//!
//! The place of a heap comes from [`hugewise_jvm::regions::locate_heap`] alone, and memory that is mapped several
//! times, as by ZGC before JDK 21, counts once.

use std::{fs::File, ops::Range};

use hugewise_jvm::regions::{Heap, HeapHints, locate_heap};
use hugewise_linux::{
    pages::{
        count::{Counter, PageCounts},
        views,
    },
    proc::smaps::{self, Vma},
    root::Root,
    sys::pagemap::Scan,
    units::PageSize,
};

/// The pages of the heap, from the mappings of process `pid` as smaps gives them; `thp` is the PMD size.
#[must_use]
pub fn pages(root: &Root, thp: Option<PageSize>, pid: u32, vmas: &[Vma], heap: &Heap) -> PageCounts {
    let inside =
        |vma: &Vma, range: &Range<u64>| vma.addresses.start < range.end && range.start < vma.addresses.end;
    let mut counter = Counter::of(root, pid);
    let duplicates = views::find(root, pid, vmas);
    let mut all = PageCounts::default();
    for range in &heap.ranges {
        for (index, vma) in vmas.iter().enumerate().filter(|(_, vma)| inside(vma, range)) {
            let mut pages = counter.count(vma, range, &[], thp);
            if let Some(view) = duplicates.get(&index).filter(|_| vma.addresses.start >= range.start) {
                pages.take_off(view.bytes, view.huge);
            }
            all.add(&pages);
        }
    }
    all
}

/// The present bytes of the heap, and of those the bytes that huge page table entries map, from the page table
/// alone: the cheapest sample. `None` before Linux 6.7, and of a process that may not be read.
#[must_use]
pub fn scan(root: &Root, pid: u32, heap: &Heap) -> Option<Scan> {
    let pagemap = File::open(root.path(format!("proc/{pid}/pagemap"))).ok()?;
    views::present_once(&pagemap, &maps(root, pid)?, &heap.ranges).ok()
}

/// Locates the heap of process `pid` without reading how much of its memory is present.
#[must_use]
pub fn locate(root: &Root, pid: u32, hints: &HeapHints) -> Option<Heap> {
    locate_heap(root, pid, &maps(root, pid)?, hints)
}

/// The mappings without their counters, for which the kernel would walk the page table.
fn maps(root: &Root, pid: u32) -> Option<Vec<Vma>> {
    smaps::parse(&root.read(format!("proc/{pid}/maps")).ok()?).ok()
}
