//! Names memory of malloc, files, and unidentified memory.

use std::ops::Range;

use hugewise_linux::{c_library::Allocator, proc::smaps::Vma, units::Bytes};

use super::{
    RegionKind,
    claims::{Claims, PAGE, is_allocatable, is_archive},
    heap,
    memory::Memory,
};

/// Alignment of glibc's arenas on 64-bit machines (`HEAP_MAX_SIZE`).
const ARENA: u64 = 64 << 20;
pub(super) const LARGE_ALLOCATION: &str = "malloc (large allocation)";
/// `IS_MMAPPED` in the size field of a chunk.
const IS_MMAPPED: u64 = 2;

/// Whether malloc is not glibc's, whose arenas and large allocations are known by their headers.
pub(super) fn is_other_malloc(vmas: &[Vma]) -> bool {
    let is_other = |file: &str| file.starts_with("ld-musl") || Allocator::of_library(file).is_some();
    vmas.iter().any(|vma| is_other(file_name(&vma.name)))
}

/// Claims the main arena, the other arenas, and large allocations, each of which is a mapping of its own.
pub(super) fn claim_malloc(memory: &dyn Memory, claims: &mut Claims) {
    claim_brk(claims);
    for vma in claims.vmas().iter().filter(|vma| is_allocatable(vma) && vma.permissions.starts_with("rw")) {
        let Some(first) = vma.addresses.start.checked_next_multiple_of(ARENA) else { continue };
        for start in (first..vma.addresses.end).step_by(ARENA as usize) {
            if claims.kind_at(start).is_none() && is_arena(memory, start) {
                let end =
                    claims.free_from(start).map_or(start, |free| free.end.min(start.saturating_add(ARENA)));
                claims.claim(start..end, "malloc arena", RegionKind::Malloc);
            }
        }
        for mut free in claims.gaps(vma.addresses.clone()) {
            while let Some(end) = chunk(memory, free.clone()) {
                claims.claim(free.start..end, LARGE_ALLOCATION, RegionKind::Malloc);
                free.start = end;
            }
        }
    }
}

fn claim_brk(claims: &mut Claims) {
    for vma in claims.vmas().iter().filter(|vma| vma.name.starts_with("[heap]")) {
        claims.claim(vma.addresses.clone(), "malloc (main arena)", RegionKind::Malloc);
    }
}

/// Checks for a `heap_info` at the start of an arena's heap: arena, previous heap, size, and accessible size, which
/// may have grown since the mappings were read.
fn is_arena(memory: &dyn Memory, start: u64) -> bool {
    let Some(words) = memory.words(start, 4) else { return false };
    let (arena, before, size, accessible) = (words[0], words[1], words[2], words[3]);
    let first = before == 0 && arena > start && arena - start <= PAGE;
    let later = before != 0 && before % ARENA == 0 && arena != 0 && arena % ARENA <= PAGE;
    (first || later) && size > 0 && size % PAGE == 0 && size <= accessible && accessible <= ARENA
}

/// End of the large allocation at the start of `free`: its second word is its size, in whole pages.
pub(super) fn chunk(memory: &dyn Memory, free: Range<u64>) -> Option<u64> {
    if free.is_empty() {
        return None;
    }
    let words = memory.words(free.start, 2)?;
    let size = words[1] & !7;
    let plausible = words[0] == 0 && words[1] & 7 == IS_MMAPPED && size % PAGE == 0 && size > 0;
    (plausible && size <= free.end - free.start).then(|| free.start + size)
}

/// Claims regions that their mappings identify, and the probable heap, of at most `max_heap`, if the tables
/// could not be read.
pub(super) fn claim_by_place(tables: bool, max_heap: Option<Bytes>, claims: &mut Claims) {
    claim_brk(claims);
    for vma in claims.vmas() {
        let (addresses, permissions) = (vma.addresses.clone(), vma.permissions.as_str());
        if is_archive(&vma.name) {
            claims.claim(addresses, "CDS archive", RegionKind::Cds);
        } else if permissions.contains('w') && permissions.contains('x') {
            claims.claim(addresses, "code cache", RegionKind::CodeCache);
        }
    }
    let likely = if tables { Vec::new() } else { heap::by_places(claims.vmas(), max_heap) };
    for range in heap::by_file(claims.vmas()).into_iter().chain(likely) {
        claims.claim(range, "heap", RegionKind::Heap);
    }
}

/// Names the remaining memory: files by their names, and memory without an owner.
pub(super) fn claim_rest(claims: &mut Claims) {
    claim_brk(claims);
    let mut library: Option<&Vma> = None;
    for vma in claims.vmas() {
        let is_file = vma.name.starts_with('/') && !is_allocatable(vma);
        let data_of = library.filter(|library| library.addresses.end == vma.addresses.start);
        let (name, kind) = match (vma.name.as_str(), data_of) {
            (name, _) if name.contains("/hsperfdata_") => ("performance counters", RegionKind::Internal),
            (name, _) if is_file => (file_name(name), RegionKind::Other),
            ("", Some(library)) => (file_name(&library.name), RegionKind::Other),
            _ => (unowned(vma), RegionKind::Other),
        };
        claims.claim(vma.addresses.clone(), name, kind);
        library = Some(vma).filter(|vma| is_file && vma.permissions.starts_with("rw"));
    }
}

/// The name of memory without an owner.
pub(super) fn unowned(vma: &Vma) -> &str {
    match vma.name.as_str() {
        name if name.starts_with("/SYSV") => "shared memory",
        name if name.starts_with("/anon_hugepage") => "hugetlb memory",
        "" if vma.permissions.starts_with("---") => "reserved",
        "" => "anonymous",
        name => name,
    }
}

/// Last part of a path, without the suffix that the kernel adds.
fn file_name(path: &str) -> &str {
    let path = path.trim_end_matches(" (deleted)");
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::{super::memory::fake::FakeMemory, *};

    #[test]
    fn an_arena_that_grew_since_its_mappings_were_read_is_one() {
        let mapping = |addresses, permissions: &str| Vma {
            addresses,
            permissions: permissions.to_owned(),
            ..Vma::default()
        };
        let vmas = [mapping(ARENA..ARENA + 8 * PAGE, "rw-p"), mapping(ARENA + 8 * PAGE..2 * ARENA, "---p")];
        let mut memory = FakeMemory::default();
        memory.words(ARENA, &[ARENA + 0x30, 0, 12 * PAGE, 12 * PAGE]);
        let mut claims = Claims::over(&vmas);
        claim_malloc(&memory, &mut claims);
        assert_eq!(claims.kind_at(2 * ARENA - 1), Some(RegionKind::Malloc));
    }
}
