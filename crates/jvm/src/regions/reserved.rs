//! Tables that the collector reserved beside the heap, and whose addresses HotSpot's own tables lack.
//!
//! The owner of reserved memory stores its bounds in two adjacent words: base and end, or base and size. The
//! objects within a few pointers of the heap's description and of libjvm.so's static data are searched for
//! such pairs, and for single pointers to unclaimed memory.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    ops::Range,
};

use hugewise_linux::{
    proc::smaps::{ThpAdvice, Vma},
    reading::Reading,
};

use super::{
    Collector, JvmIdentity, RegionKind,
    claims::{Claims, PAGE, is_allocatable},
    heap, is_libjvm, native,
    stacks::{self, Thread},
    vm_structs::Image,
};

/// Depth of the pointer search, from the heap's description and from static data.
const SEARCH_DEPTHS: [u32; 2] = [3, 2];
const MOST_OBJECTS: usize = 40_000;
const MOST_STATIC_BYTES: u64 = 16 << 20;
const MAX_OBJECT_BYTES: u64 = 16 << 10;
/// Maximum offset of an allocation in its chunk, in bytes: after the header of the C library and that of
/// Native Memory Tracking.
const MAX_CHUNK_OFFSET_BYTES: u64 = 64;
/// Bytes read of an object of unknown size.
const DEFAULT_OBJECT_BYTES: u64 = 1 << 10;

/// Tables of G1 with the same size; if a JVM has one such table only, the table has the block offsets.
const OFFSETS_OR_COUNTS: &str = "block offsets or card counts";

/// Root of the search that found a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    Heap,
    Static,
}

#[derive(Default)]
struct FoundRanges {
    /// Ends by base.
    bounds: BTreeMap<u64, BTreeSet<(u64, Origin)>>,
    /// Ends by base, calculated from sizes.
    sized: BTreeMap<u64, BTreeSet<(u64, Origin)>>,
    /// Pointers to the start of a page.
    pointers: BTreeMap<u64, Origin>,
    /// Large allocations of the C library: ends by start.
    chunks: BTreeMap<u64, u64>,
}

pub(super) fn claim(
    image: &Image,
    jvm: &JvmIdentity,
    threads: &[Thread],
    metaspace_known: bool,
    claims: &mut Claims,
    notes: &mut Vec<String>,
) {
    for addresses in static_areas(image, claims) {
        claims.claim(addresses, "libjvm.so", RegionKind::Other);
    }
    let mut walk = PointerSearch { image, claims, seen: HashSet::new(), found: FoundRanges::default() };
    if let Some(heap) = image.static_field("Universe::_collectedHeap") {
        walk.from(vec![heap], SEARCH_DEPTHS[0], Origin::Heap);
    }
    let statics = static_words(image, claims);
    walk.scan_words(&statics, Origin::Static);
    walk.from(statics, SEARCH_DEPTHS[1], Origin::Static);
    if walk.seen.len() >= MOST_OBJECTS {
        notes.push(format!("the search for memory that the JVM reserved ended after {MOST_OBJECTS} objects"));
    }
    let found = walk.found;
    for (start, end) in &found.chunks {
        claims.claim(*start..*end, native::LARGE_ALLOCATION, RegionKind::Malloc);
    }
    claim_foreign(jvm, claims);
    let naming = Tables::of(image, jvm, metaspace_known, claims);
    // Stacks of running threads whose mapping extends beyond the stack.
    for (range, _) in ranges(&found.sized) {
        if claims.is_free(&range) {
            stacks::claim_if_stack(image.memory, threads, &range, claims);
        }
    }

    // In descending order of size: the committed part of a reservation is inside it.
    let mut bounded: Vec<(Range<u64>, Origin)> = ranges(&found.bounds).collect();
    bounded.sort_by_key(|(range, _)| std::cmp::Reverse(range.end - range.start));
    let edges: BTreeSet<u64> = found.pointers.keys().copied().collect();
    let mut sized: Vec<(Range<u64>, Origin)> = ranges(&found.sized)
        .filter(|(range, _)| claims.is_edge(range.end) || edges.contains(&range.end))
        .collect();
    sized.sort_by_key(|(range, _)| std::cmp::Reverse(range.end - range.start));
    let mut offsets = Vec::new();
    let mut keep = |range: Range<u64>, origin: Origin, claims: &mut Claims| {
        let writable = is_writable(claims, range.start);
        let Some((name, kind)) = naming.name(range.end - range.start, origin, writable) else { return };
        if name == OFFSETS_OR_COUNTS {
            offsets.push(range.clone());
        }
        claims.claim(range, name, kind);
    };
    for (range, origin) in bounded.into_iter().chain(sized) {
        if claims.is_free(&range) {
            keep(range, origin, claims);
        }
    }
    for (start, origin) in &found.pointers {
        let Some(free) = claims.free_from(*start) else { continue };
        let next = edges.range(start + 1..).next().copied().unwrap_or(u64::MAX);
        let limit = free.end.min(next);
        let end = naming.fitting(*start, limit).unwrap_or(limit);
        keep(*start..end, *origin, claims);
    }
    if let [only] = offsets.as_slice() {
        claims.rename(only.start, "block offset table");
    }
}

