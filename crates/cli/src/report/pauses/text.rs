//! The pauses of a recording as text.

use std::fmt;

use comfy_table::Table;
use hugewise_measure::pauses::{Because, Explained as Pause, Explanation, Gathered, Split, Verdict, Wait};

use super::{Explained, words};
use crate::{
    report::{
        compare::words::shortened,
        gclog::words::milliseconds,
        page::{Page, table},
        plan::formats::quote::shell_line,
        record::{counted, duration},
    },
    terminal::{Terminal, plain},
};

/// As many pauses are listed, the longest first.
const PAUSES: usize = 10;
/// The longest name of a kind in the table.
const KIND: usize = 24;
/// As many threads are listed.
const THREADS: usize = 8;
/// Reaching a safepoint is worth a line from here on.
const SLOW_NS: u64 = 10_000_000;

/// The report.
pub fn text(explained: &Explained<'_>, terminal: &Terminal) -> Result<String, fmt::Error> {
    let explanation = &explained.explanation;
    let mut page = Page::new(terminal);
    recording(&mut page, explained)?;
    let verdict = explanation.decision.verdict;
    let said = words::verdict(explanation);
    let said = match verdict {
        Verdict::None => terminal.good(said),
        Verdict::CouldNotTell => terminal.warn(said),
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
    changes(&mut page, explained, terminal)?;
    Ok(page.into_text())
}

fn recording(page: &mut Page<'_>, explained: &Explained<'_>) -> fmt::Result {
    let gathered = &explained.explanation.gathered;
    let header = &gathered.header;
    page.line("RECORDING", plain(&explained.file.display().to_string()))?;
    page.wrapped("", &format!("process {}: {}", header.pid, plain(&shell_line(&header.command))))?;
    let thp = &header.machine.thp;
    let mode = |reading: &hugewise_kernel::reading::Reading<String>| {
        reading.known().map_or_else(|| "not known".to_owned(), |mode| plain(mode))
    };
    page.wrapped(
        "",
        &format!(
            "{} · {} · THP enabled {}, defrag {}",
            duration(gathered.elapsed_ns()),
            counted(gathered.threads.len() as u64, "thread"),
            mode(&thp.enabled),
            mode(&thp.defrag)
        ),
    )
}

/// Rows of a split: what, and the time of threads; nothing where it could not be told.
fn rows(split: &Split) -> [(&'static str, Option<u64>); 6] {
    [
        ("compaction", split.compaction_ns),
        ("reclaim", split.reclaim_ns),
        ("zeroing of huge pages", split.zeroing_ns),
        ("first touch of base pages", split.first_touch_ns),
        ("other system time", split.other_system_ns),
        ("user time", split.user_ns),
    ]
}

fn totals(page: &mut Page<'_>, explanation: &Explanation) -> fmt::Result {
    let totals = &explanation.totals;
    page.line("", "")?;
    let reaching = match totals.reaching_ns {
        0 => String::new(),
        ns => format!("; until all threads stood still, {} more", duration(ns)),
    };
    let head =
        format!("{}, {} in all{reaching}", counted(totals.pauses, "pause"), duration(totals.paused_ns));
    page.wrapped("PAUSES", &head)?;
    let stalled = totals.stalled_ns + totals.reaching_stalled_ns;
    if stalled > 0 {
        page.wrapped(
            "",
            &format!("in {} of that at least one thread waited for the kernel", duration(stalled)),
        )?;
    }
    page.wrapped("", "where the time of the collector's threads went:")?;
    let known: u64 = rows(&totals.split).iter().filter_map(|(_, ns)| *ns).sum();
    for (what, ns) in rows(&totals.split) {
        let told = match ns {
            None => "could not tell".to_owned(),
            Some(0) => "none".to_owned(),
            Some(ns) => format!("{:<10} {:>3.0} %", duration(ns), 100.0 * ns as f64 / known.max(1) as f64),
        };
        page.line("", format!("  {what:<26} {told}"))?;
    }
    Ok(())
}

/// A table of the longest pauses, in milliseconds of threads.
fn pauses(page: &mut Page<'_>, explanation: &Explanation) -> fmt::Result {
    let mut order: Vec<&Pause> = explanation.pauses.iter().collect();
    order.sort_by_key(|pause| std::cmp::Reverse(pause.with_reaching_ns()));
    let left = order.len().saturating_sub(PAUSES);
    let mut table = table(&[
        "pause", "at s", "ms", "reaching", "stalled", "compact", "reclaim", "zeroing", "touch", "other",
        "user",
    ]);
    let ms = |ns: Option<u64>| ns.map_or_else(|| "?".to_owned(), milliseconds);
    for pause in order.into_iter().take(PAUSES) {
        let split = &pause.split;
        let mut row = vec![
            shortened(&plain(&pause.stop.kind), KIND),
            format!("{:.3}", words::since_begin_s(&explanation.gathered, pause.stop.span.start)),
            milliseconds(pause.stop.span.end - pause.stop.span.start),
            ms(pause.reaching.as_ref().map(|reaching| reaching.ns)),
            ms(pause.stalled_ns),
        ];
        row.extend(rows(split).map(|(_, ns)| ms(ns)));
        table.add_row(row);
    }
    page.line("", "")?;
    lines(page, &table)?;
    if left > 0 {
        page.text(&format!(" and {} that were shorter", counted(left as u64, "pause")))?;
    }
    Ok(())
}

/// Who waited in the pause that the verdict rests on, or else in the longest.
fn longest(page: &mut Page<'_>, explanation: &Explanation) -> fmt::Result {
    let worst = match explanation.decision.because {
        Because::HugePagesInPauses { worst, .. } => Some(worst),
        _ => (0..explanation.pauses.len()).max_by_key(|at| explanation.pauses[*at].with_reaching_ns()),
    };
    let Some(pause) = worst.and_then(|at| explanation.pauses.get(at)) else { return Ok(()) };
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
        let mut said = Vec::new();
        for (part, what) in [(part.compaction, "compaction"), (part.reclaim, "reclaim")] {
            if part.ns > 0 {
                let count = if part.count > 0 { format!(" ({} ×)", part.count) } else { String::new() };
                said.push(format!("{} in {what}{count}", duration(part.ns)));
            }
        }
        if part.huge_pages > 0 {
            said.push(format!("{} got", counted(part.huge_pages, "huge page")));
        }
        if part.huge_pages_failed > 0 {
            said.push(format!("{} asked for in vain", part.huge_pages_failed));
        }
        if part.base_faults > 0 {
            said.push(format!("{} touched first", counted(part.base_faults, "base page")));
        }
        page.wrapped("", &format!("{}: {}", who(gathered, part.thread), said.join(", ")))?;
    }
    if let Some(reaching) = pause.reaching.as_ref().filter(|reaching| reaching.ns >= SLOW_NS) {
        page.wrapped("", &format!("before, until all threads stood still: {}", duration(reaching.ns)))?;
        for (thread, wait, ns) in reaching.blockers.iter().take(THREADS) {
            let said = format!("{}: {} in {}", who(gathered, *thread), duration(*ns), words::waiting(*wait));
            page.wrapped("", &said)?;
        }
    }
    Ok(())
}

fn who(gathered: &Gathered, thread: usize) -> String {
    let tid = gathered.threads.get(thread).map_or(0, |thread| thread.tid);
    format!("{} {tid}", plain(gathered.name(thread)))
}

fn outside(page: &mut Page<'_>, explanation: &Explanation) -> fmt::Result {
    let outside = &explanation.totals.outside;
    let heading = if explanation.totals.pauses == 0 { "STALLS" } else { "OUTSIDE" };
    if outside.is_empty() {
        return Ok(());
    }
    page.line("", "")?;
    for (n, at) in outside.iter().take(THREADS).enumerate() {
        let sum = at.sum;
        let for_huge = match sum.for_huge_ns {
            0 => String::new(),
            ns if ns == sum.ns => ", for huge pages".to_owned(),
            ns => format!(", {} of it for huge pages", duration(ns)),
        };
        let said = format!(
            "{}: {} in {} ({} ×, the longest {}){for_huge}",
            if explanation.gathered.is_own(at.thread) {
                who(&explanation.gathered, at.thread)
            } else {
                format!("{}, for all processes", who(&explanation.gathered, at.thread))
            },
            duration(sum.ns),
            words::waiting(at.wait),
            sum.count,
            duration(sum.longest_ns)
        );
        page.wrapped(if n == 0 { heading } else { "" }, &said)?;
    }
    match outside.len().saturating_sub(THREADS) {
        0 => Ok(()),
        left => page.line("", format!("and {left} more")),
    }
}

/// How much of what the kernel accounted for was found.
fn accounting(page: &mut Page<'_>, explanation: &Explanation) -> fmt::Result {
    let totals = &explanation.totals;
    let Some(sums) = &totals.accounted else { return Ok(()) };
    let mut heading = "EVIDENCE";
    for wait in [Wait::Compaction, Wait::Reclaim] {
        let accounted = sums.get(&wait).copied().unwrap_or(0);
        let found = totals.found.get(&wait).map_or(0, |sum| sum.ns);
        if accounted + found == 0 || totals.found.is_empty() {
            continue;
        }
        if heading == "EVIDENCE" {
            page.line("", "")?;
        }
        let said = format!(
            "{}: {} in intervals of kernel events; the kernel's own accounting says {}",
            words::waiting(wait),
            duration(found),
            if accounted == 0 { "none".to_owned() } else { duration(accounted) }
        );
        page.wrapped(heading, &said)?;
        heading = "";
    }
    Ok(())
}

fn changes(page: &mut Page<'_>, explained: &Explained<'_>, terminal: &Terminal) -> fmt::Result {
    if explained.changes.is_empty() {
        return Ok(());
    }
    page.line("", "")?;
    for (n, change) in explained.changes.iter().enumerate() {
        page.wrapped(if n == 0 { "CHANGE" } else { "or" }, words::change(change.what))?;
        if let Some(command) = &change.command {
            page.line("", terminal.good(&format!("$ {}", plain(&shell_line(command)))))?;
        }
        // Several are proven by one line.
        let shared = explained.changes.get(n + 1).is_some_and(|next| next.proof == change.proof);
        if let Some(proof) = change.proof.as_ref().filter(|_| !shared) {
            page.line("to prove it", terminal.good(&format!("$ {}", plain(&shell_line(proof)))))?;
        }
    }
    Ok(())
}

fn lines(page: &mut Page<'_>, table: &Table) -> fmt::Result {
    table.lines().try_for_each(|line| page.text(line.trim_end()))
}
