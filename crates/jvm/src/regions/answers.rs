//! Parsers of a JVM's answers about its memory: `VM.native_memory detail`, `System.map` and `VM.info`. Lines
//! that do not parse are skipped.

use std::ops::Range;

use super::{NamedRange, RegionKind};

/// Most ranges of an answer that are taken; a process has at most 65,530 mappings.
const MAX_RANGES: usize = 200_000;
/// Longest name of a region, in bytes; names of threads and tags are shorter.
const MAX_NAME_BYTES: usize = 100;

/// Tags of Native Memory Tracking and of `System.map`, with region name and kind; `-` if `System.map` has none.
const TAGS: [(&str, &str, &str, RegionKind); 12] = [
    ("Java Heap", "JAVAHEAP", "heap", RegionKind::Heap),
    ("Code", "CODE", "code cache", RegionKind::CodeCache),
    ("GC", "GC", "gc table", RegionKind::GcTable),
    ("GCCardSet", "-", "gc table", RegionKind::GcTable),
    ("Card Table", "CARDTBL", "card table", RegionKind::GcTable),
    ("Metaspace", "META", "metaspace", RegionKind::Metaspace),
    ("Class", "CLASS", "class space", RegionKind::ClassSpace),
    ("Shared class space", "CDS", "CDS archive", RegionKind::Cds),
    ("Thread Stack", "STACK", "thread stack", RegionKind::ThreadStack),
    ("Thread", "-", "thread stack", RegionKind::ThreadStack),
    ("Internal", "INTERN", "jvm", RegionKind::Internal),
    ("Safepoint", "POLL", "polling page", RegionKind::Internal),
];

/// Reservations: lines that begin with `[0x… - 0x…] reserved 262144KB for Java Heap from`. The committed
/// parts, which are indented, are skipped. Empty if tracking is off.
pub(super) fn native_memory(text: &str) -> Vec<NamedRange> {
    let reservation = |line: &str| {
        let (addresses, what) = line.strip_prefix('[')?.split_once("] reserved ")?;
        let tag = what.split_once("KB for ")?.1.trim();
        let tag = tag.strip_suffix(" from").unwrap_or(tag);
        let known = TAGS.iter().find(|(known, ..)| *known == tag);
        // With an unknown tag it is still memory of the JVM. JDK 25 prints the tag `Unknown` for a heap and a
        // code cache on hugetlb pages.
        let (name, kind) = known.map_or((tag, RegionKind::Internal), |(.., name, kind)| (*name, *kind));
        (tag != "Unknown").then_some(named(range(addresses, " - ")?, name, kind))
    };
    text.lines().filter_map(reservation).take(MAX_RANGES).collect()
}

/// Rows of `System.map`: `0x…-0x… bytes prot rss hugetlb page notes info file`. Mappings with two tags are
/// skipped: the row does not say where each one is.
pub(super) fn system_map(text: &str) -> Vec<NamedRange> {
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let range = range(words.next()?, "-")?;
        let info = words.nth(6).filter(|info| !info.contains(','))?;
        let tag = info.split('-').next()?;
        let (.., name, kind) = TAGS.iter().find(|(_, known, ..)| *known == tag)?;
        // STACK-15652-Attach-Listener
        Some(match info.splitn(3, '-').nth(2).filter(|_| *kind == RegionKind::ThreadStack) {
            Some(thread) => {
                named(range, &format!("thread stack ({})", short(thread).replace('-', " ")), *kind)
            }
            None => named(range, name, *kind),
        })
    };
    text.lines().filter_map(row).take(MAX_RANGES).collect()
}

