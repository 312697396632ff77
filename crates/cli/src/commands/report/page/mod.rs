//! The attributed pauses of a recording as a self-contained HTML page.

#[cfg(test)]
mod tests;
mod timeline;

use hugewise_linux::action::Action;
use hugewise_record::attribution::{Attribution, Pause, Verdict};
use serde::Serialize;

use self::timeline::Timeline;
use super::{reasons, reports::AttributedRecording, words};
use crate::output::{
    durations::duration, layout::share_verify_commands, terminal::plain, web_page, words::counted,
};

/// The only script of the page. It reads the recording as JSON data.
const SCRIPT: &str = concat!(
    "\"use strict\";\n(() => {\n",
    include_str!("read.js"),
    include_str!("view.js"),
    include_str!("draw.js"),
    include_str!("describe.js"),
    include_str!("input.js"),
    "})();\n"
);
/// SHA-256 of the script in Base64, for the Content-Security-Policy: browsers run no other script.
const SCRIPT_HASH: &str = "Yp4FymGGa4rsKEdfjMdqRfZQ8xIlkwGz1vuBshCDoc0=";
/// Largest number of pauses and of threads in a list, the longest first; the timeline has all.
const MAX_LISTED: usize = 100;

/// The page. All text from the recording is escaped.
pub fn html(explained: &AttributedRecording<'_>) -> anyhow::Result<String> {
    web_page::render(include_str!("page.html"), page(explained)?)
}

#[derive(Serialize)]
struct Page {
    version: &'static str,
    file: String,
    recording: [String; 2],
    verdict: &'static str,
    /// CSS class of the verdict.
    kind: &'static str,
    why: Vec<String>,
    totals: Vec<String>,
    parts: Vec<Part>,
    pauses: Vec<PauseRow>,
    /// Whether a pause has a cause.
    causes: bool,
    /// Number of pauses that are not listed, with the noun; empty if all are listed.
    left: String,
    worst: Option<Worst>,
    outside: Vec<String>,
    outside_left: usize,
    accounting: Vec<String>,
    remarks: Vec<String>,
    actions: Vec<Action>,
    /// Whether the timeline has content.
    drawn: bool,
    /// The timeline as JSON, escaped for a script element.
    data: String,
    script: &'static str,
    script_hash: &'static str,
}

#[derive(Serialize)]
struct Part {
    what: &'static str,
    time: String,
    share: String,
    /// Number of pauses in which the part is unknown, as text; empty if none.
    unknown: String,
}

#[derive(Serialize)]
struct PauseRow {
    /// URL fragment that shows the pause in the timeline.
    fragment: String,
    kind: String,
    cause: String,
    figures: Vec<String>,
}

#[derive(Serialize)]
struct Worst {
    fragment: String,
    head: String,
    threads: Vec<String>,
    time_to_safepoint: Option<String>,
    blockers: Vec<String>,
}

fn page(explained: &AttributedRecording<'_>) -> anyhow::Result<Page> {
    let explanation = &explained.explanation;
    let (gathered, totals) = (&explanation.gathered, &explanation.totals);
    let timeline = Timeline::of(explanation);
    let verdict = explanation.decision.verdict;
    Ok(Page {
        version: env!("CARGO_PKG_VERSION"),
        file: plain(&explained.file.display().to_string()),
        recording: words::recording(gathered),
        verdict: words::verdict(explanation),
        kind: match verdict {
            Verdict::None => "good",
            Verdict::Inconclusive => "warn",
            _ => "bad",
        },
        why: reasons::why(explanation),
        totals: if totals.pauses > 0 { words::totals(totals) } else { Vec::new() },
        parts: parts(explanation),
        pauses: pauses(explanation),
        causes: explanation.pauses.iter().any(|pause| pause.stop.cause.is_some()),
        left: match explanation.pauses.len().saturating_sub(MAX_LISTED) {
            0 => String::new(),
            left => counted(left as u64, "pause"),
        },
        outside_left: totals.outside.len().saturating_sub(MAX_LISTED),
        worst: worst(explanation),
        outside: totals.outside.iter().take(MAX_LISTED).map(|at| words::outside(gathered, at)).collect(),
        accounting: words::accounting(totals),
        remarks: words::remarks(gathered),
        actions: share_verify_commands(&explained.actions).into_iter().map(without_controls).collect(),
        drawn: !timeline.is_empty(),
        data: embedded(&timeline)?,
        script: SCRIPT,
        script_hash: SCRIPT_HASH,
    })
}

