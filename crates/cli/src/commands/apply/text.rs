//! The changes of `apply` and their outcome, as text and JSON.

use std::path::PathBuf;

use comfy_table::Table;
use hugewise_changes::{apply::ChangeResult, difference::Difference};
use schemars::JsonSchema;
use serde::Serialize;

use crate::output::{
    table::table,
    terminal::{Terminal, plain},
};

/// Result of `hugewise apply`, schema `hugewise.apply/2`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ApplyReport {
    schema: &'static str,
    /// Whether the changes were applied.
    pub state: State,
    /// One entry for each requested setting.
    pub changes: Vec<ChangeResult>,
    /// Warnings because of which the changes are not applied without `--force`.
    #[serde(rename = "warnings")]
    pub objections: Vec<String>,
    /// Remarks that do not prevent the changes.
    pub notes: Vec<String>,
    /// Configuration files that apply the settings at boot; empty without `--persist`.
    pub persisted: Vec<PathBuf>,
}

/// Whether the changes were applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Printed only.
    DryRun,
    /// Nothing was changed, because of `warnings`.
    Refused,
    /// All settings already had the requested values.
    Unchanged,
    /// Applied, and kept until `hugewise restore`.
    Applied,
    /// Applied, and undone because a pool stayed too small.
    Undone,
}

impl ApplyReport {
    pub fn new(state: State, difference: &Difference, changes: Vec<ChangeResult>) -> ApplyReport {
        ApplyReport {
            schema: "hugewise.apply/2",
            state,
            changes,
            objections: difference.objections.clone(),
            notes: difference.notes.clone(),
            persisted: Vec::new(),
        }
    }

    /// The report of changes that were not applied.
    pub fn not_applied(state: State, difference: &Difference) -> ApplyReport {
        let changes = difference.changes.iter().map(ChangeResult::not_applied).collect();
        ApplyReport::new(state, difference, changes)
    }
}

/// The requested changes, before they are applied.
pub fn difference_text(difference: &Difference, terminal: &Terminal) -> String {
    let mut table = table(&["setting", "current", "requested"]);
    for change in &difference.changes {
        let to = if change.is_needed() { change.to.as_str() } else { "unchanged" };
        table.add_row([change.setting.to_string(), plain(&change.from), plain(to)]);
    }
    let mut text = lines(&table);
    for objection in &difference.objections {
        text += &format!("{} {}\n", terminal.bad("warning:"), plain(objection));
    }
    text
}

pub fn outcome_text(report: &ApplyReport, terminal: &Terminal) -> String {
    let mut text = String::from("\n");
    match report.state {
        State::DryRun if report.objections.is_empty() => text += "Nothing was changed: this was a dry run.\n",
        State::DryRun => {
            text += "Nothing was changed: this was a dry run. Without --force, the warnings prevent the changes.\n";
        }
        State::Refused => text += "Nothing was changed. --force applies the changes despite the warnings.\n",
        State::Unchanged => text += "Nothing was changed: all settings have the requested values.\n",
        State::Applied | State::Undone => applied_text(&mut text, report, terminal),
    }
    for note in &report.notes {
        text += &format!("{} {}\n", terminal.warn("note:"), plain(note));
    }
    text
}

fn applied_text(text: &mut String, report: &ApplyReport, terminal: &Terminal) {
    let mut table = table(&["setting", "before", "requested", "current"]);
    for outcome in &report.changes {
        let change = &outcome.change;
        let is = match report.state {
            State::Undone => &change.from,
            _ => outcome.reached.as_ref().unwrap_or(&change.from),
        };
        table.add_row([&change.setting.to_string(), &change.from, &change.to, is].map(|cell| plain(cell)));
    }
    *text += &lines(&table);
    for outcome in &report.changes {
        if let Some(shortage) = &outcome.shortage {
            *text +=
                &format!("{} {}: {}\n", terminal.bad("too small:"), outcome.change.setting, plain(shortage));
        }
    }
    for file in &report.persisted {
        *text += &format!("Persisted, applied again at boot: {}\n", plain(&file.to_string_lossy()));
    }
    *text += match report.state {
        State::Undone => "All changes were undone, because of --all-or-nothing.\n",
        _ if report.persisted.is_empty() => "The changes remain until 'hugewise restore' or a reboot.\n",
        _ => "'hugewise restore --persisted' undoes the changes and removes these files.\n",
    };
}

fn lines(table: &Table) -> String {
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}