/// Ranges in the text of `VM.info`.
pub(super) fn vm_info(text: &str) -> Vec<NamedRange> {
    let mut ranges = Vec::new();
    let mut code_heap = None;
    for line in text.lines() {
        if ranges.len() >= MAX_RANGES {
            break;
        }
        if let Some((_, rest)) = line.split_once("CodeHeap '") {
            code_heap = rest.split_once('\'').map(|(name, _)| format!("code cache: {}", short(name)));
        } else if let Some(bounds) = line.trim().strip_prefix("bounds [") {
            // Start, end of the committed part, end of the reservation.
            let numbers: Vec<u64> =
                bounds.trim_end_matches(']').split(", ").filter_map(hexadecimal).collect();
            let name = code_heap.take().unwrap_or_else(|| "code cache".to_owned());
            if let [start, _, end] = numbers[..] {
                ranges.push(named(start..end, &name, RegionKind::CodeCache));
            }
        } else if let Some(rest) = line.strip_prefix("Heap address: ") {
            ranges.extend(heap(rest).map(|range| named(range, "heap", RegionKind::Heap)));
        } else if let Some(rest) = line.strip_prefix("Card table byte_map: [") {
            let bounds = rest.split_once(']').and_then(|(bounds, _)| range(bounds, ","));
            ranges.extend(bounds.map(|range| named(range, "card table", RegionKind::GcTable)));
        } else if let Some(rest) = line.strip_prefix("Compressed class space mapped at: ") {
            let bounds = rest.split_once(", ").and_then(|(bounds, _)| range(bounds, "-"));
            ranges.extend(bounds.map(|range| named(range, "class space", RegionKind::ClassSpace)));
        } else if let Some(rest) = line.strip_prefix("CDS archive(s) mapped at: [") {
            let mut numbers = rest.split(['-', ')']).map_while(hexadecimal);
            if let (Some(start), Some(_), Some(end)) = (numbers.next(), numbers.next(), numbers.next()) {
                ranges.push(named(start..end, "CDS archive", RegionKind::Cds));
            }
        }
    }
    ranges.retain(|range| range.start < range.end);
    ranges
}

/// `0x00000000f0000000, size: 256 MB, …`
fn heap(text: &str) -> Option<Range<u64>> {
    let (start, rest) = text.split_once(", size: ")?;
    let (size, _) = rest.split_once(" MB")?;
    let start = hexadecimal(start)?;
    Some(start..start.checked_add(size.parse::<u64>().ok()?.checked_mul(1 << 20)?)?)
}

