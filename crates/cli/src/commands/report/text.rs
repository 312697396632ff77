//! The pauses of a recording as text.

use std::fmt;

use hugewise_record::attribution::{Attribution, Pause, Verdict};

use super::{reports::AttributedRecording, words};
use crate::output::{
    durations::{duration, milliseconds},
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
    recording(&mut page, explained)?;
    let verdict = explanation.decision.verdict;
    let said = words::verdict(explanation);
    let said = match verdict {
        Verdict::None => terminal.good(said),
        Verdict::Inconclusive => terminal.warn(said),
        _ => terminal.bad(said),
    };
    page.line("", "")?;
    page.line("VERDICT", said)?;
    for why in words::why(explanation) {
        page.wrapped("", &why)?;
    }
    if explanation.totals.pauses > 0 {
        totals(&mut page, explanation)?;
        pauses(&mut page, explanation)?;
        longest(&mut page, explanation)?;
    }
    outside(&mut page, explanation)?;
    accounting(&mut page, explanation)?;
    let remarks = words::remarks(&explanation.gathered);
    if !remarks.is_empty() {
        page.line("", "")?;
    }
    for (n, said) in remarks.iter().enumerate() {
        page.wrapped(if n == 0 { "NOTE" } else { "" }, said)?;
    }
    if !explained.actions.is_empty() {
        page.line("", "")?;
    }
    page.actions(&explained.actions)?;
    Ok(page.into_text())
}

fn recording(page: &mut Page<'_>, explained: &AttributedRecording<'_>) -> fmt::Result {
    page.line("RECORDING", plain(&explained.file.display().to_string()))?;
    words::recording(&explained.explanation.gathered).iter().try_for_each(|said| page.wrapped("", said))
}

fn totals(page: &mut Page<'_>, explanation: &Attribution) -> fmt::Result {
    let totals = &explanation.totals;
    page.line("", "")?;
    for (n, said) in words::totals(totals).iter().enumerate() {
        page.wrapped(if n == 0 { "PAUSES" } else { "" }, said)?;
    }
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
    let mut order: Vec<&Pause> = explanation.pauses.iter().collect();
    order.sort_by_key(|pause| std::cmp::Reverse(pause.with_time_to_safepoint_ns()));
    let left = order.len().saturating_sub(PAUSES);
    let mut table = table(&[
        "pause", "start s", "ms", "TTSP", "stalled", "compact", "reclaim", "zeroing", "touch", "other",
        "user",
    ]);
    let ms = |ns: Option<u64>| ns.map_or_else(|| "?".to_owned(), milliseconds);
    for pause in order.into_iter().take(PAUSES) {
        let split = &pause.split;
        let mut row = vec![
            shortened(&plain(&pause.stop.kind), MAX_KIND_CHARS),
            format!("{:.3}", words::since_begin_s(&explanation.gathered, pause.stop.span.start)),
            milliseconds(pause.stop.span.end - pause.stop.span.start),
            ms(pause.time_to_safepoint.as_ref().map(|time_to_safepoint| time_to_safepoint.ns)),
            ms(pause.stalled_ns),
        ];
        row.extend(words::parts(split).map(|(_, ns)| ms(ns)));
        table.add_row(row);
    }
    page.line("", "")?;
    page.table(&table)?;
    page.text(" Times in ms, except start; from 'compact' on, totals of the collector's threads.")?;
    if left > 0 {
        page.text(&format!(" {} not listed are shorter.", counted(left as u64, "pause")))?;
    }
    Ok(())
}

/// The threads of the pause on which the verdict is based, or else of the longest pause.
fn longest(page: &mut Page<'_>, explanation: &Attribution) -> fmt::Result {
    let Some(pause) = words::worst(explanation) else { return Ok(()) };
    let gathered = &explanation.gathered;
    if pause.threads.is_empty() {
        return Ok(());
    }
    page.line("", "")?;
    let head = format!(
        "{} at {:.3} s, by thread:",
        plain(&pause.stop.kind),
        words::since_begin_s(gathered, pause.stop.span.start)
    );
    page.wrapped("THREADS", &head)?;
    for part in pause.threads.iter().take(THREADS) {
        let who = words::who(gathered, part.thread);
        page.wrapped("", &format!("{who}: {}", words::thread_part(part)))?;
    }
    if let Some(time_to_safepoint) = pause
        .time_to_safepoint
        .as_ref()
        .filter(|time_to_safepoint| time_to_safepoint.ns >= words::MIN_LISTED_TTSP_NS)
    {
        page.wrapped("", &format!("time to safepoint before it: {}", duration(time_to_safepoint.ns)))?;
        for (thread, wait, ns) in time_to_safepoint.blockers.iter().take(THREADS) {
            let said =
                format!("{}: {} in {}", words::who(gathered, *thread), duration(*ns), words::waiting(*wait));
            page.wrapped("", &said)?;
        }
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
    for (n, at) in outside.iter().take(THREADS).enumerate() {
        let said = words::outside(&explanation.gathered, at);
        page.wrapped(if n == 0 { heading } else { "" }, &said)?;
    }
    match outside.len().saturating_sub(THREADS) {
        0 => Ok(()),
        left => page.line("", format!("and {left} more")),
    }
}

/// The waits in kernel events compared with the kernel's delay accounting.
fn accounting(page: &mut Page<'_>, explanation: &Attribution) -> fmt::Result {
    for (n, said) in words::accounting(&explanation.totals).iter().enumerate() {
        if n == 0 {
            page.line("", "")?;
        }
        page.wrapped(if n == 0 { "EVIDENCE" } else { "" }, said)?;
    }
    Ok(())
}
