//! The result of `bench tlb` as text: a table of the TLB levels, and explanations.

use std::fmt;

use hugewise_linux::{
    reading::Reading,
    units::{Bytes, PageSize},
};
use hugewise_measure::tlb::{
    bench::PageSizeCurves,
    finding::{Entries, Level, TlbFinding},
};

use super::result::TlbReport;
use crate::output::{
    layout::Page,
    terminal::{Terminal, plain},
};

pub fn text(report: &TlbReport, terminal: &Terminal) -> Result<String, fmt::Error> {
    let mut page = Page::new(terminal);
    let design = &report.design;
    page.line(
        "TLB",
        format!(
            "measured by timing · {} passes in {:.0} s · a load that hits TLB and cache takes {:.2} ns",
            design.passes, report.curves.seconds, report.load_ns
        ),
    )?;
    page.text("")?;
    let headings = row(["PAGE SIZE", "BACKING", "LEVEL", "CAPACITY", "REACH", "MISS COST", "CPUID"]);
    page.text(&terminal.bold(&headings))?;
    for (measured, finding) in report.each() {
        for line in rows(measured, finding, report.curves.base) {
            page.text(line.trim_end())?;
        }
    }
    page.text("")?;
    let measured = report.each().map(|(measured, finding)| about(report, measured, finding));
    let sections =
        [("MEASURED", measured.collect()), ("ENTRIES", entries(report)), ("LARGE RANGE", far(report))];
    for (heading, paragraphs) in sections {
        for (number, paragraph) in paragraphs.iter().enumerate() {
            page.wrapped(if number == 0 { heading } else { "" }, paragraph)?;
        }
    }
    page.wrapped("CPUID", &cpuid(report))?;
    page.wrapped(
        "MISS COST",
        "Extra time of a load over one that hits the first level. A miss of the last level walks the page \
         table; in a virtual machine, that of the guest and that of the host. If many pages map the memory \
         of few, a walk hits the caches more often, and the cost is a lower bound.",
    )?;
    for out in &report.curves.left_out {
        page.text(&format!("{} {}: {}", terminal.warn("skipped"), out.backing, plain(&out.reason)))?;
    }
    Ok(page.into_text())
}

fn row(cells: [&str; 7]) -> String {
    let [pages, backing, level, holds, reach, cost, cpuid] = cells;
    format!("{pages:<12}{backing:<14}{level:>5}{holds:>14}{reach:>12}{cost:>17}   {cpuid}")
}

/// A row for each level, or one row if no level is visible.
fn rows(measured: &PageSizeCurves, finding: &TlbFinding, base: PageSize) -> Vec<String> {
    let (size, backing) = (measured.page_size.to_string(), measured.backing.to_string());
    if finding.levels.is_empty() {
        return vec![row([&size, &backing, "-", "not visible", "?", "?", "-"])];
    }
    let line = |(number, level): (usize, &Level)| {
        let first = number == 0;
        let cost = format!("{}{:.1} ns", if level.cut_off { "at least " } else { "" }, level.miss_ns);
        row([
            if first { &size } else { "" },
            if first { &backing } else { "" },
            &level.level.to_string(),
            &holds(level.pages, &finding.entries, base),
            &level.reach.map_or_else(|| "?".to_owned(), |reach| reach.to_string()),
            &cost,
            &match &level.cpuid {
                Reading::Known(reported) if reported.agrees => format!("{}: agrees", reported.entries),
                Reading::Known(reported) => format!("{}: differs", reported.entries),
                Reading::Unknown { .. } => "unknown".to_owned(),
            },
        ])
    };
    finding.levels.iter().enumerate().map(line).collect()
}

/// The capacity in pages, in pieces of a page, or in entries if it is unknown which of them an entry maps.
fn holds(entries: u64, hold: &Reading<Entries>, base: PageSize) -> String {
    match hold {
        Reading::Known(Entries::Whole) => format!("{entries} pages"),
        Reading::Known(Entries::Pieces) => format!("{entries} × {base}"),
        _ => format!("{entries} entries"),
    }
}