fn range(text: &str, between: &str) -> Option<Range<u64>> {
    let (start, end) = text.split_once(between)?;
    let (start, end) = (hexadecimal(start)?, hexadecimal(end)?);
    (start < end).then_some(start..end)
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

fn named(range: Range<u64>, name: &str, kind: RegionKind) -> NamedRange {
    NamedRange { start: range.start, end: range.end, name: short(name).to_owned(), kind }
}

/// The beginning of a name: each of many ranges may repeat it.
fn short(name: &str) -> &str {
    let end = (0..=MAX_NAME_BYTES.min(name.len())).rev().find(|end| name.is_char_boundary(*end));
    name.get(..end.unwrap_or(0)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seen(ranges: &[NamedRange]) -> Vec<(u64, u64, &str, RegionKind)> {
        ranges.iter().map(|range| (range.start, range.end, range.name.as_str(), range.kind)).collect()
    }

    const TRACKED: &str = "\
Total: reserved=1711401KB, committed=180593KB

[0x00000000f0000000 - 0x0000000100000000] reserved 262144KB for Java Heap from
    [0x00007fa0c431a461] ReservedSpace::reserve(unsigned long)+0x291

\t[0x00000000f0000000 - 0x00000000f6e00000] committed 112640KB from
[0x00007fa096000000 - 0x00007fa098000000] reserved and committed 32768KB for GC from
[0x00007fa0a5400000 - 0x00007fa0b4400000] reserved 245760KB for Code from
[0x00007fa0a5400000 - 0x00007fa0b4400000] reserved 8KB for A New Tag
[0x00007f7740000000 - 0x00007f774f200000] reserved and committed 247808KB for Unknown from
";
    const MAP: &str = "\
from               to                        vsize prot          rss      hugetlb pgsz notes            info                                  file
0x000000004c000000-0x000000004c001000         4096 ---p         4096            0 4K   com              CDS                                   -
0x00007fbb3ff04000-0x00007fbb40000000      1032192 rw-p        90112            0 4K   com,nothp        STACK-15652-Attach-Listener           -
0x00007fbb3f937000-0x00007fbb3fdff000      5013504 rw-p      5013504            0 4K   com              -                                     /a file
0x00007fbb3f937000-0x00007fbb3fdff000      5013504 rw-p      5013504            0 4K   com              GC,CODE                               -
";
    const INFO: &str = "\
Heap address: 0x00000000f0000000, size: 256 MB, Compressed Oops mode: 32-bit
CDS archive(s) mapped at: [0x00007fa047000000-0x00007fa047bc7000-0x00007fa047bc7000), size 12349440, SharedBaseAddress: 0x0
Compressed class space mapped at: 0x00007fa048000000-0x00007fa088000000, reserved size: 1073741824
Card table byte_map: [0x00007fa0c3280000,0x00007fa0c3300000] _byte_map_base: 0x00007fa0c2b00000
CodeHeap 'profiled nmethods': size=120032Kb used=21Kb max_used=21Kb free=120010Kb
 bounds [0x00007fa0a5400000, 0x00007fa0a5670000, 0x00007fa0ac938000]
";

    #[test]
    fn reservations_are_read_and_what_is_committed_of_them_is_not() {
        let ranges = native_memory(TRACKED);
        let expected = [
            (0xf000_0000, 0x1_0000_0000, "heap", RegionKind::Heap),
            (0x7fa0_9600_0000, 0x7fa0_9800_0000, "gc table", RegionKind::GcTable),
            (0x7fa0_a540_0000, 0x7fa0_b440_0000, "code cache", RegionKind::CodeCache),
            (0x7fa0_a540_0000, 0x7fa0_b440_0000, "A New Tag", RegionKind::Internal),
        ];
        assert_eq!(seen(&ranges), expected);
        assert_eq!(native_memory("Native memory tracking is not enabled\n"), []);
    }

    #[test]
    fn the_map_names_threads_and_leaves_out_what_it_does_not_know() {
        let ranges = system_map(MAP);
        let expected = [
            (0x4c00_0000, 0x4c00_1000, "CDS archive", RegionKind::Cds),
            (0x7fbb_3ff0_4000, 0x7fbb_4000_0000, "thread stack (Attach Listener)", RegionKind::ThreadStack),
        ];
        assert_eq!(seen(&ranges), expected);
    }

    #[test]
    fn amounts_in_words_are_read() {
        let ranges = vm_info(INFO);
        let expected = [
            (0xf000_0000, 0x1_0000_0000, "heap", RegionKind::Heap),
            (0x7fa0_4700_0000, 0x7fa0_47bc_7000, "CDS archive", RegionKind::Cds),
            (0x7fa0_4800_0000, 0x7fa0_8800_0000, "class space", RegionKind::ClassSpace),
            (0x7fa0_c328_0000, 0x7fa0_c330_0000, "card table", RegionKind::GcTable),
            (0x7fa0_a540_0000, 0x7fa0_ac93_8000, "code cache: profiled nmethods", RegionKind::CodeCache),
        ];
        assert_eq!(seen(&ranges), expected);
    }

    #[test]
    fn a_hostile_answer_is_taken_in_part() {
        let long = "é".repeat(1 << 20);
        let tracked = format!("[0x1000 - 0x2000] reserved 4KB for {long} from\n");
        let heap = format!("CodeHeap '{long}':\n bounds [0x1000, 0x1000, 0x2000]\n");
        let ranges = [native_memory(&tracked), vm_info(&heap)].concat();
        assert!(ranges.len() == 2 && ranges.iter().all(|range| range.name.len() <= MAX_NAME_BYTES));
        let many = "Card table byte_map: [0x1000,0x2000]\n".repeat(MAX_RANGES + 9);
        assert_eq!(vm_info(&many).len(), MAX_RANGES);
    }

    proptest! {
        #[test]
        fn no_answer_makes_it_panic(text in "(.|\n)*", which in 0usize..3, cut in any::<prop::sample::Index>()) {
            let whole = [TRACKED, MAP, INFO][which];
            let at = cut.index(whole.len());
            for text in [format!("{}{text}{}", &whole[..at], &whole[at..]), text] {
                for ranges in [native_memory(&text), system_map(&text), vm_info(&text)] {
                    prop_assert!(ranges.iter().all(|range| range.start < range.end));
                }
            }
        }
    }
}