/// Claims memory of the program on pages that this JVM does not request. The search can find pointers to it, too, for
/// example in the data of the compiler.
fn claim_foreign(jvm: &JvmIdentity, claims: &mut Claims) {
    let lacks = |flag: &Reading<bool>| flag.known() == Some(&false);
    let is_foreign = |vma: &&Vma| match vma.advice {
        _ if vma.is_hugetlb => lacks(&jvm.large_pages),
        ThpAdvice::None => false,
        ThpAdvice::Huge => lacks(&jvm.transparent_huge_pages),
        ThpAdvice::NoHuge => true,
    };
    for vma in claims.vmas().iter().filter(|vma| is_allocatable(vma)).filter(is_foreign) {
        claims.claim(vma.addresses.clone(), native::unowned(vma), RegionKind::Other);
    }
}

fn is_writable(claims: &Claims, address: u64) -> bool {
    claims.vma(address).is_some_and(|vma| vma.permissions.contains('w'))
}

fn ranges(by_base: &BTreeMap<u64, BTreeSet<(u64, Origin)>>) -> impl Iterator<Item = (Range<u64>, Origin)> {
    by_base.iter().flat_map(|(base, ends)| ends.iter().map(|(end, origin)| (*base..*end, *origin)))
}

/// Writable data of libjvm.so, zero-initialised data included.
fn static_areas(image: &Image, claims: &Claims) -> Vec<Range<u64>> {
    let vmas = claims.vmas();
    let mut areas = Vec::new();
    for (index, vma) in vmas.iter().enumerate().filter(|(_, vma)| vma.permissions.starts_with("rw")) {
        let before = index.checked_sub(1).map(|before| &vmas[before]);
        let touches = before.is_some_and(|before| {
            is_libjvm(&before.name) && before.addresses.end == vma.addresses.start && vma.name.is_empty()
        });
        if is_libjvm(&vma.name) || touches {
            // The kernel may have merged it with the next mapping.
            let end = (image.library_end.saturating_add(PAGE - 1) & !(PAGE - 1))
                .clamp(vma.addresses.start, vma.addresses.end);
            areas.push(vma.addresses.start..end);
        }
    }
    areas
}

/// Words of [`static_areas`].
pub(super) fn static_words(image: &Image, claims: &Claims) -> Vec<u64> {
    let areas = static_areas(image, claims).into_iter();
    areas
        .flat_map(|area| {
            let bytes = (area.end - area.start).min(MOST_STATIC_BYTES);
            image.memory.words(area.start, (bytes / 8) as usize).unwrap_or_default()
        })
        .collect()
}

struct PointerSearch<'w, 'v> {
    image: &'w Image<'w>,
    claims: &'w Claims<'v>,
    seen: HashSet<u64>,
    found: FoundRanges,
}

impl PointerSearch<'_, '_> {
    fn from(&mut self, roots: Vec<u64>, steps: u32, origin: Origin) {
        let mut next = roots;
        for _ in 0..steps {
            let mut behind = Vec::new();
            for object in next {
                let Some(words) = self.object(object) else { continue };
                self.scan_words(&words, origin);
                behind.extend(words.into_iter().filter(|word| *word != 0 && word % 8 == 0));
            }
            next = behind;
        }
    }

