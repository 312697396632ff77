//! Text output of `collapse`.

use std::collections::BTreeMap;

use comfy_table::Table;
use hugewise_linux::{
    pages::reason::Reason,
    reading::Reading,
    units::{Bytes, Pages},
};
use hugewise_memory::collapse::{RESERVED_HUGE_PAGES, refusals::RefusalReason, suitable::skipped_because};

use super::result::{CollapseOutcome, CollapseReport, CollapsedRegion, GIB, Pause, Refusal};
use crate::{
    commands::collapse::candidates::RegionSelection,
    output::{
        self,
        layout::Page,
        terminal::{Terminal, plain},
        words::{amount, counted, coverage, shortened},
    },
};

/// Width of a region's name in a table, in characters.
pub const MAX_NAME_CHARS: usize = 40;
/// Largest number of refused ranges in the text.
const REFUSED: usize = 8;
/// Smallest skipped amount in the text; JSON has all amounts.
const MIN_SKIPPED_BYTES: Bytes = Bytes(1 << 20);
/// Regions with fewer resident bytes are summed up.
const MIN_REGION_BYTES: Bytes = Bytes(2 << 20);

/// The report before the collapse.
pub fn before(report: &CollapseReport, terminal: &Terminal) -> anyhow::Result<String> {
    let mut page = Page::new(terminal);
    let mut facts = vec![format!("{} {}", report.pid, plain(&report.name))];
    facts.extend(report.is_jvm.then(|| "a JVM".to_owned()));
    page.line("PROCESS", facts.join(" · "))?;
    page.wrapped("CANDIDATES", &wanted(report))?;
    page.wrapped("AVAILABLE", &room(report))?;
    page.line("", "")?;
    page.table(&table_before(report))?;
    let mut left_out: BTreeMap<Reason, Bytes> = BTreeMap::new();
    for (why, bytes) in report.regions.iter().flat_map(|region| &region.left_out) {
        *left_out.entry(*why).or_default() += *bytes;
    }
    left_out.retain(|_, bytes| *bytes >= MIN_SKIPPED_BYTES);
    let skipped: Vec<String> =
        left_out.iter().map(|(why, bytes)| format!("{bytes}: {}", skipped_because(*why))).collect();
    page.section("SKIPPED", &skipped)?;
    Ok(page.into_text())
}

fn wanted(report: &CollapseReport) -> String {
    if report.wanted.pages == Pages(0) {
        let place = match report.region {
            RegionSelection::Heap => " in the heap",
            RegionSelection::Malloc => " in malloc",
            RegionSelection::All => "",
        };
        return format!("none{place}: nothing left to collapse at this --min-present");
    }
    let mut text = format!(
        "{} for {} huge pages of {}",
        report.wanted.present_bytes, report.wanted.pages, report.page_size
    );
    text += &match report.holes_bytes {
        Bytes::ZERO => "; without holes: the process does not grow".to_owned(),
        holes => format!("; the process grows by {holes} of holes"),
    };
    let sparse: u64 = report.regions.iter().map(|region| region.sparse.pages.0).sum();
    if sparse > 0 {
        text += &format!(
            "; {} more ranges skipped: less than {} % resident (--min-present)",
            Pages(sparse),
            (report.min_resident_ratio * 100.0).round()
        );
    }
    text
}

fn room(report: &CollapseReport) -> String {
    let available = match &report.available {
        Reading::Known(bytes) => format!("{bytes} available"),
        Reading::Unknown { unknown } => format!("unknown ({unknown})"),
    };
    match &report.room {
        Reading::Known(room) => {
            let mut text = format!(
                "{} huge pages at once: {} free blocks of {}, {} free above the watermarks; memory: {available}",
                room.at_once, room.free_blocks, report.page_size, room.above_watermarks_bytes
            );
            if room.at_once.0 < report.wanted.pages.0.saturating_add(RESERVED_HUGE_PAGES)
                && !report.allow_reclaim
            {
                text +=
                    "; fewer than needed: collapsing continues while freed base pages merge into free blocks";
            }
            text
        }
        Reading::Unknown { unknown } => format!("huge pages unknown: {unknown}; memory: {available}"),
    }
}

/// The report after the collapse.
pub fn after(report: &CollapseReport, terminal: &Terminal) -> anyhow::Result<String> {
    let mut page = Page::new(terminal);
    if let (CollapseOutcome::Ended(_), Some(seconds)) = (report.outcome, report.seconds) {
        page.line("", "")?;
        page.wrapped("DONE", &done(report, seconds))?;
        page.list("PAUSED", report.paused.iter().map(paused))?;
        if report.after.is_some() {
            page.line("", "")?;
            page.table(&table_after(report))?;
        }
        let (refused, not_tried) = refused(&report.refused);
        page.section("REFUSED", &refused)?;
        page.section("NOT TRIED", not_tried.as_slice())?;
    }
    if let Some(cause) = &report.cause {
        let heading = match report.outcome {
            CollapseOutcome::DryRun => "REFUSED",
            CollapseOutcome::NotBegun => "NOT STARTED",
            _ => "STOPPED",
        };
        page.line("", "")?;
        page.wrapped(heading, cause)?;
    }
    page.actions(&report.actions)?;
    page.list("NOTE", report.notes.iter().map(|note| plain(note)))?;
    Ok(page.into_text())
}

