//! All known messages, one row for each wording.

mod containers;
mod databases;
mod information;
mod jvm;
mod kernel;
mod other_jvms;
mod programs;

use super::{Family, Harm};

/// A wording of a message, and what it means.
pub struct Wording {
    pub family: Family,
    pub harm: Harm,
    /// Program that prints it.
    pub speaker: &'static str,
    /// Regular expression with groups named after the fields of [`super::Message`].
    pub pattern: &'static str,
    /// A message of this wording, verbatim.
    pub sample: &'static str,
    /// `None` if the explanation depends on the message and the machine.
    pub advice: Option<Advice>,
}

/// Meaning of a message, and the change to make. `{bytes}`, `{pages}`, `{size}` and `{name}` stand for the fields of
/// the message.
pub struct Advice {
    pub meaning: &'static str,
    /// Empty if nothing is to be changed.
    pub action: &'static str,
}

/// The wordings; the first that matches a line counts.
pub fn all() -> impl Iterator<Item = &'static Wording> + Clone {
    let tables = [
        jvm::WORDINGS,
        other_jvms::WORDINGS,
        databases::WORDINGS,
        information::WORDINGS,
        kernel::WORDINGS,
        containers::WORDINGS,
        programs::WORDINGS,
    ];
    tables.into_iter().flatten()
}

/// A wording that `explain` explains by its family and the machine.
const fn by_machine(
    family: Family,
    harm: Harm,
    speaker: &'static str,
    pattern: &'static str,
    sample: &'static str,
) -> Wording {
    Wording { family, harm, speaker, pattern, sample, advice: None }
}

/// A wording whose meaning does not depend on the machine.
const fn row(
    family: Family,
    harm: Harm,
    speaker: &'static str,
    pattern: &'static str,
    sample: &'static str,
    meaning: &'static str,
    action: &'static str,
) -> Wording {
    Wording { family, harm, speaker, pattern, sample, advice: Some(Advice { meaning, action }) }
}
