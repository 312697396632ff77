//! Locates the heap of a JVM, for all commands, from the first available source: the JVM's log, the heap file
//! of ZGC, HotSpot's own tables, or the positions of the mappings.

use std::ops::Range;

use hugewise_linux::{proc::smaps::Vma, root::Root, units::Bytes};
use serde::{Deserialize, Serialize};

use super::{
    Collector, JvmIdentity, RegionKind, aside,
    claims::{Claims, is_allocatable},
    is_libjvm, jvm,
    memory::ProcessMemory,
    vm_structs::Image,
};

/// Source of a heap's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HeapSource {
    /// Log of the JVM: exact.
    Log,
    /// Heap file of ZGC, a memfd: exact, until ZGC maps more of it.
    File,
    /// HotSpot's own tables in the memory of the process: exact.
    Tables,
    /// Positions and sizes of the mappings: probable.
    Places,
}

/// Address ranges of a heap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heap {
    /// Sorted, without overlaps. Several ranges may map the same memory: ZGC before JDK 21 maps its heap
    /// three times.
    pub ranges: Vec<Range<u64>>,
    pub source: HeapSource,
}

/// Address range and size of a heap, known from other sources than the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeapHints {
    /// Address range in the JVM's log; `None` without a log.
    pub logged: Option<Range<u64>>,
    /// `MaxHeapSize`; `None` if unknown.
    pub max_bytes: Option<Bytes>,
}

/// Locates the heap of the JVM in process `pid` with the mappings `vmas`, of which only addresses, names and
/// permissions are used. `None` if the process has no heap yet, or if no source has its address.
pub fn locate(root: &Root, pid: u32, vmas: &[Vma], hints: &HeapHints) -> Option<Heap> {
    let found = |ranges: Vec<Range<u64>>, source| (!ranges.is_empty()).then_some(Heap { ranges, source });
    found(hints.logged.iter().cloned().collect(), HeapSource::Log)
        .or_else(|| found(by_file(vmas), HeapSource::File))
        .or_else(|| found(by_tables(root, pid, vmas).unwrap_or_default(), HeapSource::Tables))
        .or_else(|| found(by_places(vmas, hints.max_bytes), HeapSource::Places))
}

fn by_tables(root: &Root, pid: u32, vmas: &[Vma]) -> Option<Vec<Range<u64>>> {
    let library = vmas.iter().find(|vma| is_libjvm(&vma.name)).filter(|_| root.is_live())?;
    let found = || -> Option<Vec<Range<u64>>> {
        let live = ProcessMemory::of(root, pid, vmas);
        let image = Image::load(&live, library.addresses.start).ok()?;
        let mut claims = Claims::over(vmas);
        claim(&image, &jvm::identify(&image), &mut claims)?;
        Some(claims.into_ranges().into_iter().map(|range| range.start..range.end).collect())
    };
    aside::answer(aside::READING_LIMIT, found).ok()?
}

/// Mappings of ZGC's heap file.
pub(super) fn by_file(vmas: &[Vma]) -> Vec<Range<u64>> {
    let named = vmas.iter().filter(|vma| vma.name.starts_with("/memfd:java_heap"));
    named.map(|vma| vma.addresses.clone()).collect()
}

/// Probable heap: memory that ends at the limit of compressed pointers (4 GiB unscaled, 32 GiB with a shift
/// of 3 bits), or else adjacent mappings with the size of the maximum heap.
pub(super) fn by_places(vmas: &[Vma], max_bytes: Option<Bytes>) -> Vec<Range<u64>> {
    const COMPRESSED_ENDS: [u64; 2] = [1 << 32, 1 << 35];
    let mut runs: Vec<Range<u64>> = Vec::new();
    for vma in vmas.iter().filter(|vma| is_allocatable(vma)) {
        match runs.last_mut() {
            Some(run) if run.end == vma.addresses.start && !COMPRESSED_ENDS.contains(&run.end) => {
                run.end = vma.addresses.end;
            }
            _ => runs.push(vma.addresses.clone()),
        }
    }
    let compressed = runs.iter().find(|run| COMPRESSED_ENDS.contains(&run.end));
    let by_size = || {
        let max = max_bytes?.0;
        // Adjacent mappings may include a neighbour of the heap; more than an eighth above its size they are
        // other memory.
        let fits = |run: &&Range<u64>| (max..=max.saturating_add(max / 8)).contains(&(run.end - run.start));
        runs.iter().find(fits).map(|run| run.start..run.start.saturating_add(max))
    };
    compressed.cloned().or_else(by_size).into_iter().collect()
}

