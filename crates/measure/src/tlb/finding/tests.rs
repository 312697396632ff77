//! Findings from synthetic curves of known TLBs.

use hugewise_linux::{cpu::tlb::Tlb, hugepages::backing::Backing, units::Pages};

use super::*;

type TestResult = Result<(), Box<dyn std::error::Error>>;

const LOAD: f64 = 1.25;

/// Time of a load with two levels of `first` and `second` entries; a miss costs 2 ns or 20 ns.
fn stair(pages: usize, first: usize, second: usize) -> f64 {
    LOAD + if pages > second {
        20.0
    } else if pages > first {
        2.0
    } else {
        0.0
    }
}

fn curve(level: impl Fn(usize) -> f64) -> Vec<Point> {
    let counts = curve::grid(8192).into_iter();
    counts.map(|pages| Point { pages: pages as u64, ns: level(pages), spread: 0.0 }).collect()
}

fn measured(
    backing: Backing,
    size: &str,
    paged: Vec<Point>,
    strided: Option<Vec<Point>>,
) -> Result<PageSizeCurves, Box<dyn std::error::Error>> {
    let (page_size, coverage) = (size.parse()?, Reading::Known(1.0));
    Ok(PageSizeCurves { backing, page_size, distinct: Pages(1), coverage, paged, strided, far: Vec::new() })
}

/// A machine whose TLB levels hold 64 and 2048 base pages, with the given huge pages.
fn machine(huge: PageSizeCurves, cpuid: Reading<Vec<Tlb>>) -> Result<Curves, Box<dyn std::error::Error>> {
    Ok(Curves {
        base: "4k".parse()?,
        packed: curve(|_| LOAD),
        packed_far: Vec::new(),
        packed_on: Backing::Thp,
        measured: vec![measured(Backing::Base, "4k", curve(|pages| stair(pages, 64, 2048)), None)?, huge],
        left_out: Vec::new(),
        cpuid,
        seconds: 1.0,
    })
}

fn levels(finding: &TlbFinding) -> Vec<(usize, u64, Option<Bytes>)> {
    finding.levels.iter().map(|level| (level.level, level.pages, level.reach)).collect()
}

#[test]
fn whole_entries_reach_far() -> TestResult {
    let huge = measured(Backing::Thp, "2m", curve(|pages| stair(pages, 32, 1024)), Some(curve(|_| LOAD)))?;
    let tlb = |level, entries, sizes: &[&str]| -> Result<Tlb, Box<dyn std::error::Error>> {
        let sizes = sizes.iter().map(|size| size.parse()).collect::<Result<_, _>>()?;
        Ok(Tlb { level, entries, sizes, source: "leaf 0x18".to_owned() })
    };
    let cpuid_level = Reading::Known(vec![tlb(1, 32, &["2m"])?, tlb(2, 2048, &["4k", "2m"])?]);
    let curves = machine(huge, cpuid_level)?;
    let found = finding(&curves, &curves.measured[1]);
    assert_eq!(found.entries, Reading::Known(Entries::Whole));
    assert_eq!(levels(&found), [(1, 32, Some(Bytes(64 << 20))), (2, 1024, Some(Bytes(2 << 30)))]);
    let costs: Vec<f64> = found.levels.iter().map(|level| level.miss_ns).collect();
    assert!((costs[0] - 2.0).abs() < 1e-9 && (costs[1] - 20.0).abs() < 1e-9, "{costs:?}");
    let agree: Vec<_> =
        found.levels.iter().map(|level| level.cpuid.known().map(|cpuid_level| cpuid_level.agrees)).collect();
    assert_eq!(agree, [Some(true), Some(false)]);
    let base = finding(&curves, &curves.measured[0]);
    assert_eq!(levels(&base), [(1, 64, Some(Bytes(256 << 10))), (2, 2048, Some(Bytes(8 << 20)))]);
    assert!(base.levels[0].cpuid.reason().is_some_and(|why| why.contains("no level 1 for 4KiB")));
    Ok(())
}

#[test]
fn pieces_reach_no_further_than_base_pages() -> TestResult {
    let like_base = || curve(|pages| stair(pages, 64, 2048));
    let huge = measured(Backing::Thp, "2m", like_base(), Some(like_base()))?;
    let curves = machine(huge, Reading::unknown("hidden"))?;
    let found = finding(&curves, &curves.measured[1]);
    assert_eq!(found.entries, Reading::Known(Entries::Pieces));
    assert_eq!(levels(&found), [(1, 64, Some(Bytes(256 << 10))), (2, 2048, Some(Bytes(8 << 20)))]);
    assert_eq!(found.levels[0].cpuid.reason(), Some("hidden"));
    Ok(())
}

#[test]
fn what_is_not_visible_is_not_invented() -> TestResult {
    // Half of the memory is held in pieces: the result lies between both, and no reach is given.
    let half = curve(|pages| f64::midpoint(stair(pages, 64, 2048), LOAD));
    let huge = measured(Backing::Thp, "2m", curve(|_| LOAD), Some(half))?;
    let mut curves = machine(huge, Reading::unknown("hidden"))?;
    let found = finding(&curves, &curves.measured[1]);
    assert_eq!((found.entries, found.levels.len()), (Reading::Known(Entries::Mixed), 0));
    assert_eq!(found.measured_to, 8192);
    // Without base pages there is no curve to compare the strided lines with.
    curves.measured.remove(0);
    let found = finding(&curves, &curves.measured[0]);
    assert!(found.entries.reason().is_some_and(|why| why.contains("base pages were not measured")));
    Ok(())
}

#[test]
fn page_sizes_are_compared_over_large_ranges_if_both_were_measured() -> TestResult {
    let point = |pages, ns| Point { pages, ns, spread: 0.0 };
    let huge = measured(Backing::Thp, "2m", curve(|_| LOAD), Some(curve(|_| LOAD)))?;
    let mut curves = machine(huge, Reading::unknown("hidden"))?;
    curves.packed_far = vec![point(16_384, 5.0), point(32_768, 10.0), point(65_536, 20.0)];
    curves.measured[0].far = vec![point(16_384, 30.0), point(32_768, 40.0)];
    curves.measured[1].far = vec![point(16_384, 15.0), point(32_768, 18.0), point(65_536, 30.0)];
    let far = finding(&curves, &curves.measured[1]).far;
    assert_eq!(far, Some(LargeRangeCost { bytes: Bytes(128 << 20), extra_ns: 8.0, base_extra_ns: 30.0 }));
    curves.measured.remove(0);
    assert_eq!(finding(&curves, &curves.measured[0]).far, None);
    Ok(())
}
