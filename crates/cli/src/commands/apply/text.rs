//! What `apply` changes, and what came of it.

use std::path::PathBuf;

use comfy_table::Table;
use hugewise_changes::{apply::Outcome, difference::Difference};
use schemars::JsonSchema;
use serde::Serialize;

use crate::output::{
    layout::table,
    terminal::{Terminal, plain},
};

/// What `apply` did, schema `hugewise.apply/1`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Report {
    schema: &'static str,
    /// What became of the changes.
    pub state: State,
    /// Every setting that was named.
    pub changes: Vec<Outcome>,
    /// Why it should not be done.
    pub objections: Vec<String>,
    /// What is good to know.
    pub notes: Vec<String>,
    /// The configuration files that set it again at boot.
    pub persisted: Vec<PathBuf>,
}

/// What became of the changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Shown only.
    DryRun,
    /// There were objections: nothing was changed.
    Refused,
    /// Everything was as wanted already.
    AsWanted,
    /// Made, and kept until `hugewise restore`.
    Kept,
    /// Made, and put back because a pool stayed too small.
    PutBack,
}

impl Report {
    /// Of changes that were made.
    pub fn new(state: State, difference: &Difference, changes: Vec<Outcome>) -> Report {
        Report {
            schema: "hugewise.apply/1",
            state,
            changes,
            objections: difference.objections.clone(),
            notes: difference.notes.clone(),
            persisted: Vec::new(),
        }
    }

    /// Of changes that were not made.
    pub fn of_nothing(state: State, difference: &Difference) -> Report {
        Report::new(state, difference, difference.changes.iter().map(Outcome::of_nothing).collect())
    }

    /// All was put back after it was made.
    pub fn put_back(&mut self) {
        self.state = State::PutBack;
    }
}

/// The difference, before anything is done.
pub fn difference_text(difference: &Difference, terminal: &Terminal) -> String {
    let mut table = table(&["setting", "is", "wanted"]);
    for change in &difference.changes {
        let to = if change.is_needed() { change.to.as_str() } else { "the same" };
        table.add_row([change.setting.to_string(), plain(&change.from), plain(to)]);
    }
    let mut text = lines(&table);
    for objection in &difference.objections {
        text += &format!("{} {}\n", terminal.bad("objection:"), plain(objection));
    }
    text
}

/// What came of it.
pub fn outcome_text(report: &Report, terminal: &Terminal) -> String {
    let mut text = String::from("\n");
    match report.state {
        State::DryRun if report.objections.is_empty() => text += "Nothing was changed: this was a dry run.\n",
        State::DryRun => {
            text += "Nothing was changed: this was a dry run. Without it nothing would be, unless --force.\n";
        }
        State::Refused => text += "Nothing was changed. --force does it against the objections.\n",
        State::AsWanted => text += "Nothing was changed: everything is as wanted.\n",
        State::Kept | State::PutBack => made(&mut text, report, terminal),
    }
    for note in &report.notes {
        text += &format!("{} {}\n", terminal.warn("note:"), plain(note));
    }
    text
}

fn made(text: &mut String, report: &Report, terminal: &Terminal) {
    let mut table = table(&["setting", "was", "wanted", "is"]);
    for outcome in &report.changes {
        let change = &outcome.change;
        let is = match report.state {
            State::PutBack => &change.from,
            _ => outcome.reached.as_ref().unwrap_or(&change.from),
        };
        table.add_row([&change.setting.to_string(), &change.from, &change.to, is].map(|cell| plain(cell)));
    }
    *text += &lines(&table);
    for outcome in &report.changes {
        if let Some(shortage) = &outcome.shortage {
            *text += &format!("{} {}: {}\n", terminal.bad("short:"), outcome.change.setting, plain(shortage));
        }
    }
    for file in &report.persisted {
        *text += &format!("Set again at every boot: {}\n", plain(&file.to_string_lossy()));
    }
    *text += match report.state {
        State::PutBack => "Everything was put back: --all-or-nothing.\n",
        _ if report.persisted.is_empty() => "It stays until 'hugewise restore' or a reboot.\n",
        _ => "'hugewise restore --persisted' undoes all of it.\n",
    };
}

fn lines(table: &Table) -> String {
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}
