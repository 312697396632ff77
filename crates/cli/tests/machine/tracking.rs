//! Compares the names of a JVM's regions with its Native Memory Tracking.

use std::ops::Range;

use hugewise_jvm::regions::{NamedRange, Naming, RegionKind};
use hugewise_linux::units::Bytes;

use crate::{TestResult, regions::Running};

/// Categories of Native Memory Tracking, with the expected kind of region.
const TAGS: [(&str, RegionKind); 11] = [
    ("Java Heap", RegionKind::Heap),
    ("Code", RegionKind::CodeCache),
    ("GC", RegionKind::GcTable),
    ("Card Table", RegionKind::GcTable),
    ("Metaspace", RegionKind::Metaspace),
    ("Class", RegionKind::ClassSpace),
    ("Shared class space", RegionKind::Cds),
    ("Thread Stack", RegionKind::ThreadStack),
    ("Thread", RegionKind::ThreadStack),
    ("Internal", RegionKind::Internal),
    ("Safepoint", RegionKind::Internal),
];

/// All resident bytes that the JVM tracks have the expected kind, and no other bytes have one of these kinds.
/// Heap and code cache have exactly the bounds of Native Memory Tracking.
pub fn agrees(running: &Running, naming: &Naming, map: &str) -> TestResult {
    let tracked = reservations(map);
    for tag in ["Code", "Thread Stack", "Class"] {
        assert!(
            tracked.iter().any(|(_, tracked)| tracked == tag),
            "Native Memory Tracking lists no {tag}: {map}"
        );
    }
    let mut wrong = Vec::new();
    for (range, tag) in &tracked {
        let Some((_, kind)) = TAGS.iter().find(|(known, _)| known == tag) else { continue };
        for ours in overlapping(&naming.ranges, range) {
            let piece = range.start.max(ours.start)..range.end.min(ours.end);
            let present = running.resident(piece.clone())?.present;
            if ours.kind != *kind && present > Bytes::ZERO {
                wrong.push(format!("{piece:x?}: {present} of '{tag}' are called '{}'", ours.name));
            }
        }
    }
    let owned = |kind: RegionKind| {
        !matches!(
            kind,
            RegionKind::Malloc | RegionKind::ThreadStack | RegionKind::Internal | RegionKind::Other
        )
    };
    for ours in naming.ranges.iter().filter(|ours| owned(ours.kind)) {
        let known = tracked.iter().any(|(range, _)| range.start < ours.end && ours.start < range.end);
        let present = running.resident(ours.start..ours.end)?.present;
        if !known && present > Bytes::ZERO {
            wrong.push(format!("{present} of '{}' are not the JVM's: {ours:x?}", ours.name));
        }
    }
    for (wanted, kind) in [("Java Heap", RegionKind::Heap), ("Code", RegionKind::CodeCache)] {
        let of_tag = tracked.iter().filter(|(_, tag)| tag == wanted).map(|(range, _)| range);
        // JDK 25 reports memory on hugetlb pages as "Unknown".
        if tracked.iter().any(|(_, tag)| tag == "Unknown") {
            continue;
        }
        let theirs: u64 = of_tag.map(|range| range.end - range.start).sum();
        let ours: u64 =
            naming.ranges.iter().filter(|ours| ours.kind == kind).map(|ours| ours.end - ours.start).sum();
        if theirs != ours {
            wrong.push(format!("{wanted}: {theirs} bytes there, {ours} here"));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
}

fn overlapping<'n>(ranges: &'n [NamedRange], with: &Range<u64>) -> impl Iterator<Item = &'n NamedRange> {
    let with = with.clone();
    ranges.iter().filter(move |range| range.start < with.end && with.start < range.end)
}

/// `[0x… - 0x…] reserved 262144KB for Java Heap from`
fn reservations(map: &str) -> Vec<(Range<u64>, String)> {
    let pattern =
        regex::Regex::new(r"(?m)^\[0x([0-9a-f]+) - 0x([0-9a-f]+)\] reserved .*KB for (.*?)(?: from)?$");
    let Ok(pattern) = pattern else { return Vec::new() };
    let number = |digits: &str| u64::from_str_radix(digits, 16).unwrap_or(0);
    let found =
        pattern.captures_iter(map).map(|found| (number(&found[1])..number(&found[2]), found[3].to_owned()));
    found.collect()
}
