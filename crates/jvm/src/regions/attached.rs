//! Region names from the JVM's own answers, which override the passive ones.

use std::{collections::BTreeSet, time::Duration};

use hugewise_linux::{proc::smaps::Vma, root::Root, sys::aside::Deadline};

use super::{NamedRange, Naming, Source, answers, claims::Claims, range_at};
use crate::attach::{Jvm, TIME_LIMIT};

type Parser = fn(&str) -> Vec<NamedRange>;

/// Diagnostic commands and the parsers of their answers, in descending order of reliability. The first
/// command needs Native Memory Tracking.
const DIAGNOSTIC_COMMANDS: [(&str, Parser); 2] =
    [("VM.native_memory detail", answers::native_memory), ("VM.info", answers::vm_info)];
/// Exists in JDK 22 and late updates of 21, and needs Native Memory Tracking. The command names a whole
/// mapping after a region inside it: names are reliable, bounds are not.
const MAP: &str = "System.map";

/// Longest conversation with a JVM, with the lookup of its socket.
pub(super) const LIMIT: Duration = TIME_LIMIT.saturating_add(Duration::from_secs(2));

/// Queries the JVM in process `pid`; its answers override the passive names.
pub(super) fn refine(root: &Root, pid: u32, vmas: &[Vma], naming: &mut Naming) {
    let jvm = match Jvm::connect(root, pid, Deadline::after(TIME_LIMIT, None)) {
        Ok(jvm) => jvm,
        Err(error) => return naming.notes.push(error.to_string()),
    };
    let mut reported = Vec::new();
    let mut commands = Vec::new();
    for (command, read) in DIAGNOSTIC_COMMANDS {
        let answer = jvm.command(command).unwrap_or_else(|error| {
            naming.notes.push(error.to_string());
            String::new()
        });
        let ranges = read(&answer);
        if !ranges.is_empty() {
            commands.push(command.to_owned());
        }
        reported.push(normal(ranges, vmas));
        if jvm.is_silent() {
            break;
        }
    }
    if reported[0].is_empty() && !jvm.is_silent() {
        naming.notes.push(
            "the JVM runs without -XX:NativeMemoryTracking and cannot list all its memory; regions missing in \
             its answers are named passively"
                .to_owned(),
        );
    }
    let map = jvm.command(MAP).map(|answer| answers::system_map(&answer)).unwrap_or_default();
    if !map.is_empty() {
        commands.push(MAP.to_owned());
    }
    reported.push(std::mem::take(&mut naming.ranges));
    naming.ranges = merge(&reported, &normal(map, vmas), vmas);
    if !commands.is_empty() {
        naming.source = Source::Attached { commands };
    }
}

/// Sorted ranges without overlaps; of overlapping ranges the first one remains.
fn normal(ranges: Vec<NamedRange>, vmas: &[Vma]) -> Vec<NamedRange> {
    let mut claims = Claims::over(vmas);
    for range in ranges {
        claims.claim(range.start..range.end, &range.name, range.kind);
    }
    claims.into_ranges()
}

/// The kind of a byte is that of the first layer that contains it. Its name is the most precise one of this
/// kind: the full thread name in `precise`, or else the name in the last layer, which splits ranges that the
/// first layer has whole.
fn merge(layers: &[Vec<NamedRange>], precise: &[NamedRange], vmas: &[Vma]) -> Vec<NamedRange> {
    let edges: BTreeSet<u64> = layers.iter().flatten().flat_map(|range| [range.start, range.end]).collect();
    let edges: Vec<u64> = edges.into_iter().collect();
    let mut claims = Claims::over(vmas);
    for piece in edges.windows(2) {
        let known: Vec<&NamedRange> = layers.iter().filter_map(|layer| range_at(layer, piece[0])).collect();
        let Some(kind) = known.first().map(|range| range.kind) else { continue };
        let whole = range_at(precise, piece[1] - 1).filter(|range| range.name.contains('('));
        if let Some(named) = whole.iter().chain(known.iter().rev()).find(|range| range.kind == kind) {
            claims.claim(piece[0]..piece[1], &named.name, kind);
        }
    }
    claims.into_ranges()
}

#[cfg(test)]
mod tests {
    use super::{super::RegionKind, *};

    fn range(start: u64, end: u64, name: &str, kind: RegionKind) -> NamedRange {
        NamedRange { start, end, name: name.to_owned(), kind }
    }

    #[test]
    fn the_answer_decides_the_kind_and_the_look_the_name() {
        let vmas = [Vma { addresses: 0..100, ..Vma::default() }];
        let asked = vec![range(10, 50, "gc table", RegionKind::GcTable)];
        let looked = vec![
            range(0, 20, "anonymous", RegionKind::Other),
            range(20, 40, "mark bitmap", RegionKind::GcTable),
            range(40, 60, "malloc arena", RegionKind::Malloc),
        ];
        let expected = [
            range(0, 10, "anonymous", RegionKind::Other),
            range(10, 20, "gc table", RegionKind::GcTable),
            range(20, 40, "mark bitmap", RegionKind::GcTable),
            range(40, 50, "gc table", RegionKind::GcTable),
            range(50, 60, "malloc arena", RegionKind::Malloc),
        ];
        assert_eq!(merge(&[asked, looked], &[], &vmas), expected);
    }
}