/// Cost of a TLB miss when the cache lines span all of the memory, on base pages and on huge pages.
fn far(report: &TlbReport) -> Vec<String> {
    let huge = |(measured, _): &(&PageSizeCurves, &TlbFinding)| measured.page_size > report.curves.base;
    let each = report.each().filter(huge).filter_map(|(measured, finding)| {
        let far = finding.far.as_ref()?;
        Some(format!(
            "One cache line every {} in {} of memory: a load takes {:.1} ns longer on base pages, and {:.1} ns \
             longer on pages of {} ({}), than with adjacent cache lines.",
            report.curves.base,
            far.bytes,
            far.base_extra_ns,
            far.extra_ns,
            measured.page_size,
            measured.backing
        ))
    });
    each.collect()
}

/// The pages of a measurement, its coverage and its limits.
fn about(report: &TlbReport, measured: &PageSizeCurves, finding: &TlbFinding) -> String {
    let (size, visited) = (measured.page_size, finding.measured_to);
    let mut reported = format!("{}: {visited} pages of {size}", measured.backing);
    if measured.distinct.0 < visited {
        reported += &format!(" that map the memory of {}", measured.distinct);
    }
    reported += &match &measured.coverage {
        Reading::Known(share) => format!(", coverage {:.0} %. ", 100.0 * share),
        Reading::Unknown { unknown } => format!(", coverage unknown: {unknown}. "),
    };
    if visited < report.design.most.0 {
        let memory = Bytes((measured.distinct * size).0);
        reported +=
            &format!("Not measured beyond {visited} pages: {memory} of memory have no more cache lines. ");
    }
    reported += &match finding.levels.len() {
        0 => format!("No level is visible up to {visited} pages."),
        1 => format!(
            "Only one level is visible up to {visited} pages; timing does not show whether it is the first or \
             the second."
        ),
        _ => String::new(),
    };
    reported
}

/// Which part of a huge page an entry maps; backings with the same result share a sentence.
fn entries(report: &TlbReport) -> Vec<String> {
    let base = report.curves.base;
    let mut reported: Vec<(String, String)> = Vec::new();
    for (measured, finding) in report.each().filter(|(measured, _)| measured.page_size > base) {
        let words = in_words(&finding.entries, base);
        let name = format!("{} ({})", measured.page_size, measured.backing);
        match reported.iter_mut().find(|(_, known)| *known == words) {
            Some((names, _)) => *names += &format!(", {name}"),
            None => reported.push((name, words)),
        }
    }
    reported.into_iter().map(|(names, words)| format!("{names}: {words}")).collect()
}

fn in_words(entries: &Reading<Entries>, base: PageSize) -> String {
    match entries {
        Reading::Known(Entries::Whole) => {
            format!("an entry maps the whole page: loads from its {base} parts do not miss.")
        }
        Reading::Known(Entries::Pieces) => format!(
            "an entry maps {base}, not the page: loads from its {base} parts miss as on base pages. The cause \
             is a host that backs the guest's memory with smaller pages than the guest uses. Huge pages then \
             do not reduce the number of misses; LARGE RANGE shows whether they reduce the cost of a miss."
        ),
        Reading::Known(Entries::Mixed) => format!(
            "entries map more than {base} and less than the page, or entries differ: the host backs a part \
             of the guest's memory with smaller pages. The reach is unknown."
        ),
        Reading::Unknown { unknown } => {
            format!("unknown whether an entry maps the whole page: {unknown}.")
        }
    }
}

fn cpuid(report: &TlbReport) -> String {
    match &report.curves.cpuid {
        Reading::Unknown { unknown } => format!("Unknown: {unknown}."),
        Reading::Known(tlbs) => {
            let each = tlbs.iter().map(|tlb| {
                let sizes: Vec<String> = tlb.sizes.iter().map(ToString::to_string).collect();
                format!("level {}: {} of {} [{}]", tlb.level, tlb.entries, sizes.join(", "), tlb.source)
            });
            each.collect::<Vec<_>>().join("; ") + ". Values that differ by at most 19 % agree."
        }
    }
}