/// Claims the heap by HotSpot's tables; `None` if they lack its address.
pub(super) fn claim(image: &Image, jvm: &JvmIdentity, claims: &mut Claims) -> Option<()> {
    if jvm.collector.known() == Some(&Collector::Z) {
        return z_heap(image, claims);
    }
    let reserved = reserved(image)?;
    claims.claim(reserved.clone(), "heap", RegionKind::Heap);
    // Compressed pointers with a base: the page before the heap is reserved without access.
    let before = claims.vma(reserved.start.checked_sub(1)?);
    if let Some(guard) = before.filter(|vma| vma.permissions.starts_with("---")) {
        let page = guard.addresses.end.saturating_sub(guard.addresses.start);
        if claims.is_free(&guard.addresses) && page <= 16 << 20 {
            claims.claim(guard.addresses.clone(), "heap (no access)", RegionKind::Heap);
        }
    }
    Some(())
}

/// An address of ZGC consists of an offset and metadata bits above it. Each combination of bits in use is a
/// view, and every mapping in a view is heap.
fn z_heap(image: &Image, claims: &mut Claims) -> Option<()> {
    let views = z_views(image)?;
    for vma in claims.vmas() {
        let addresses = &vma.addresses;
        if views.iter().any(|view| view.start <= addresses.start && addresses.end <= view.end) {
            claims.claim(addresses.clone(), "heap", RegionKind::Heap);
        }
    }
    Some(())
}

/// Address range of each view of ZGC's heap, mapped or not.
fn z_views(image: &Image) -> Option<Vec<Range<u64>>> {
    // JDK 21 to 23 have two versions of ZGC; the one without generations has another letter.
    ["X", "Z"].into_iter().find_map(|letter| {
        let name = |field: &str| format!("{letter}GlobalsForVMStructs::{field}");
        let globals = image.static_field(&name("_instance_p"))?;
        let mask = |field: &str| image.memory.u64(image.field(globals, &name(field))?);
        let size = mask(&format!("_{letter}AddressOffsetMask"))?.checked_add(1)?;
        if !size.is_power_of_two() || size < 1 << 32 {
            return None;
        }
        let metadata = mask(&format!("_{letter}AddressMetadataMask")).unwrap_or(0);
        let views = (0..47).map(|bit| 1u64 << bit).filter(|bit| metadata & bit != 0 || *bit == size);
        Some(views.map(|view| view..view.saturating_add(size)).collect())
    })
}

/// Reserved address range of the heap; `None` with ZGC, which does not record it.
pub(super) fn reserved(image: &Image) -> Option<Range<u64>> {
    let heap = image.static_field("Universe::_collectedHeap")?;
    let place = image.place(heap, "CollectedHeap::_reserved")?;
    let start = image.field(place, "MemRegion::_start")?;
    let words = image.field(place, "MemRegion::_word_size")?;
    let end = start.checked_add(words.checked_mul(8)?)?;
    (start != 0 && start < end).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vma(addresses: Range<u64>, permissions: &str, name: &str) -> Vma {
        Vma { addresses, permissions: permissions.to_owned(), name: name.to_owned(), ..Vma::default() }
    }

    #[test]
    fn a_heap_is_found_by_its_file_its_end_or_its_size() {
        let max = Some(Bytes(256 << 20));
        let start = (1 << 32) - (256 << 20);
        let below = [vma(start..start + 0x1000, "rw-p", ""), vma(start + 0x1000..1 << 32, "---p", "")];
        assert_eq!(by_places(&below, None), std::slice::from_ref(&(start..1 << 32)));
        let high = 0x7f00_0000_0000;
        let end = high + (256 << 20);
        let far = [vma(high..high + 4096, "rw-p", ""), vma(high + 4096..end, "---p", "")];
        assert_eq!(by_places(&far, max), std::slice::from_ref(&(high..end)));
        assert!(by_places(&far, None).is_empty() && by_places(&far, Some(Bytes(1 << 30))).is_empty());
        let view = |start: u64| vma(start..start + 0x20_0000, "rw-s", "/memfd:java_heap (deleted)");
        let views = by_file(&[view(0x400_0000_0000), view(0x800_0000_0000)]);
        assert_eq!(views, [0x400_0000_0000..0x400_0020_0000, 0x800_0000_0000..0x800_0020_0000]);
    }

    #[test]
    fn the_log_counts_before_the_places() {
        let root = Root::at("/nonexistent");
        let start = (1 << 32) - (256 << 20);
        let vmas = [vma(start..1 << 32, "rw-p", "")];
        let logged = HeapHints { logged: Some(16..32), max_bytes: None };
        assert_eq!(locate(&root, 1, &vmas, &logged).map(|heap| heap.source), Some(HeapSource::Log));
        let places = locate(&root, 1, &vmas, &HeapHints::default());
        assert_eq!(places.map(|heap| heap.source), Some(HeapSource::Places));
        assert_eq!(locate(&root, 1, &[], &HeapHints::default()), None);
    }
}
