//! The report of `explain` as text and JSON.

use std::fmt;

use hugewise_jvm::messages::{Explanation, Harm, ScannedLog};
use schemars::JsonSchema;
use serde::Serialize;

use crate::output::{
    layout::Page,
    terminal::{Terminal, plain},
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
}

impl ExplainReport {
    pub fn new(scanned: &ScannedLog, messages: Vec<Explanation>) -> ExplainReport {
        let (lines, left_out) = (scanned.lines, scanned.left_out);
        ExplainReport { schema: "hugewise.explain/2", lines, messages, left_out }
    }

    /// Whether a message reports that a program did not get huge pages, did not start or was ended.
    pub fn is_negative(&self) -> bool {
        self.messages.iter().any(|message| message.found.message.harm != Harm::None)
    }
}

pub fn text(report: &ExplainReport, terminal: &Terminal) -> Result<String, fmt::Error> {
    let mut page = Page::new(terminal);
    let lines = match report.lines {
        1 => "1 line".to_owned(),
        lines => format!("{lines} lines"),
    };
    if report.messages.is_empty() {
        let said = format!(
            "No message about large pages in {lines}. This does not prove huge pages: some JVMs fall back \
             without a message. Check a running JVM: hugewise inspect PID"
        );
        page.wrapped("VERDICT", &said)?;
        return Ok(page.into_text());
    }
    for (at, message) in report.messages.iter().enumerate() {
        // Evidence and actions that equal those of an earlier message are not repeated.
        let shares = |before: &&Explanation| {
            (&before.evidence, &before.actions) == (&message.evidence, &message.actions)
        };
        let same_as_line = report.messages[..at].iter().find(shares).map(|before| before.found.line);
        one(&mut page, message, same_as_line, terminal)?;
    }
    if report.left_out > 0 {
        page.wrapped("", &format!("{} more distinct messages are not shown", report.left_out))?;
    }
    Ok(page.into_text().trim_start().to_owned())
}

fn one(
    page: &mut Page,
    message: &Explanation,
    same_as_line: Option<u64>,
    terminal: &Terminal,
) -> fmt::Result {
    let found = &message.found;
    let harm = match found.message.harm {
        Harm::Stopped => terminal.bad("failed"),
        Harm::NotHuge => terminal.warn("no huge pages"),
        Harm::None => terminal.dim("note"),
    };
    let times = if found.count > 1 { format!(", {} times", found.count) } else { String::new() };
    page.line("", "")?;
    page.line(
        &format!("LINE {}", found.line),
        format!("{harm} · {}{times}", terminal.dim(&format!("message of {}", found.message.speaker))),
    )?;
    page.line("", terminal.bold(&plain(&found.text)))?;
    page.wrapped("CAUSE", &plain(&message.detail))?;
    if let Some(line) = same_as_line {
        return page.line("ACTIONS", format!("the same as for line {line}, with the same evidence"));
    }
    for evidence in &message.evidence {
        page.wrapped("EVIDENCE", &plain(evidence))?;
    }
    page.actions(&message.actions)
}