fn done(report: &CollapseReport, seconds: f64) -> String {
    let mut facts = vec![format!("{} collapsed in {seconds:.2} s", report.collapsed_bytes)];
    facts.extend(report.bytes_per_second.map(|rate| match report.max_bytes_per_second {
        Some(most) => format!("{:.2} GiB/s (limit {})", rate / GIB, most / GIB),
        None => format!("{:.2} GiB/s", rate / GIB),
    }));
    facts.extend(report.longest_call_seconds.map(|longest| format!("longest call {:.1} ms", longest * 1e3)));
    facts.extend(report.grown_bytes.map(growth));
    if report.gone_bytes > Bytes::ZERO {
        facts.push(format!("{} released by the process before their collapse", report.gone_bytes));
    }
    facts.join(" · ")
}

/// The change of the process' resident memory.
pub fn growth(grown: i64) -> String {
    let bytes = Bytes(grown.unsigned_abs());
    match grown {
        0 => "the process did not grow".to_owned(),
        ..0 => format!("the process shrank by {bytes}"),
        1.. => format!("the process grew by {bytes}"),
    }
}

/// The pauses for one reason.
pub fn paused(pause: &Pause) -> String {
    format!("{}, {:.2} s: {}", counted(pause.times, "time"), pause.seconds, pause.reason.words())
}

/// The ranges that the kernel refused, and the sum of those that were not tried.
pub fn refused(all: &[Refusal]) -> (Vec<String>, Option<String>) {
    let text = |Refusal { start, end, reason }: &&Refusal| {
        format!("{start:x}-{end:x}, {}: {reason}", Bytes(end - start))
    };
    let not_tried = RefusalReason::NotTried.words();
    let (not_tried, refused): (Vec<&Refusal>, Vec<&Refusal>) =
        all.iter().partition(|range| range.reason == not_tried);
    let mut texts: Vec<String> = refused.iter().take(REFUSED).map(text).collect();
    if refused.len() > REFUSED {
        texts.push(format!("{} more ranges: see --json", refused.len() - REFUSED));
    }
    let left: Bytes = not_tried.iter().map(|range| Bytes(range.end - range.start)).sum();
    let ranges = counted(not_tried.len() as u64, "range");
    (texts, (left > Bytes::ZERO).then(|| format!("{left} in {ranges}: the work ended early")))
}

/// A table of the large regions; the small ones are summed up.
fn table<const N: usize>(
    report: &CollapseReport,
    header: [&str; N],
    cells: impl Fn(&CollapsedRegion) -> [String; N],
) -> Table {
    let is_large = |region: &&CollapsedRegion| {
        region.resident_before.max(region.resident_after.unwrap_or_default()) >= MIN_REGION_BYTES
            || region.wanted.pages > Pages(0)
    };
    let (large, small): (Vec<_>, Vec<_>) = report.regions.iter().partition(is_large);
    let mut table = output::table::table(&header);
    table.add_rows(large.into_iter().map(cells));
    if !small.is_empty() {
        let regions = if small.len() == 1 { "region" } else { "regions" };
        table.add_row([format!("others ({} {regions} below {MIN_REGION_BYTES})", small.len())]);
    }
    table
}

fn table_before(report: &CollapseReport) -> Table {
    let header = ["region", "resident", "coverage", "to collapse", "holes", "too sparse"];
    let cells = |region: &CollapsedRegion| {
        [
            shortened(&plain(&region.name), MAX_NAME_CHARS),
            region.resident_before.to_string(),
            coverage(region.huge_before.share_of(region.resident_before), "–"),
            amount(region.wanted.present_bytes),
            amount(region.holes_bytes),
            amount(region.sparse.present_bytes),
        ]
    };
    table(report, header, cells)
}

fn table_after(report: &CollapseReport) -> Table {
    let cells = |region: &CollapsedRegion| {
        let (resident, huge) =
            (region.resident_after.unwrap_or_default(), region.huge_after.unwrap_or_default());
        [
            shortened(&plain(&region.name), MAX_NAME_CHARS),
            resident.to_string(),
            coverage(region.huge_before.share_of(region.resident_before), "–"),
            coverage(huge.share_of(resident), "–"),
        ]
    };
    table(report, ["region", "resident", "coverage before", "coverage now"], cells)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_were_not_tried_are_not_refused() {
        let range = |start: u64, reason: RefusalReason| Refusal {
            start: start << 21,
            end: (start + 1) << 21,
            reason: reason.words(),
        };
        let ranges = [
            range(1, RefusalReason::Held),
            range(2, RefusalReason::NotTried),
            range(3, RefusalReason::NotTried),
        ];
        let (refused, not_tried) = refused(&ranges);
        assert!(refused.len() == 1 && refused[0].starts_with("200000-400000, 2MiB: EAGAIN"), "{refused:?}");
        assert_eq!(not_tried.as_deref(), Some("4MiB in 2 ranges: the work ended early"));
    }
}
