//! The result of `bench stall` as text.

use std::path::Path;

use comfy_table::Table;
use hugewise_linux::{reading::Reading, units::Bytes};
use hugewise_measure::fragmentation::{FragmentationOutcome, Probe, Waits};

use super::result::{FragmentationSummary, Probes, StallReport, ThpMode};
use crate::output::{durations::duration, layout::Page, table::table, terminal::Terminal};

/// Coverage, 0 to 1, below which the verdict states an upper bound instead of the coverage.
const LOW_COVERAGE: f64 = 0.1;

/// The part before the summary of a recording: fragmentation, THP mode, and results of the test load.
pub fn text(report: &StallReport, terminal: &Terminal) -> anyhow::Result<String> {
    let mut page = Page::new(terminal);
    let FragmentationSummary { outcome, blocks_before } = &report.fragmented;
    page.wrapped("FRAGMENTED", &fragmented(outcome))?;
    let blocks = outcome.blocks_left;
    let content = format!("Huge pages available without compaction: {blocks_before} before, {blocks} now.");
    page.wrapped("", &content)?;
    if !outcome.every_block_pinned {
        page.wrapped(
            "",
            "Without root the physical position of pages is unknown: some blocks may have no unmovable page, and \
             compaction can still free them.",
        )?;
    }
    page.wrapped("MODE", &waiting_page_faults(&report.mode))?;
    if let Some(probes) = &report.probes {
        page.line("", "")?;
        page.table(&probes_table(probes))?;
        page.line("", "")?;
        page.wrapped("VERDICT", &verdict(probes))?;
    }
    Ok(page.into_text())
}

/// The part after the summary of a recording: released memory, and actions.
pub fn ending(report: &StallReport, kept: Option<&Path>, terminal: &Terminal) -> anyhow::Result<String> {
    let mut page = Page::new(terminal);
    if !report.held_to_the_end {
        page.wrapped(
            "INCOMPLETE",
            &terminal.warn(
                "Memory ran short before the end and the held memory was released: the figures are those of memory \
                 that was only partly fragmented. Leave more memory free (--memory).",
            ),
        )?;
    }
    page.wrapped("RELEASED", &returned(report))?;
    let action = match (kept, &report.probes) {
        (Some(file), _) => format!("1. Attribute the pauses: hugewise report {}", file.display()),
        (None, Some(_)) => "1. Find the threads that wait: sudo hugewise bench stall -- COMMAND".to_owned(),
        (None, None) => {
            "1. Compare with base pages: sudo hugewise compare --fragmented -- COMMAND".to_owned()
        }
    };
    page.wrapped("ACTIONS", &action)?;
    Ok(page.into_text())
}

fn fragmented(outcome: &FragmentationOutcome) -> String {
    let from = match outcome.scattered {
        Bytes::ZERO => String::new(),
        scattered => format!(", {scattered} of which were fragmented before"),
    };
    let FragmentationOutcome { left, pinned, held, filled, seconds, .. } = outcome;
    let rate = if *seconds > 0.0 { filled.0 as f64 / seconds / f64::from(1 << 30) } else { 0.0 };
    format!(
        "{left} are free in fragments{from}, between {pinned} unmovable pages, one per huge-page-sized block. \
         {held} stay filled. Filling {filled} took {seconds:.1} s ({rate:.1} GiB/s)."
    )
}

/// The page faults that wait for compaction with these settings.
fn waiting_page_faults(mode: &ThpMode) -> String {
    let (Reading::Known(enabled), Reading::Known(defrag)) = (&mode.enabled, &mode.defrag) else {
        return "unknown".to_owned();
    };
    let who = match defrag.as_str() {
        "always" => "all page faults that may use huge pages wait for direct compaction",
        "defer" => "no page fault waits; they get base pages while the kernel compacts in the background",
        "defer+madvise" | "madvise" => {
            "page faults in memory with MADV_HUGEPAGE wait for direct compaction; others do not wait"
        }
        "never" => "no page fault waits; they get a free huge page, or base pages",
        _ => "unknown which page faults wait",
    };
    format!("enabled {enabled}, defrag {defrag}: {who}.")
}

fn probes_table(probes: &Probes) -> Table {
    let both = [&probes.before, &probes.fragmented];
    let mut table = table(&["", "before", "fragmented"]);
    let mut row = |name: &str, cell: &dyn Fn(&Probe) -> String| {
        let cells = both.iter().map(|probe| cell(probe));
        table.add_row(std::iter::once(format!("            {name}")).chain(cells).collect::<Vec<_>>());
    };
    row("memory", &|probe| probe.bytes.to_string());
    row("coverage", &|probe| known_or_na(&probe.coverage, |share| format!("{:.0} %", share * 100.0)));
    row("total time", &|probe| seconds(probe.seconds));
    row("per huge page, median", &|probe| seconds(probe.median_seconds));
    row("per huge page, p99", &|probe| seconds(probe.slowest_hundredth_seconds));
    row("per huge page, max", &|probe| seconds(probe.worst_seconds));
    let delay = |delay: &Reading<Waits>| {
        known_or_na(delay, |delay| match delay.count {
            0 => "none".to_owned(),
            count => format!("{} in {count} waits", seconds(delay.seconds)),
        })
    };
    row("direct compaction", &|probe| delay(&probe.compaction));
    row("direct reclaim", &|probe| delay(&probe.reclaim));
    row("machine: stalls", &|probe| known_or_na(&probe.stalls, u64::to_string));
    row("machine: failed THP", &|probe| known_or_na(&probe.fallbacks, u64::to_string));
    table
}

