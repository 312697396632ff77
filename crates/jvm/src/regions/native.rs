//! What the C library asked for, files, and what is left.

use std::ops::Range;

use hugewise_linux::proc::smaps::Vma;

use super::{
    Kind,
    claims::{Claims, PAGE, is_askable},
    memory::Memory,
};

/// glibc's arenas begin at multiples of this on 64-bit machines (`HEAP_MAX_SIZE`).
const ARENA: u64 = 64 << 20;
pub(super) const LARGE_ALLOCATION: &str = "malloc (large allocation)";
/// `IS_MMAPPED` in the size of a chunk.
const IS_MMAPPED: u64 = 2;

/// Claims the main arena, the other arenas, and large allocations, each of which is a mapping.
pub(super) fn claim_malloc(memory: &dyn Memory, claims: &mut Claims) {
    claim_brk(claims);
    for vma in claims.vmas().iter().filter(|vma| is_askable(vma) && vma.permissions.starts_with("rw")) {
        let Some(first) = vma.addresses.start.checked_next_multiple_of(ARENA) else { continue };
        for start in (first..vma.addresses.end).step_by(ARENA as usize) {
            if claims.kind_at(start).is_none() && is_arena(memory, vma, start) {
                let end =
                    claims.free_from(start).map_or(start, |free| free.end.min(start.saturating_add(ARENA)));
                claims.claim(start..end, "malloc arena", Kind::Malloc);
            }
        }
        for free in claims.gaps(vma.addresses.clone()) {
            claim_chunks(memory, claims, free.start, free.end);
        }
    }
}

fn claim_brk(claims: &mut Claims) {
    for vma in claims.vmas().iter().filter(|vma| vma.name.starts_with("[heap]")) {
        claims.claim(vma.addresses.clone(), "malloc (main arena)", Kind::Malloc);
    }
}

/// `heap_info` at the beginning of an arena's heap: its arena, the heap before, its size, and how
/// much of it may be accessed.
fn is_arena(memory: &dyn Memory, vma: &Vma, start: u64) -> bool {
    let Some(words) = memory.words(start, 4) else { return false };
    let (arena, before, size, accessible) = (words[0], words[1], words[2], words[3]);
    let first = before == 0 && arena > start && arena - start <= PAGE;
    let later = before != 0 && before % ARENA == 0 && arena != 0 && arena % ARENA <= PAGE;
    let within = size <= accessible && accessible <= ARENA && accessible <= vma.addresses.end - start;
    (first || later) && size > 0 && size % PAGE == 0 && within
}

/// Chunks one behind the other.
fn claim_chunks(memory: &dyn Memory, claims: &mut Claims, start: u64, end: u64) {
    let mut at = start;
    while let Some(behind) = chunk(memory, at..end) {
        claims.claim(at..behind, LARGE_ALLOCATION, Kind::Malloc);
        at = behind;
    }
}

/// Where the large allocation that begins with `free` ends: its size, of whole pages, is in its
/// second word.
pub(super) fn chunk(memory: &dyn Memory, free: Range<u64>) -> Option<u64> {
    if free.is_empty() {
        return None;
    }
    let words = memory.words(free.start, 2)?;
    let size = words[1] & !7;
    let plausible = words[0] == 0 && words[1] & 7 == IS_MMAPPED && size % PAGE == 0 && size > 0;
    (plausible && size <= free.end - free.start).then(|| free.start + size)
}

/// Regions by what their mappings look like: those that nothing else looks like, and where the
/// tables could not be read, the likely heap.
pub(super) fn claim_by_place(tables: bool, claims: &mut Claims) {
    /// Where compressed pointers without a base, and with a shift, reach to.
    const HEAP_ENDS: [u64; 2] = [1 << 32, 1 << 35];
    claim_brk(claims);
    for vma in claims.vmas() {
        let (addresses, permissions) = (vma.addresses.clone(), vma.permissions.as_str());
        if super::known::is_archive(&vma.name) {
            claims.claim(addresses, "CDS archive", Kind::Cds);
        } else if permissions.contains('w') && permissions.contains('x') {
            claims.claim(addresses, "code cache", Kind::CodeCache);
        } else if vma.name.starts_with("/memfd:java_heap") {
            claims.claim(addresses, "heap", Kind::Heap);
        } else if !tables && is_askable(vma) && HEAP_ENDS.contains(&addresses.end) {
            let mut start = addresses.start;
            while let Some(before) = start.checked_sub(1).and_then(|at| claims.vma(at)) {
                if !is_askable(before) {
                    break;
                }
                start = before.addresses.start;
            }
            claims.claim(start..addresses.end, "heap", Kind::Heap);
        }
    }
}

/// Names what is left: files by their names, and memory of nobody.
pub(super) fn claim_rest(claims: &mut Claims) {
    claim_brk(claims);
    let mut library: Option<&Vma> = None;
    for vma in claims.vmas() {
        let is_file = vma.name.starts_with('/') && !is_askable(vma);
        let data_of = library.filter(|library| library.addresses.end == vma.addresses.start);
        let (name, kind) = match (vma.name.as_str(), data_of) {
            (name, _) if name.contains("/hsperfdata_") => ("performance counters".to_owned(), Kind::Internal),
            (name, _) if is_file => (file_name(name).to_owned(), Kind::Other),
            (name, _) if name.starts_with("/SYSV") => ("shared memory".to_owned(), Kind::Other),
            (name, _) if name.starts_with("/anon_hugepage") => ("hugetlb memory".to_owned(), Kind::Other),
            ("", Some(library)) => (file_name(&library.name).to_owned(), Kind::Other),
            ("", None) if vma.permissions.starts_with("---") => ("reserved".to_owned(), Kind::Other),
            ("", None) => ("anonymous".to_owned(), Kind::Other),
            (name, _) => (name.to_owned(), Kind::Other),
        };
        claims.claim(vma.addresses.clone(), &name, kind);
        library = Some(vma).filter(|vma| is_file && vma.permissions.starts_with("rw"));
    }
}

/// The last part of a path, without what the kernel adds.
fn file_name(path: &str) -> &str {
    let path = path.trim_end_matches(" (deleted)");
    path.rsplit('/').next().unwrap_or(path)
}
