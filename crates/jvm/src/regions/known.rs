//! Regions whose addresses are in HotSpot's tables.

use std::ops::Range;

use super::{
    Collector, JvmIdentity, RegionKind,
    claims::{Claims, PAGE, is_archive},
    heap, is_libjvm, metaspace,
    vm_structs::Image,
};

/// Upper bound; HotSpot has at most three code heaps.
const MAX_CODE_HEAPS: u32 = 16;

/// Claims these regions; the notes name those that are missing. Returns whether the metaspace was found.
pub(super) fn claim(image: &Image, jvm: &JvmIdentity, claims: &mut Claims, notes: &mut Vec<String>) -> bool {
    let mut reported = |what: &str, found: Option<()>| {
        if found.is_none() {
            notes.push(format!("the tables of this JVM lack the address of its {what}"));
        }
    };
    reported("heap", heap::claim(image, jvm, claims));
    reported("code cache", code_cache(image, claims));
    let collector = jvm.collector.known();
    if matches!(collector, Some(Collector::Serial | Collector::Parallel | Collector::G1) | None) {
        reported("card table", card_table(image, claims));
    }
    archive(image, claims);
    let metaspace = metaspace::claim(image, claims);
    reported("metaspace", metaspace);
    // The archive and the class space share a reservation, in which the archive comes first.
    archive_rest(claims);
    performance_data(image, claims);
    metaspace.is_some()
}

/// Reservation of the `VirtualSpace` at `place`.
fn virtual_space(image: &Image, place: u64) -> Option<Range<u64>> {
    let start = image.field(place, "VirtualSpace::_low_boundary")?;
    let end = image.field(place, "VirtualSpace::_high_boundary")?;
    (start != 0 && start < end).then_some(start..end)
}

fn code_cache(image: &Image, claims: &mut Claims) -> Option<()> {
    let heaps = image.static_field("CodeCache::_heaps")?;
    // The type was renamed after JDK 15.
    let length = ["GrowableArrayBase::_len", "GenericGrowableArray::_len"];
    let length = length.iter().find_map(|field| image.place(heaps, field))?;
    let count = image.memory.u32(length)?.min(MAX_CODE_HEAPS);
    let data = image.field(heaps, "GrowableArray<int>::_data")?;
    let mut found = None;
    for index in 0..u64::from(count) {
        let heap = image.memory.u64(data.checked_add(index * 8)?)?;
        let name = code_heap_name(image, claims, heap);
        let memory = virtual_space(image, image.place(heap, "CodeHeap::_memory")?)?;
        let name = name.map_or_else(|| "code cache".to_owned(), |name| format!("code cache: {name}"));
        claims.claim(memory, &name, RegionKind::CodeCache);
        if let Some(map) = image.place(heap, "CodeHeap::_segmap").and_then(|map| virtual_space(image, map)) {
            claims.claim(map, "code cache: segment map", RegionKind::CodeCache);
        }
        found = Some(());
    }
    // Alignment can leave gaps before the first code heap and after the last.
    if let (Some(low), Some(high)) =
        (image.static_field("CodeCache::_low_bound"), image.static_field("CodeCache::_high_bound"))
    {
        if high.saturating_sub(low) <= 1 << 32 {
            claims.claim(low..high, "code cache", RegionKind::CodeCache);
        }
    }
    found
}

/// `non-nmethods` of `CodeHeap 'non-nmethods'`: the object contains a pointer to this string in libjvm.so.
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
    // One byte covers 512 bytes of heap by default; the bound allows for rounding up to whole pages.
    let range = start..start.checked_add(size)?;
    let fits = heap::reserved(image).is_none_or(|heap| size <= (heap.end - heap.start) / 32);
    if !fits || start == 0 {
        return None;
    }
    // Serial and Parallel round their reservation up to whole pages.
    let end = match claims.vma(range.end) {
        Some(_) => range.end.next_multiple_of(PAGE),
        None => range.end,
    };
    claims.is_free(&range).then(|| claims.claim(range.start..end, "card table", RegionKind::GcTable))
}

fn archive(image: &Image, claims: &mut Claims) {
    for vma in claims.vmas().iter().filter(|vma| is_archive(&vma.name)) {
        claims.claim(vma.addresses.clone(), "CDS archive", RegionKind::Cds);
    }
    let base = image.static_field("MetaspaceObj::_shared_metaspace_base");
    let top = image.static_field("MetaspaceObj::_shared_metaspace_top");
    if let (Some(base), Some(top)) = (base, top) {
        if base != 0 && base < top && top - base <= 1 << 32 {
            claims.claim(base..top, "CDS archive", RegionKind::Cds);
        }
    }
}

/// Claims the rest of the archive's reservation, up to the class space.
fn archive_rest(claims: &mut Claims) {
    for addresses in claims.vmas().iter().map(|vma| &vma.addresses) {
        let before = addresses.start.checked_sub(1).and_then(|at| claims.kind_at(at));
        if claims.is_free(addresses)
            && before == Some(RegionKind::Cds)
            && claims.kind_at(addresses.end) == Some(RegionKind::ClassSpace)
        {
            claims.claim(addresses.clone(), "CDS archive", RegionKind::Cds);
        }
    }
}

fn performance_data(image: &Image, claims: &mut Claims) -> Option<()> {
    let start = image.static_field("PerfMemory::_start")?;
    let end = image.static_field("PerfMemory::_end")?;
    (start != 0 && start < end && end - start <= 1 << 24)
        .then(|| claims.claim(start..end, "performance counters", RegionKind::Internal))
}
