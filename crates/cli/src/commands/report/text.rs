//! The pauses of a recording as text.

use std::fmt;

use hugewise_record::attribution::{Attribution, Verdict};

use super::{reasons, reports::AttributedRecording, words};
use crate::output::{
    durations::duration,
    layout::Page,
    table::table,
    terminal::{Terminal, plain},
    words::{counted, shortened},
};

/// Largest number of pauses listed, the longest first.
const PAUSES: usize = 10;
/// Longest name of a kind in the table, in characters.
const MAX_KIND_CHARS: usize = 24;
/// Largest number of threads listed.
const THREADS: usize = 8;

pub fn text(explained: &AttributedRecording<'_>, terminal: &Terminal) -> Result<String, fmt::Error> {
    let explanation = &explained.explanation;
    let mut page = Page::new(terminal);
    page.line("RECORDING", plain(&explained.file.display().to_string()))?;
    page.list("", words::recording(&explanation.gathered))?;
    let said = words::verdict(explanation);
    let said = match explanation.decision.verdict {
        Verdict::None => terminal.good(said),
        Verdict::Inconclusive => terminal.warn(said),
        _ => terminal.bad(said),
    };
    page.line("", "")?;
    page.line("VERDICT", said)?;
    page.list("", reasons::why(explanation))?;
    if explanation.totals.pauses > 0 {
        totals(&mut page, explanation)?;
        pauses(&mut page, explanation)?;
        longest(&mut page, explanation)?;
    }
    outside(&mut page, explanation)?;
    page.section("EVIDENCE", &words::accounting(&explanation.totals))?;
    page.section("NOTE", &words::remarks(&explanation.gathered))?;
    if !explained.actions.is_empty() {
        page.line("", "")?;
    }
    page.actions(&explained.actions)?;
    Ok(page.into_text())
}

fn totals(page: &mut Page<'_>, explanation: &Attribution) -> fmt::Result {
    page.section("PAUSES", &words::totals(&explanation.totals))?;
    page.wrapped("", "time of the collector's threads:")?;
    let sums = words::sums(explanation);
    let known: u64 = sums.iter().filter_map(|(_, ns, _)| *ns).sum();
    for (what, ns, unknown) in sums {
        let reported = match ns {
            None => unknown,
            Some(0) => "none".to_owned(),
            Some(ns) => {
                let share = 100.0 * ns as f64 / known.max(1) as f64;
                format!("{:<10} {share:>3.0} %   {unknown}", duration(ns))
            }
        };
        page.line("", format!("  {what:<27} {reported}"))?;
    }
    Ok(())
}

/// A table of the longest pauses.
fn pauses(page: &mut Page<'_>, explanation: &Attribution) -> fmt::Result {
    let mut table = table(&[
        "pause", "start s", "ms", "TTSP", "stalled", "compact", "reclaim", "zeroing", "touch", "other",
        "user",
    ]);
    for pause in words::longest_first(explanation).into_iter().take(PAUSES) {
        let mut row = vec![shortened(&plain(&pause.stop.kind), MAX_KIND_CHARS)];
        row.extend(words::figures(&explanation.gathered, pause));
        row.extend(words::parts(&pause.split).map(|(_, ns)| words::ms(ns)));
        table.add_row(row);
    }
    page.line("", "")?;
    page.table(&table)?;
    page.text(" Times in ms, except start; from 'compact' on, totals of the collector's threads.")?;
    match explanation.pauses.len().saturating_sub(PAUSES) {
        0 => Ok(()),
        left => page.text(&format!(" {} not listed are shorter.", counted(left as u64, "pause"))),
    }
}

/// The threads of the pause on which the verdict is based, or else of the longest pause.
fn longest(page: &mut Page<'_>, explanation: &Attribution) -> fmt::Result {
    let worst = words::worst(explanation).filter(|pause| !pause.threads.is_empty());
    let Some(pause) = worst else { return Ok(()) };
    let gathered = &explanation.gathered;
    page.line("", "")?;
    page.wrapped("THREADS", &format!("{}, by thread:", words::head(gathered, pause)))?;
    page.list("", words::threads(gathered, pause).iter().take(THREADS))?;
    if let Some((ttsp, blockers)) = words::listed_ttsp(gathered, pause) {
        page.wrapped("", &format!("time to safepoint before it: {ttsp}"))?;
        page.list("", blockers.iter().take(THREADS))?;
    }
    Ok(())
}

fn outside(page: &mut Page<'_>, explanation: &Attribution) -> fmt::Result {
    let outside = &explanation.totals.outside;
    if outside.is_empty() {
        return Ok(());
    }
    page.line("", "")?;
    let mut heading = "STALLS";
    if explanation.totals.pauses > 0 {
        page.line(heading, "outside of pauses:")?;
        heading = "";
    }
    let said = outside.iter().take(THREADS).map(|at| words::outside(&explanation.gathered, at));
    page.list(heading, said)?;
    match outside.len().saturating_sub(THREADS) {
        0 => Ok(()),
        left => page.line("", format!("and {left} more")),
    }
}
