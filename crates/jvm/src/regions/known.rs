//! The regions that HotSpot's own tables lead to.

use std::ops::Range;

use super::{
    Collector, JvmIdentity, Kind,
    claims::{Claims, PAGE},
    is_libjvm, metaspace,
    vm_structs::Image,
};

/// No JVM has more code heaps than three.
const MOST_CODE_HEAPS: u32 = 16;

/// Claims them; what could not be told goes to the notes. Answers whether the metaspace was found.
pub(super) fn claim(image: &Image, jvm: &JvmIdentity, claims: &mut Claims, notes: &mut Vec<String>) -> bool {
    let mut told = |what: &str, found: Option<()>| {
        if found.is_none() {
            notes.push(format!("the tables of this JVM do not lead to its {what}"));
        }
    };
    told("heap", heap(image, jvm, claims));
    told("code cache", code_cache(image, claims));
    let collector = jvm.collector.known();
    if matches!(collector, Some(Collector::Serial | Collector::Parallel | Collector::G1) | None) {
        told("card table", card_table(image, claims));
    }
    archive(image, claims);
    let metaspace = metaspace::claim(image, claims);
    told("metaspace", metaspace);
    // The archive lies in one reservation with the class space, right before it.
    archive_rest(claims);
    performance_data(image, claims);
    metaspace.is_some()
}

/// The words of a `MemRegion` at `place`: where it begins, and how many words it has.
fn mem_region(image: &Image, place: u64) -> Option<Range<u64>> {
    let start = image.field(place, "MemRegion::_start")?;
    let words = image.field(place, "MemRegion::_word_size")?;
    let end = start.checked_add(words.checked_mul(8)?)?;
    (start != 0 && start < end).then_some(start..end)
}

/// What the `VirtualSpace` at `place` reserved.
fn virtual_space(image: &Image, place: u64) -> Option<Range<u64>> {
    let start = image.field(place, "VirtualSpace::_low_boundary")?;
    let end = image.field(place, "VirtualSpace::_high_boundary")?;
    (start != 0 && start < end).then_some(start..end)
}

/// What the heap reserved; ZGC keeps no such thing.
pub(super) fn reserved_heap(image: &Image) -> Option<Range<u64>> {
    let heap = image.static_field("Universe::_collectedHeap")?;
    mem_region(image, image.place(heap, "CollectedHeap::_reserved")?)
}

pub(super) fn heap(image: &Image, jvm: &JvmIdentity, claims: &mut Claims) -> Option<()> {
    if jvm.collector.known() == Some(&Collector::Z) {
        return z_heap(image, claims);
    }
    let reserved = reserved_heap(image)?;
    claims.claim(reserved.clone(), "heap", Kind::Heap);
    // Narrow pointers with a base: what lies before the heap must stay without access.
    let before = claims.vma(reserved.start.checked_sub(1)?);
    if let Some(guard) = before.filter(|vma| vma.permissions.starts_with("---")) {
        let page = guard.addresses.end.saturating_sub(guard.addresses.start);
        if claims.is_free(&guard.addresses) && page <= 16 << 20 {
            claims.claim(guard.addresses.clone(), "heap (no access)", Kind::Heap);
        }
    }
    Some(())
}

/// ZGC's addresses are an offset and, above it, bits that say how to see it: each combination that
/// it uses is a view, and every mapping in a view is the heap.
fn z_heap(image: &Image, claims: &mut Claims) -> Option<()> {
    let views = z_views(image)?;
    for vma in claims.vmas() {
        let addresses = &vma.addresses;
        if views.iter().any(|view| view.start <= addresses.start && addresses.end <= view.end) {
            claims.claim(addresses.clone(), "heap", Kind::Heap);
        }
    }
    Some(())
}

/// The addresses of each view that ZGC has of its heap.
pub(super) fn z_views(image: &Image) -> Option<Vec<Range<u64>>> {
    // 21 to 23 have two of them; the one without generations was given another letter there.
    ["X", "Z"].into_iter().find_map(|letter| z_views_of(image, letter))
}

fn z_views_of(image: &Image, letter: &str) -> Option<Vec<Range<u64>>> {
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
}