    /// Words of the object at `address`, if it is one of the JVM's own and was not read before.
    fn object(&mut self, address: u64) -> Option<Vec<u64>> {
        if address % 16 != 0 || self.seen.len() >= MOST_OBJECTS || self.seen.contains(&address) {
            return None;
        }
        let vma = self.claims.vma(address)?;
        let own = matches!(self.claims.kind_at(address), None | Some(RegionKind::Malloc));
        if !own || !vma.permissions.starts_with("rw") || !is_allocatable(vma) || vma.is_hugetlb {
            return None;
        }
        self.seen.insert(address);
        // glibc stores the size of a chunk in the word before the allocation. Native Memory Tracking inserts
        // a header, which begins with the requested size.
        let header = self.image.memory.words(address.checked_sub(16)?, 2)?;
        let bytes = match (header[1] & !7, header[0]) {
            (reported @ 24..=1_048_576, _) => (reported - 8).min(MAX_OBJECT_BYTES),
            (_, asked @ 8..=1_048_576) => asked.min(MAX_OBJECT_BYTES),
            _ => DEFAULT_OBJECT_BYTES,
        };
        let bytes = bytes.min(vma.addresses.end - address);
        self.image.memory.words(address, (bytes / 8) as usize)
    }

    fn scan_words(&mut self, words: &[u64], origin: Origin) {
        for (index, word) in words.iter().enumerate() {
            let page = word & !(PAGE - 1);
            if (16..=MAX_CHUNK_OFFSET_BYTES).contains(&(word - page))
                && !self.found.chunks.contains_key(&page)
            {
                let free = self.claims.free_from(page);
                if let Some(end) = free.and_then(|free| native::chunk(self.image.memory, free)) {
                    self.found.chunks.insert(page, end);
                }
            }
            if !may_be_bound(*word, self.claims) || self.claims.free_from(*word).is_none() {
                continue;
            }
            // The end of a range does not count as the start of another.
            let before = index.checked_sub(1).map_or(0, |before| words[before]);
            let is_end = before % PAGE == 0 && before < *word && self.claims.vma(before).is_some();
            if !is_end || !is_writable(self.claims, *word) {
                let known = self.found.pointers.entry(*word).or_insert(origin);
                *known = origin.min(*known);
            }
            let Some(next) = words.get(index + 1).filter(|next| **next % PAGE == 0 && **next != 0) else {
                continue;
            };
            let mut keep = |end: u64, sized: bool| {
                if self.claims.is_free(&(*word..end)) {
                    let kept = if sized { &mut self.found.sized } else { &mut self.found.bounds };
                    kept.entry(*word).or_default().insert((end, origin));
                }
            };
            if may_be_bound(*next, self.claims) {
                keep(*next, false);
            }
            if let Some(end) = word.checked_add(*next) {
                keep(end, true);
            }
        }
    }
}

/// Whether a word may be the address at which memory begins or ends. Two integers of 32 bits, the lower of them 0 or the
/// smallest one, look like a multiple of 2 GiB, at which something begins or ends only if the kernel says so.
fn may_be_bound(word: u64, claims: &Claims) -> bool {
    word != 0 && word % PAGE == 0 && (word % (2 << 30) != 0 || claims.is_edge(word))
}

/// Tables of a collector, by their size as a share of the heap.
struct Tables {
    heap: Option<u64>,
    collector: Option<Collector>,
    /// Page sizes of the process, to which a table may be rounded up.
    page_sizes: BTreeSet<u64>,
    /// Whether the metaspace is claimed; if not, memory found from static data may be a part of it.
    metaspace_known: bool,
    /// Whether memory of malloc is among the unclaimed memory: the pointers that lead to tables lead to it, too.
    is_other_malloc: bool,
}

impl Tables {
    fn of(image: &Image, jvm: &JvmIdentity, metaspace_known: bool, claims: &Claims) -> Tables {
        let reserved = heap::reserved(image).map(|heap| heap.end - heap.start);
        let heap = reserved.or_else(|| jvm.max_heap.known().map(|bytes| bytes.0)).filter(|heap| *heap > 0);
        let sizes = claims.vmas().iter().map(|vma| vma.kernel_page_size.0);
        let mut page_sizes: BTreeSet<u64> = sizes.filter(|size| size.is_power_of_two()).collect();
        // One page of page table entries, of 8 bytes each, maps one THP.
        let thp = page_sizes.first().and_then(|base| base.checked_mul(base / 8)).filter(|thp| *thp > 0);
        page_sizes.extend(thp);
        page_sizes.insert(PAGE);
        let is_other_malloc = native::is_other_malloc(claims.vmas());
        Tables {
            heap,
            collector: jvm.collector.known().copied(),
            page_sizes,
            metaspace_known,
            is_other_malloc,
        }
    }

