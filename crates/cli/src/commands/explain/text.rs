//! The report of `explain` as text and JSON.

use std::fmt;

use hugewise_texts::messages::{Explanation, Family, Harm, ScannedLog};
use schemars::JsonSchema;
use serde::Serialize;

use crate::output::{
    layout::Page,
    terminal::{Terminal, plain},
    words::counted,
};

/// Result of `hugewise explain`, schema `hugewise.explain/2`.
#[derive(Serialize, JsonSchema)]
pub struct ExplainReport {
    schema: &'static str,
    /// Number of lines read.
    lines: u64,
    /// Distinct messages, in the order of their first lines.
    messages: Vec<Explanation>,
    /// Number of distinct messages beyond the first thousand, which are not explained.
    left_out: u64,
    /// Number of lines about huge pages, known or not.
    about_huge_pages: u64,
    /// Number of lines of which a part could not be read.
    unread_lines: u64,
    /// Why lines, or the end of the log, could not be read.
    unread_reasons: Vec<String>,
    /// What was taken off the lines before they were read, such as `JSON`.
    decoded: Vec<&'static str>,
}

impl ExplainReport {
    pub fn new(scanned: &ScannedLog, messages: Vec<Explanation>) -> ExplainReport {
        ExplainReport {
            schema: "hugewise.explain/2",
            lines: scanned.lines,
            messages,
            left_out: scanned.left_out,
            about_huge_pages: scanned.about_huge_pages,
            unread_lines: scanned.cut + scanned.binary,
            unread_reasons: unread(scanned),
            decoded: scanned.layers.iter().map(|layer| layer.name()).collect(),
        }
    }

    /// Whether a message reports that a program did not get huge pages, did not start, was ended or warns, or a
    /// line about huge pages is not known.
    pub fn is_negative(&self) -> bool {
        self.messages.iter().any(|message| message.found.message.harm != Harm::None)
    }

    /// Whether a part of the log was not read.
    pub fn is_incomplete(&self) -> bool {
        !self.unread_reasons.is_empty()
    }
}

fn unread(scanned: &ScannedLog) -> Vec<String> {
    let mut reasons = Vec::new();
    if scanned.cut > 0 {
        reasons.push(format!("{} could not be read in whole: too long", counted(scanned.cut, "line")));
    }
    if scanned.binary > 0 {
        let lines = counted(scanned.binary, "line");
        reasons.push(format!("{lines} could not be read: binary, or text that is neither UTF-8 nor UTF-16"));
    }
    reasons.extend(
        scanned.ended_early.iter().map(|why| format!("only the part before its end was read: {why}")),
    );
    reasons
}

/// Largest number of lines shown that are about huge pages and not known.
const MAX_UNKNOWN_SHOWN: usize = 10;

pub fn text(report: &ExplainReport, terminal: &Terminal) -> Result<String, fmt::Error> {
    let mut page = Page::new(terminal);
    let is_information = |message: &&Explanation| {
        let found = &message.found.message;
        found.family == Family::Information
            || (found.family == Family::RegionPages && found.harm == Harm::None)
    };
    let (information, messages): (Vec<_>, Vec<_>) = report.messages.iter().partition(is_information);
    if messages.is_empty() {
        page.wrapped("VERDICT", &nothing_recognised(report, &information))?;
        return Ok(page.into_text());
    }
    let mut unknown = 0;
    for (at, message) in messages.iter().enumerate() {
        unknown += usize::from(message.found.message.family == Family::Unknown);
        if message.found.message.family == Family::Unknown && unknown > MAX_UNKNOWN_SHOWN {
            continue;
        }
        one(&mut page, message, &messages[..at], terminal)?;
    }
    let hidden = report.left_out + unknown.saturating_sub(MAX_UNKNOWN_SHOWN) as u64;
    if hidden > 0 {
        page.wrapped("", &format!("{hidden} more distinct messages are not shown"))?;
    }
    page.line("", "")?;
    page.wrapped("READ", &counts(report))?;
    Ok(page.into_text().trim_start().to_owned())
}

