//! The same, for people.

use std::path::Path;

use comfy_table::Table;
use hugewise_linux::{
    proc::taskstats::Delay,
    reading::Reading,
    units::{Bytes, Pages},
};
use hugewise_measure::fragmentation::{Outcome, Probe};

use super::result::{Mode, Probes, Report};
use crate::{
    commands::record::text,
    output::{
        layout::{Page, table},
        terminal::Terminal,
    },
};

/// A share of huge pages below which a program hardly has any.
const HARDLY_ANY: f64 = 0.1;

/// How memory was fragmented, who waits here, and what a plain load found.
pub fn text(report: &Report, terminal: &Terminal) -> anyhow::Result<String> {
    let mut page = Page::new(terminal);
    let outcome = &report.fragmented.outcome;
    page.wrapped("FRAGMENTED", &format!("{} {}", fragmented(outcome), speed(outcome)))?;
    page.wrapped("", &blocks(outcome, report.fragmented.blocks_before))?;
    if !outcome.every_block_pinned {
        page.wrapped(
            "",
            "Which blocks its pages lie in the kernel tells only to root: without, compaction may still make some \
             of them whole.",
        )?;
    }
    page.wrapped("MODE", &who_waits(&report.mode))?;
    if let Some(probes) = &report.probes {
        page.line("", "")?;
        for line in probes_table(probes).lines() {
            page.text(line.trim_end())?;
        }
        page.line("", "")?;
        page.wrapped("MEANS", &meaning(probes))?;
    }
    Ok(page.into_text())
}

/// What came back, and what to try next.
pub fn ending(report: &Report, kept: Option<&Path>, terminal: &Terminal) -> anyhow::Result<String> {
    let mut page = Page::new(terminal);
    if !report.held_to_the_end {
        page.wrapped(
            "GIVEN UP",
            &terminal.warn(
                "Memory ran short before the end, and the kernel took back what was held: the figures are those of \
                 memory that was partly whole. Leave more of it (--memory).",
            ),
        )?;
    }
    page.wrapped("RETURNED", &returned(report))?;
    match (kept, &report.probes) {
        (Some(file), _) => page.wrapped("NEXT", &format!("hugewise report {}", file.display()))?,
        (None, Some(_)) => {
            page.wrapped("NEXT", "sudo hugewise bench stall -- COMMAND: who waits in your program")?
        }
        (None, None) => {
            page.wrapped(
                "NEXT",
                "sudo hugewise compare --fragmented -- COMMAND: what it costs, against base pages",
            )?;
        }
    }
    Ok(page.into_text())
}

/// How much of what, in a sentence.
fn fragmented(outcome: &Outcome) -> String {
    let from = match outcome.scattered {
        Bytes::ZERO => String::new(),
        scattered => format!(", {scattered} of which lay in pieces before"),
    };
    format!(
        "{} are free in pieces{from}, among {} pages that cannot be moved, one in each block of the size of a huge \
         page. {} are held.",
        outcome.left, outcome.pinned, outcome.held
    )
}

fn speed(outcome: &Outcome) -> String {
    let rate = if outcome.seconds > 0.0 {
        outcome.filled.0 as f64 / outcome.seconds / f64::from(1 << 30)
    } else {
        0.0
    };
    format!("It took {:.1} s for {} ({rate:.1} GiB/s).", outcome.seconds, outcome.filled)
}

fn blocks(outcome: &Outcome, before: Pages) -> String {
    format!(
        "Huge pages that can be had at once: {}; blocks that were free before: {before}.",
        outcome.blocks_left
    )
}