fn known_or_na<T>(reading: &Reading<T>, words: impl FnOnce(&T) -> String) -> String {
    reading.known().map_or_else(|| "n/a".to_owned(), words)
}

fn seconds(seconds: f64) -> String {
    duration((seconds * 1e9) as u64)
}

fn verdict(probes: &Probes) -> String {
    let (before, now) = (&probes.before, &probes.fragmented);
    let hardly_any = now.coverage.known().is_some_and(|share| *share < LOW_COVERAGE);
    let mut text = match now.coverage.known() {
        Some(_) if hardly_any => {
            format!("Less than {:.0} % of the memory got huge pages", LOW_COVERAGE * 100.0)
        }
        Some(share) => format!("{:.0} % of the memory got huge pages", share * 100.0),
        None => "The coverage is unknown".to_owned(),
    };
    let ratio = if before.seconds > 0.0 { now.seconds / before.seconds } else { 0.0 };
    text += &format!("; populating it took {ratio:.1} times as long as before.");
    text += &match &now.compaction {
        Reading::Known(delay) if delay.count > 0 => {
            let share = delay.seconds / now.seconds.max(1e-9) * 100.0;
            format!(" The thread waited for direct compaction for {share:.0} % of that time.")
        }
        Reading::Known(_) => " The thread did not wait for direct compaction.".to_owned(),
        Reading::Unknown { unknown } => {
            format!(" The time it waited for direct compaction is unknown: {unknown}.")
        }
    };
    if hardly_any {
        text += " A JVM has this cost when its heap grows, also in pauses, unless the heap is pre-touched.";
    }
    text
}

fn returned(report: &StallReport) -> String {
    let returned = &report.returned;
    let mut text = format!(
        "{} huge-page-sized blocks are free in {} of free memory; before: {} in {}.",
        returned.blocks_after, returned.free_after, returned.blocks_before, returned.free_before
    );
    if let Some(compacted) = &returned.compacted {
        text += &match compacted.strip_prefix("no: ") {
            None => " Memory was compacted (/proc/sys/vm/compact_memory).".to_owned(),
            Some(why) => format!(
                " Compacting memory failed: {why}; run as root: echo 1 > /proc/sys/vm/compact_memory."
            ),
        };
    }
    if !returned.is_as_it_was() {
        text += " Memory that other programs allocated during the test keeps blocks occupied until they end or \
                 the kernel moves it.";
    }
    text
}

#[cfg(test)]
mod tests {
    use hugewise_linux::units::Pages;

    use super::*;

    fn probe(share: f64, seconds: f64, compaction: Reading<Waits>) -> Probe {
        Probe {
            bytes: Bytes(3 << 30),
            pages: Pages(1536),
            coverage: Reading::Known(share),
            seconds,
            median_seconds: seconds / 1536.0,
            slowest_hundredth_seconds: seconds / 1000.0,
            worst_seconds: seconds / 100.0,
            compaction,
            reclaim: Reading::Known(Waits::default()),
            fallbacks: Reading::Known(7),
            stalls: Reading::unknown("not counted"),
        }
    }

    #[test]
    fn what_a_load_found_is_reported_with_its_meaning() {
        let waited = Reading::Known(Waits { count: 1500, seconds: 4.0 });
        let probes = Probes {
            before: probe(1.0, 0.5, Reading::Known(Waits::default())),
            fragmented: probe(0.01, 5.0, waited),
        };
        let table = probes_table(&probes).to_string();
        for word in ["100 %", "1 %", "4.00 s in 1500 waits", "none", "n/a"] {
            assert!(table.contains(word), "{word}: {table}");
        }
        let means = verdict(&probes);
        assert!(means.contains("10.0 times") && means.contains("for 80 % of that time"), "{means}");
        let unknown = probe(0.5, 5.0, Reading::unknown("it takes root"));
        let means = verdict(&Probes { before: probes.before, fragmented: unknown });
        assert!(means.contains("50 % of the memory") && means.contains("is unknown: it takes root"));
    }

    #[test]
    fn each_mode_names_the_waiting_page_faults() {
        for (defrag, word) in [
            ("never", "no page fault waits"),
            ("madvise", "others do not wait"),
            ("always", "all page faults"),
            ("odd", "unknown"),
        ] {
            let mode = ThpMode {
                enabled: Reading::Known("madvise".to_owned()),
                defrag: Reading::Known(defrag.to_owned()),
            };
            assert!(waiting_page_faults(&mode).contains(word), "{}", waiting_page_faults(&mode));
        }
    }
}