    /// Heap bytes per byte of table, and the table's name.
    fn shares(&self) -> &'static [(u64, &'static str)] {
        match self.collector {
            Some(Collector::G1) => &[(64, "mark bitmap"), (512, OFFSETS_OR_COUNTS)],
            Some(Collector::Parallel) => {
                &[(32, "mark bitmap"), (64, "mark bitmap"), (512, "compaction data")]
            }
            Some(Collector::Shenandoah) => &[(32, "mark bitmap"), (64, "mark bitmap")],
            _ => &[],
        }
    }

    fn is_share(&self, bytes: u64, share: u64) -> bool {
        let Some(exact) = self.heap.map(|heap| heap / share) else { return false };
        let whole = |page: &u64| exact.checked_next_multiple_of(*page) == Some(bytes);
        exact <= bytes && self.page_sizes.iter().any(whole)
    }

    /// Name and kind of memory of this size; `None` if it may be malloc's.
    fn name(&self, bytes: u64, origin: Origin, writable: bool) -> Option<(&'static str, RegionKind)> {
        if origin == Origin::Static && !(writable && (self.metaspace_known || self.is_other_malloc)) {
            // The polling page and similar pages are read-only.
            return Some(("jvm", RegionKind::Internal));
        }
        if let Some((_, name)) = self.shares().iter().find(|(share, _)| self.is_share(bytes, *share)) {
            return Some((name, RegionKind::GcTable));
        }
        if self.is_other_malloc {
            return None;
        }
        // One byte for 512 bytes of the old generation, which is a part of the heap.
        let of_old = matches!(self.collector, Some(Collector::Serial | Collector::Parallel))
            && self.heap.is_some_and(|heap| (heap / 2048..=heap / 512 + PAGE).contains(&bytes));
        match origin {
            Origin::Heap if of_old => Some(("block offset table", RegionKind::GcTable)),
            // Of the writable mappings of HotSpot only those of the collector are unnamed at this point.
            Origin::Heap | Origin::Static => Some(("gc table", RegionKind::GcTable)),
        }
    }

    /// End of a table that begins at `start`, if a known size fits before `end`.
    fn fitting(&self, start: u64, end: u64) -> Option<u64> {
        let heap = self.heap?;
        let fits = |share: &u64| {
            let size = (heap / share).next_multiple_of(PAGE);
            (size >= 1 << 20).then(|| start.checked_add(size))?.filter(|fit| *fit <= end)
        };
        match self.collector {
            Some(Collector::Shenandoah) => self.shares().iter().find_map(|(share, _)| fits(share)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::jvm, *};

    #[test]
    fn memory_on_pages_that_a_jvm_does_not_request_is_not_its_own() {
        let mapping = |start, advice, is_hugetlb| Vma {
            addresses: start..start + PAGE,
            permissions: "rw-p".to_owned(),
            advice,
            is_hugetlb,
            ..Vma::default()
        };
        let vmas = [
            mapping(PAGE, ThpAdvice::Huge, false),
            mapping(3 * PAGE, ThpAdvice::NoHuge, false),
            mapping(5 * PAGE, ThpAdvice::None, true),
            mapping(7 * PAGE, ThpAdvice::None, false),
        ];
        for (requests, foreign) in [(false, [true, true, true, false]), (true, [false, true, false, false])] {
            let jvm = JvmIdentity {
                large_pages: Reading::Known(requests),
                transparent_huge_pages: Reading::Known(requests),
                ..jvm::unknown("a test")
            };
            let mut claims = Claims::over(&vmas);
            claim_foreign(&jvm, &mut claims);
            let claimed = vmas.each_ref().map(|vma| claims.kind_at(vma.addresses.start).is_some());
            assert_eq!(claimed, foreign, "the JVM requests huge pages: {requests}");
        }
    }

    #[test]
    fn two_small_integers_are_no_bound_of_memory() {
        let vma = |addresses| Vma { addresses, ..Vma::default() };
        let vmas = [vma(0x7f5c_7900_0000..0x7f5d_13e0_0000), vma(0x7f5e_0000_0000..0x7f5e_0040_0000)];
        let claims = Claims::over(&vmas);
        let kept = |word| may_be_bound(word, &claims);
        assert!(!kept(0x7f5d_0000_0000) && !kept(0x7f5c_8000_0000), "within a mapping");
        assert!(kept(0x7f5e_0000_0000), "the start of a mapping");
        assert!(kept(0x7f5d_0000_1000), "pages within a mapping that the kernel merged");
        assert!(!kept(0x7f5d_0000_0008), "not a page");
        assert!(!kept(0), "null");
    }
}
