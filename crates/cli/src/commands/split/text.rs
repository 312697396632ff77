//! Text output of `split`.

use std::collections::BTreeMap;

use hugewise_linux::{
    pages::reason::Reason,
    reading::Reading,
    units::{Bytes, Pages},
};
use hugewise_memory::{collapse::suitable::skipped_because, split::ZeroEstimate};

use super::result::{SplitRegion, SplitReport};
use crate::{
    commands::collapse::{
        result::GIB,
        text::{MAX_NAME_CHARS, growth, paused, refused},
    },
    output::{
        layout::Page,
        table,
        terminal::{Terminal, plain},
        words::{amount, count, coverage, shortened},
    },
};

/// The report before the split.
pub fn before(report: &SplitReport, terminal: &Terminal) -> anyhow::Result<String> {
    let mut page = Page::new(terminal);
    let mut facts = vec![format!("{} {}", report.pid, plain(&report.name))];
    facts.extend(report.is_jvm.then(|| "a JVM".to_owned()));
    page.line("PROCESS", facts.join(" · "))?;
    page.wrapped("HUGE PAGES", &to_split(report))?;
    page.list("ZEROS", zeros(report))?;
    page.line("", "")?;
    let header = ["region", "resident", "coverage", "to split"];
    page.table(&table_of(report, header, |region| {
        [
            region.resident_before.to_string(),
            coverage(region.huge_before.share_of(region.resident_before), "–"),
            amount(region.pages * report.page_size),
        ]
    }))?;
    let mut left_out: BTreeMap<Reason, Bytes> = BTreeMap::new();
    for (why, bytes) in report.regions.iter().flat_map(|region| &region.left_out) {
        *left_out.entry(*why).or_default() += *bytes;
    }
    let skipped: Vec<String> =
        left_out.iter().map(|(why, bytes)| format!("{bytes}: {}", skipped_because(*why))).collect();
    page.section("SKIPPED", &skipped)?;
    Ok(page.into_text())
}

fn to_split(report: &SplitReport) -> String {
    match report.pages {
        Pages(0) => "none that can be split".to_owned(),
        pages => format!("{} of {} to split, {}", count(pages.0), report.page_size, pages * report.page_size),
    }
}

/// The zero-filled memory in anonymous huge pages; `None` if it is not read.
fn zeros(report: &SplitReport) -> Option<String> {
    let estimate = match &report.estimate {
        Reading::Known(estimate) => estimate,
        // Without --dry-run, the split itself shows it.
        Reading::Unknown { .. } if !report.is_dry_run => return None,
        Reading::Unknown { unknown } => return Some(format!("unknown: {unknown}")),
    };
    let ZeroEstimate { zero_filled_bytes, pages_read, pages } = *estimate;
    let share = coverage(zero_filled_bytes.share_of(pages * report.page_size), "–");
    Some(if pages_read == pages {
        format!("{zero_filled_bytes} in zero-filled base pages ({share}), which a split gives back")
    } else {
        format!(
            "about {zero_filled_bytes} in zero-filled base pages ({share}; {} of {} huge pages were read), which a split \
             gives back",
            count(pages_read.0),
            count(pages.0)
        )
    })
}

/// The report after the split.
pub fn after(report: &SplitReport, terminal: &Terminal) -> anyhow::Result<String> {
    let mut page = Page::new(terminal);
    if let Some(seconds) = report.seconds {
        page.line("", "")?;
        page.wrapped("DONE", &done(report, seconds))?;
        page.list("PAUSED", report.paused.iter().map(paused))?;
        if report.after.is_some() {
            page.line("", "")?;
            let header = ["region", "resident now", "coverage before", "coverage now"];
            page.table(&table_of(report, header, |region| {
                let resident = region.resident_after.unwrap_or_default();
                [
                    resident.to_string(),
                    coverage(region.huge_before.share_of(region.resident_before), "–"),
                    coverage(region.huge_after.unwrap_or_default().share_of(resident), "–"),
                ]
            }))?;
        }
        let (refused, not_tried) = refused(&report.refused);
        page.section("REFUSED", &refused)?;
        page.section("NOT TRIED", not_tried.as_slice())?;
    }
    if let Some(cause) = &report.cause {
        page.line("", "")?;
        page.wrapped("STOPPED", cause)?;
    }
    page.actions(&report.actions)?;
    page.list("NOTE", report.notes.iter().map(|note| plain(note)))?;
    Ok(page.into_text())
}

fn done(report: &SplitReport, seconds: f64) -> String {
    let mut facts = vec![format!("{} split in {seconds:.2} s", report.split_bytes)];
    facts.extend(report.bytes_per_second.map(|rate| format!("{:.2} GiB/s", rate / GIB)));
    facts.extend(report.longest_call_seconds.map(|longest| format!("longest call {:.1} ms", longest * 1e3)));
    facts.extend(report.given_back_bytes.map(|bytes| match bytes {
        Bytes::ZERO => "no zero-filled base pages".to_owned(),
        bytes => format!("{bytes} of zero-filled base pages given back"),
    }));
    facts.extend(report.grown_bytes.map(growth));
    if report.gone_bytes > Bytes::ZERO {
        facts.push(format!("{} released by the process before their turn", report.gone_bytes));
    }
    facts.join(" · ")
}

/// A table of the regions that have huge pages.
fn table_of(
    report: &SplitReport,
    header: [&str; 4],
    cells: impl Fn(&SplitRegion) -> [String; 3],
) -> comfy_table::Table {
    let mut table = table::table(&header);
    let with_huge = report.regions.iter().filter(|region| {
        region.huge_before > Bytes::ZERO || region.huge_after.is_some_and(|bytes| bytes > Bytes::ZERO)
    });
    table.add_rows(with_huge.map(|region| {
        let [second, third, fourth] = cells(region);
        [shortened(&plain(&region.name), MAX_NAME_CHARS), second, third, fourth]
    }));
    table
}
