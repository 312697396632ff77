//! A message with what is known beside it: the facts of its text, and those of a machine.

use hugewise_linux::{action::Action, facts::Facts};

use super::{Capture, FoundMessage, Identity, Origin, ScannedLog};

pub(super) const EPERM: i32 = 1;
pub(super) const ENOMEM: i32 = 12;
pub(super) const EINVAL: i32 = 22;
pub(super) const ENOSPC: i32 = 28;

/// What is known beside a text.
pub struct Context<'a> {
    /// Facts of a machine.
    pub facts: &'a Facts,
    /// Name and boot of that machine, to compare them with the text; `None` if the user says that the text is of it.
    pub machine: Option<&'a Identity>,
    /// Command line of the program that printed the text; empty if it is unknown.
    pub command: &'a [String],
    /// The actions of the plan for it. Without them, the pages that the JVM needs are unknown.
    pub planned: Option<&'a [Action]>,
}

/// A message, the other messages of its log, and the machine.
pub(super) struct Explainer<'a> {
    pub(super) found: &'a FoundMessage,
    pub(super) log: &'a ScannedLog,
    pub(super) facts: &'a Facts,
    /// Facts in the report that the message is in.
    pub(super) captured: &'a Capture,
    /// Those, completed by the facts of the machine if the text is of it.
    pub(super) known: Capture,
    pub(super) origin: Origin,
    pub(super) planned: Option<&'a [Action]>,
    /// Whether the facts are of this machine, so that its control groups are those of the caller.
    pub(super) is_live: bool,
}

impl<'a> Explainer<'a> {
    pub(super) fn new(
        found: &'a FoundMessage,
        log: &'a ScannedLog,
        context: &'a Context<'a>,
    ) -> Explainer<'a> {
        let captured = log.capture(found.report);
        let origin =
            context.machine.map_or(Origin::Same, |machine| Origin::of(captured, context.facts, machine));
        // A plan is asked for the machine that it is made on.
        let origin = match origin {
            Origin::Unknown if context.planned.is_some() => Origin::Same,
            origin => origin,
        };
        let mut known = match origin {
            Origin::Same => captured.completed(context.facts),
            _ => captured.clone(),
        };
        if !context.command.is_empty() {
            known.command_line = known.command_line.or_else(|| Some(context.command.join(" ")));
        }
        let is_live = context.machine.is_some();
        Explainer {
            found,
            log,
            facts: context.facts,
            captured,
            known,
            origin,
            planned: context.planned,
            is_live,
        }
    }
}