fn parts(explanation: &Attribution) -> Vec<Part> {
    let sums = words::sums(explanation);
    let known: u64 = sums.iter().filter_map(|(_, ns, _)| *ns).sum();
    let share = |ns: u64| format!("{:.0} %", 100.0 * ns as f64 / known.max(1) as f64);
    let part = |(what, ns, unknown): (&'static str, Option<u64>, String)| Part {
        what,
        time: match ns {
            None => String::new(),
            Some(0) => "none".to_owned(),
            Some(ns) => duration(ns),
        },
        share: ns.filter(|ns| *ns > 0).map_or_else(String::new, share),
        unknown,
    };
    sums.into_iter().map(part).collect()
}

fn pauses(explanation: &Attribution) -> Vec<PauseRow> {
    let row = |pause: &Pause| {
        let mut figures = words::figures(&explanation.gathered, pause).to_vec();
        figures.push(words::ms(pause.stalled_for_huge_ns));
        figures.extend(words::parts(&pause.split).map(|(_, ns)| words::ms(ns)));
        PauseRow {
            fragment: fragment(explanation, pause),
            kind: plain(&pause.stop.kind),
            cause: pause.stop.cause.as_deref().map(plain).unwrap_or_default(),
            figures,
        }
    };
    words::longest_first(explanation).into_iter().take(MAX_LISTED).map(row).collect()
}

/// URL fragment that shows a pause in the timeline, with its time to safepoint and a margin on both sides.
fn fragment(explanation: &Attribution, pause: &Pause) -> String {
    let begin = |ns| words::since_begin_s(&explanation.gathered, ns);
    let (start, end) = (begin(pause.stop.span.start), begin(pause.stop.span.end));
    let from = start - pause.time_to_safepoint.as_ref().map_or(0.0, |ttsp| ttsp.ns as f64 / 1e9);
    let margin = ((end - from) * 0.1).max(1e-5);
    format!("t={:.6},{:.6}", from - margin, end + margin)
}

fn worst(explanation: &Attribution) -> Option<Worst> {
    let pause = words::worst(explanation).filter(|pause| !pause.threads.is_empty())?;
    let gathered = &explanation.gathered;
    let (ttsp, blockers) = words::listed_ttsp(gathered, pause).unzip();
    Some(Worst {
        fragment: fragment(explanation, pause),
        head: format!("{}, by thread", words::head(gathered, pause)),
        threads: words::threads(gathered, pause),
        time_to_safepoint: ttsp.map(|ttsp| format!("Time to safepoint before it: {ttsp}")),
        blockers: blockers.unwrap_or_default(),
    })
}

/// Replaces control characters in the commands of an action, which come from the recording.
fn without_controls(action: Action) -> Action {
    let plain = |command: Option<String>| command.map(|command| plain(&command));
    Action { command: plain(action.command), verify: plain(action.verify), ..action }
}

/// JSON whose strings cannot end the script element.
fn embedded(timeline: &Timeline) -> anyhow::Result<String> {
    let mut json = serde_json::to_string(timeline)?;
    for outside in ['&', '<', '>', '\u{2028}', '\u{2029}'] {
        json = json.replace(outside, &format!("\\u{:04x}", u32::from(outside)));
    }
    Ok(json)
}
