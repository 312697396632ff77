//! Messages explained, one after the other.

use std::fmt;

use hugewise_jvm::messages::{Explanation, Harm, Scanned};
use schemars::JsonSchema;
use serde::Serialize;

use crate::output::{
    layout::Page,
    terminal::{Terminal, plain},
};

/// What `explain` says, schema `hugewise.explain/1`.
#[derive(Serialize, JsonSchema)]
pub struct Report {
    schema: &'static str,
    /// The lines that were read.
    lines: u64,
    /// In the order of their first lines.
    messages: Vec<Explanation>,
    /// Messages beyond the first thousand different ones.
    left_out: u64,
}

impl Report {
    /// Of what was found and explained.
    pub fn new(scanned: &Scanned, messages: Vec<Explanation>) -> Report {
        Report { schema: "hugewise.explain/1", lines: scanned.lines, messages, left_out: scanned.left_out }
    }

    /// Did a program not get what it asked for?
    pub fn is_negative(&self) -> bool {
        self.messages.iter().any(|message| message.found.message.harm != Harm::None)
    }
}

/// The report as text.
pub fn text(report: &Report, terminal: &Terminal) -> Result<String, fmt::Error> {
    let mut page = Page::new(terminal);
    let lines = match report.lines {
        1 => "1 line".to_owned(),
        lines => format!("{lines} lines"),
    };
    if report.messages.is_empty() {
        page.wrapped(
            "NOTHING",
            &format!(
                "No message about large pages in {lines}. That proves nothing: some JVMs fall back without a \
                 word. What a running one got: hugewise inspect PID"
            ),
        )?;
        return Ok(page.into_text());
    }
    for (at, message) in report.messages.iter().enumerate() {
        // Messages of one cause share their evidence and their way out: told once.
        let shares = |before: &&Explanation| {
            (&before.evidence, &before.command, &before.fix)
                == (&message.evidence, &message.command, &message.fix)
        };
        let told = report.messages[..at].iter().find(shares).map(|before| before.found.line);
        one(&mut page, message, told, terminal)?;
    }
    if report.left_out > 0 {
        page.wrapped(
            "",
            &format!("{} more messages, each of them different, are not shown", report.left_out),
        )?;
    }
    Ok(page.into_text().trim_start().to_owned())
}

fn one(page: &mut Page, message: &Explanation, told: Option<u64>, terminal: &Terminal) -> fmt::Result {
    let found = &message.found;
    let harm = match found.message.harm {
        Harm::Stopped => terminal.bad("failed"),
        Harm::NotHuge => terminal.warn("not huge"),
        Harm::None => terminal.dim("note"),
    };
    let times = if found.count > 1 { format!(", {} times", found.count) } else { String::new() };
    page.line("", "")?;
    page.line(
        &format!("LINE {}", found.line),
        format!("{harm} · {}{times}", terminal.dim(&format!("in the words of {}", found.message.speaker))),
    )?;
    page.line("", terminal.bold(&plain(&found.text)))?;
    page.wrapped("cause", &plain(&message.cause))?;
    if let Some(line) = told {
        return page.line("fix", format!("as for line {line}, on the same evidence"));
    }
    for evidence in &message.evidence {
        page.wrapped("evidence", &plain(evidence))?;
    }
    if let Some(command) = &message.command {
        // Never wrapped: it is to be copied.
        page.line("fix", terminal.good(&format!("$ {}", plain(command))))?;
        return page.wrapped("", &plain(&message.fix));
    }
    page.wrapped("fix", &plain(&message.fix))
}