fn code_cache(image: &Image, claims: &mut Claims) -> Option<()> {
    let heaps = image.static_field("CodeCache::_heaps")?;
    // The type was renamed after 15.
    let length = ["GrowableArrayBase::_len", "GenericGrowableArray::_len"];
    let length = length.iter().find_map(|field| image.place(heaps, field))?;
    let count = image.memory.u32(length)?.min(MOST_CODE_HEAPS);
    let data = image.field(heaps, "GrowableArray<int>::_data")?;
    let mut found = None;
    for index in 0..u64::from(count) {
        let heap = image.memory.u64(data.checked_add(index * 8)?)?;
        let name = code_heap_name(image, claims, heap);
        let memory = virtual_space(image, image.place(heap, "CodeHeap::_memory")?)?;
        let name = name.map_or_else(|| "code cache".to_owned(), |name| format!("code cache: {name}"));
        claims.claim(memory, &name, Kind::CodeCache);
        if let Some(map) = image.place(heap, "CodeHeap::_segmap").and_then(|map| virtual_space(image, map)) {
            claims.claim(map, "code cache: segment map", Kind::CodeCache);
        }
        found = Some(());
    }
    // Alignment may leave room before the first heap and behind the last.
    if let (Some(low), Some(high)) =
        (image.static_field("CodeCache::_low_bound"), image.static_field("CodeCache::_high_bound"))
    {
        if high.saturating_sub(low) <= 1 << 32 {
            claims.claim(low..high, "code cache", Kind::CodeCache);
        }
    }
    found
}

/// `non-nmethods` of `CodeHeap 'non-nmethods'`: a pointer in the object to a text of libjvm.so.
fn code_heap_name(image: &Image, claims: &Claims, heap: u64) -> Option<String> {
    let words = (image.size("CodeHeap")?.min(PAGE) / 8) as usize;
    image.memory.words(heap, words)?.into_iter().find_map(|word| {
        let vma = claims.vma(word)?;
        let text =
            (is_libjvm(&vma.name) && !vma.permissions.contains('w')).then(|| image.memory.text(word))??;
        match text.strip_prefix("CodeHeap '") {
            Some(name) => name.strip_suffix('\'').map(str::to_owned),
            None => (text == "CodeCache").then(|| "all in one".to_owned()),
        }
    })
}

fn card_table(image: &Image, claims: &mut Claims) -> Option<()> {
    let barriers = image.static_field("BarrierSet::_barrier_set")?;
    let table = image.field(barriers, "CardTableBarrierSet::_card_table")?;
    let start = image.field(table, "CardTable::_byte_map")?;
    let size = image.field(table, "CardTable::_byte_map_size")?;
    // One byte for 512 of the heap, or for few hundred more where a page is to be filled.
    let range = start..start.checked_add(size)?;
    let fits = reserved_heap(image).is_none_or(|heap| size <= (heap.end - heap.start) / 32);
    if !fits || start == 0 {
        return None;
    }
    // Serial and Parallel round their reservation up to whole pages.
    let end = match claims.vma(range.end) {
        Some(_) => range.end.next_multiple_of(PAGE),
        None => range.end,
    };
    claims.is_free(&range).then(|| claims.claim(range.start..end, "card table", Kind::GcTable))
}

fn archive(image: &Image, claims: &mut Claims) {
    for vma in claims.vmas().iter().filter(|vma| is_archive(&vma.name)) {
        claims.claim(vma.addresses.clone(), "CDS archive", Kind::Cds);
    }
    let base = image.static_field("MetaspaceObj::_shared_metaspace_base");
    let top = image.static_field("MetaspaceObj::_shared_metaspace_top");
    if let (Some(base), Some(top)) = (base, top) {
        if base != 0 && base < top && top - base <= 1 << 32 {
            claims.claim(base..top, "CDS archive", Kind::Cds);
        }
    }
}

pub(super) fn is_archive(name: &str) -> bool {
    name.trim_end_matches(" (deleted)").ends_with(".jsa")
}

/// What was set aside behind the archive, up to the class space.
fn archive_rest(claims: &mut Claims) {
    let behind: Vec<Range<u64>> = claims
        .vmas()
        .iter()
        .map(|vma| vma.addresses.clone())
        .filter(|addresses| {
            claims.is_free(addresses)
                && addresses.start.checked_sub(1).and_then(|at| claims.kind_at(at)) == Some(Kind::Cds)
                && claims.kind_at(addresses.end) == Some(Kind::ClassSpace)
        })
        .collect();
    for addresses in behind {
        claims.claim(addresses, "CDS archive", Kind::Cds);
    }
}

fn performance_data(image: &Image, claims: &mut Claims) -> Option<()> {
    let start = image.static_field("PerfMemory::_start")?;
    let end = image.static_field("PerfMemory::_end")?;
    (start != 0 && start < end && end - start <= 1 << 24)
        .then(|| claims.claim(start..end, "performance counters", Kind::Internal))
}