/// `12 lines read, 3 of them about huge pages`
fn counts(report: &ExplainReport) -> String {
    let mut said = format!(
        "{} read, {} of them about huge pages",
        counted(report.lines, "line"),
        report.about_huge_pages
    );
    for reason in &report.unread_reasons {
        said += &format!("; {}", plain(reason));
    }
    if !report.decoded.is_empty() {
        said += &format!("; taken off: {}", report.decoded.join(", "));
    }
    said + "."
}

fn nothing_recognised(report: &ExplainReport, information: &[&Explanation]) -> String {
    let mut said = match information {
        [] => "No message about huge pages was recognised. ".to_owned(),
        [one] => format!("No message reports a fault. Line {}: {} ", one.found.line, one.detail),
        [one, ..] => format!(
            "No message reports a fault. {} kinds of lines are settings or states; line {}: {} ",
            information.len(),
            one.found.line,
            one.detail
        ),
    };
    said += &counts(report);
    said += " This does not prove huge pages: some programs fall back without a message. Check a running one: hugewise \
             inspect PID";
    plain(&said)
}

fn one(page: &mut Page, message: &Explanation, before: &[&Explanation], terminal: &Terminal) -> fmt::Result {
    let found = &message.found;
    let harm = match found.message.harm {
        Harm::Stopped => terminal.bad("failed"),
        Harm::NotHuge => terminal.warn("no huge pages"),
        Harm::Warned => terminal.warn("warning"),
        Harm::Unknown => terminal.warn("about huge pages, but unknown here"),
        Harm::None => terminal.dim("note"),
    };
    let times = if found.count > 1 { format!(", {} times", found.count) } else { String::new() };
    page.line("", "")?;
    page.line(
        &format!("LINE {}", found.line),
        format!("{harm} · {}{times}", terminal.dim(&format!("message of {}", found.message.speaker))),
    )?;
    page.line("", terminal.bold(&plain(&found.text)))?;
    // Causes, evidence and actions that equal those of an earlier message are not repeated.
    let line_of = |same: &dyn Fn(&Explanation) -> bool| {
        before.iter().find(|earlier| same(earlier)).map(|earlier| earlier.found.line)
    };
    let actions_of = line_of(&|earlier| {
        (&earlier.evidence, &earlier.actions, &earlier.question)
            == (&message.evidence, &message.actions, &message.question)
    });
    match (line_of(&|earlier| earlier.detail == message.detail), actions_of) {
        (Some(line), Some(actions)) if line == actions => {
            return page
                .line("CAUSE", format!("the same as for line {line}, with the same evidence and actions"));
        }
        (Some(line), _) => page.line("CAUSE", format!("the same as for line {line}"))?,
        (None, _) => page.wrapped("CAUSE", &plain(&message.detail))?,
    }
    for excluded in &message.hypotheses {
        if let Some(fact) = &excluded.excluded_by {
            page.wrapped("EXCLUDED", &plain(&format!("{}: {fact}", first_words(&excluded.cause))))?;
        }
    }
    if let Some(line) = actions_of {
        let heading = if message.question.is_some() { "QUESTION" } else { "ACTIONS" };
        return page.line(heading, format!("the same as for line {line}, with the same evidence"));
    }
    for evidence in &message.evidence {
        page.wrapped("EVIDENCE", &plain(evidence))?;
    }
    if let Some(question) = &message.question {
        page.wrapped("QUESTION", &plain(&question.change))?;
        if let Some(command) = &question.command {
            page.line("", terminal.good(&format!("$ {}", plain(command))))?;
        }
    }
    page.actions(&message.actions)
}

/// A cause, up to its explanation.
fn first_words(cause: &str) -> &str {
    cause.split(&[':', ';', '('][..]).next().unwrap_or(cause).trim_end()
}
