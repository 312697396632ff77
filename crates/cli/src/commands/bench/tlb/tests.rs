//! Reports on simulated TLBs.

use hugewise_linux::{
    hugepages::backing::Backing,
    reading::Reading,
    units::{Bytes, Pages},
};
use hugewise_measure::tlb::{
    bench::{Curves, Design, PageSizeCurves, SkippedBacking},
    curve::{self, Point},
};

use super::{plot::svg, result::*, text::text};
use crate::output::terminal::{Color, Terminal};

type TestResult = Result<(), Box<dyn std::error::Error>>;

fn points(level: impl Fn(usize) -> f64) -> Vec<Point> {
    let counts = curve::grid(8192).into_iter();
    counts.map(|pages| Point { pages: pages as u64, ns: level(pages), spread: 0.0 }).collect()
}

/// A TLB with 64 and 1536 entries for base pages. `huge`: ns per load by number of huge pages; `strided`: ns
/// per load of base-page-sized parts of huge pages.
fn report(huge: impl Fn(usize) -> f64, strided: f64) -> Result<TlbReport, Box<dyn std::error::Error>> {
    let design =
        Design { backings: Vec::new(), most: Pages(8192), passes: 40, memory: Bytes(1 << 30), seed: 1 };
    let base = |pages| {
        if pages > 1536 {
            20.0
        } else if pages > 64 {
            3.0
        } else {
            1.0
        }
    };
    let measured =
        |backing, size: &str, paged, strided| -> Result<PageSizeCurves, Box<dyn std::error::Error>> {
            let (page_size, coverage) = (size.parse()?, Reading::Known(1.0));
            let far = vec![Point { pages: 262_144, ns: if size == "4k" { 45.0 } else { 25.0 }, spread: 0.0 }];
            Ok(PageSizeCurves { backing, page_size, distinct: Pages(512), coverage, paged, strided, far })
        };
    let curves = Curves {
        base: "4k".parse()?,
        packed: points(|_| 1.0),
        packed_far: vec![Point { pages: 262_144, ns: 15.0, spread: 0.0 }],
        packed_on: Backing::Thp,
        measured: vec![
            measured(Backing::Base, "4k", points(base), None)?,
            measured(Backing::Thp, "2m", points(huge), Some(points(|_| strided)))?,
        ],
        left_out: vec![SkippedBacking { backing: Backing::Hugetlb(None), reason: "no\x1b pool".to_owned() }],
        cpuid: Reading::unknown("hidden"),
        seconds: 8.4,
    };
    Ok(TlbReport::new(design, curves))
}

fn says(text: &str, lines: &[&str]) {
    let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for line in lines {
        assert!(text.contains(line), "'{line}' is not in:\n{text}");
    }
}

#[test]
fn the_table_has_a_row_for_each_level() -> TestResult {
    let report = report(|pages| if pages > 32 { 3.0 } else { 1.0 }, 1.0)?;
    let text = text(&report, &Terminal::new(Color::Never))?;
    says(
        &text,
        &[
            "4KiB base 1 64 pages 256KiB 2.0 ns unknown 2 1536 pages 6MiB 19.0 ns unknown",
            "One cache line every 4KiB in 1GiB of memory: a load takes 30.0 ns longer on base pages, and 10.0 ns \
             longer on pages of 2MiB (thp), than with adjacent cache lines.",
            "2MiB thp 1 32 pages 64MiB 2.0 ns unknown",
            "Only one level is visible up to 8192 pages",
            "2MiB (thp): an entry maps the whole page",
            "Unknown: hidden.",
            "thp: 8192 pages of 2MiB that map the memory of 512, coverage 100 %",
            "skipped hugetlb: no\u{fffd} pool",
        ],
    );
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    Ok(())
}

#[test]
fn invisible_levels_are_reported() -> TestResult {
    let report = report(|_| 1.0, 3.0)?;
    let text = text(&report, &Terminal::new(Color::Never))?;
    says(
        &text,
        &[
            "2MiB thp - not visible ? ?",
            "No level is visible up to 8192 pages",
            "an entry maps 4KiB, not the page",
            "do not reduce the number of misses; LARGE RANGE",
        ],
    );
    Ok(())
}

#[test]
fn the_plot_names_its_curves_and_knees() -> TestResult {
    let svg = svg(&report(|pages| if pages > 32 { 3.0 } else { 1.0 }, 1.0)?)?;
    let texts: Vec<&str> = svg.lines().map(str::trim).filter(|line| !line.starts_with('<')).collect();
    for text in [
        "adjacent cache lines (thp)",
        "one cache line per page of 4KiB (base)",
        "one cache line per page of 2MiB (thp)",
        "one cache line per 4KiB of pages of 2MiB (thp)",
        "level 1: 64 pages",
        "level 2: 1536 pages",
        "level 1: 32 pages",
        "ns per load",
        "8192",
    ] {
        assert!(texts.contains(&text), "{text}: {texts:?}");
    }
    assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    Ok(())
}