/// Who waits for compaction on a machine with these settings.
fn who_waits(mode: &Mode) -> String {
    let (Reading::Known(enabled), Reading::Known(defrag)) = (&mode.enabled, &mode.defrag) else {
        return "could not be told".to_owned();
    };
    let who = match defrag.as_str() {
        "always" => "whoever touches memory that may be on huge pages waits while the kernel compacts",
        "defer" => "nobody waits: the kernel compacts in the background, and gives small pages meanwhile",
        "defer+madvise" => {
            "who asked for huge pages (madvise) waits while the kernel compacts; others do not"
        }
        "madvise" => "who asked for huge pages (madvise) waits while the kernel compacts; nobody else does",
        "never" => "nobody waits: there are huge pages, or there are not",
        _ => "who waits is not known",
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
    row("on huge pages", &|probe| told(&probe.coverage, |share| format!("{:.0} %", share * 100.0)));
    row("all of it", &|probe| seconds(probe.seconds));
    row("a huge page (median)", &|probe| seconds(probe.median_seconds));
    row("1 in 100 above", &|probe| seconds(probe.slowest_hundredth_seconds));
    row("the longest", &|probe| seconds(probe.worst_seconds));
    let delay = |delay: &Reading<Delay>| {
        told(delay, |delay| match delay.count {
            0 => "none".to_owned(),
            count => format!("{} in {count}", seconds(delay.ns as f64 / 1e9)),
        })
    };
    row("waited for compaction", &|probe| delay(&probe.compaction));
    row("waited for reclaim", &|probe| delay(&probe.reclaim));
    row("machine: stalls", &|probe| told(&probe.stalls, u64::to_string));
    row("machine: no huge page", &|probe| told(&probe.fallbacks, u64::to_string));
    table
}

fn told<T>(reading: &Reading<T>, words: impl FnOnce(&T) -> String) -> String {
    reading.known().map_or_else(|| "n/a".to_owned(), words)
}

fn seconds(seconds: f64) -> String {
    text::duration((seconds * 1e9) as u64)
}

fn meaning(probes: &Probes) -> String {
    let (before, now) = (&probes.before, &probes.fragmented);
    let hardly_any = now.coverage.known().is_some_and(|share| *share < HARDLY_ANY);
    let mut text = match now.coverage.known() {
        Some(_) if hardly_any => {
            "Hardly a huge page could be had, and the program runs on small ones".to_owned()
        }
        Some(share) => format!("{:.0} % of the memory could be had on huge pages", share * 100.0),
        None => "How much of it is on huge pages could not be told".to_owned(),
    };
    let ratio = if before.seconds > 0.0 { now.seconds / before.seconds } else { 0.0 };
    let what = if hardly_any { "to be told so" } else { "it" };
    text += &format!("; {what} took {ratio:.1} times as long as before.");
    match now.compaction.known() {
        Some(delay) if delay.count > 0 => {
            let share = delay.ns as f64 / 1e9 / now.seconds.max(1e-9) * 100.0;
            text += &format!(
                " For {share:.0} % of the time the thread waited while the kernel compacted memory."
            );
        }
        Some(_) => text += " The thread did not wait for compaction.",
        None => {
            let reason = now.compaction.reason().unwrap_or_default();
            text += &format!(" How long it waited for compaction could not be told: {reason}.");
        }
    }
    if hardly_any {
        text += " A JVM pays this where its heap grows, in pauses too, unless the heap was pre-touched.";
    }
    text
}

fn returned(report: &Report) -> String {
    let returned = &report.returned;
    let mut text = format!(
        "{} blocks of the size of a huge page are free in {} of free memory; before it were {} in {}.",
        returned.blocks_after, returned.free_after, returned.blocks_before, returned.free_before
    );
    if let Some(compacted) = &returned.compacted {
        text += &match compacted.strip_prefix("no: ") {
            None => " The kernel was asked to compact memory (/proc/sys/vm/compact_memory).".to_owned(),
            Some(why) => format!(
                " To compact memory was refused: {why}; as root: echo 1 > /proc/sys/vm/compact_memory."
            ),
        };
    }
    if !returned.is_as_it_was() {
        text +=
            " What other programs took meanwhile lies among the rest, until they end or the kernel moves it.";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::terminal::Color;

    fn probe(share: f64, seconds: f64, compaction: Reading<Delay>) -> Probe {
        Probe {
            bytes: Bytes(3 << 30),
            pages: Pages(1536),
            coverage: Reading::Known(share),
            seconds,
            median_seconds: seconds / 1536.0,
            slowest_hundredth_seconds: seconds / 1000.0,
            worst_seconds: seconds / 100.0,
            compaction,
            reclaim: Reading::Known(Delay::default()),
            fallbacks: Reading::Known(7),
            stalls: Reading::unknown("not counted"),
        }
    }

    #[test]
    fn what_a_load_found_is_told_with_its_meaning() {
        let waited = Reading::Known(Delay { count: 1500, ns: 4_000_000_000 });
        let probes = Probes {
            before: probe(1.0, 0.5, Reading::Known(Delay::default())),
            fragmented: probe(0.01, 5.0, waited),
        };
        let table = probes_table(&probes).to_string();
        for word in ["100 %", "1 %", "4.00 s in 1500", "none", "n/a"] {
            assert!(table.contains(word), "{word}: {table}");
        }
        let means = meaning(&probes);
        assert!(means.contains("10.0 times") && means.contains("For 80 % of the time"), "{means}");
        let unknown = probe(0.5, 5.0, Reading::unknown("it takes root"));
        let means = meaning(&Probes { before: probes.before, fragmented: unknown });
        assert!(means.contains("50 % of the memory") && means.contains("could not be told: it takes root"));
    }

    #[test]
    fn each_mode_says_who_waits() {
        for (defrag, word) in
            [("never", "nobody"), ("madvise", "nobody else"), ("always", "whoever"), ("odd", "not known")]
        {
            let mode = Mode {
                enabled: Reading::Known("madvise".to_owned()),
                defrag: Reading::Known(defrag.to_owned()),
            };
            assert!(who_waits(&mode).contains(word), "{}", who_waits(&mode));
        }
        let _ = Terminal::new(Color::Never);
    }
}
