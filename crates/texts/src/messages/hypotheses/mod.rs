//! Messages with several possible causes: each is tested on facts, and those that survive are named. An action follows only
//! if all that are left have the same one; otherwise the question that decides.

mod crash;
mod jvm;
mod others;
mod pool;
mod thp;

use hugewise_linux::action::Action;
use schemars::JsonSchema;
use serde::Serialize;

use super::explainer::{self, Explainer};

/// A possible cause of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Hypothesis {
    pub cause: String,
    /// The fact that excludes the cause; null if none does.
    pub excluded_by: Option<String>,
}

/// A possible cause, and what to do if it is the one.
pub(super) struct Candidate {
    hypothesis: Hypothesis,
    action: Action,
}

impl Candidate {
    pub fn new(cause: impl Into<String>, action: Action) -> Candidate {
        Candidate { hypothesis: Hypothesis { cause: cause.into(), excluded_by: None }, action }
    }

    /// Excludes the cause if the fact holds. The first such fact is named.
    #[must_use]
    pub fn unless(mut self, holds: bool, fact: impl Into<String>) -> Candidate {
        if holds && self.hypothesis.excluded_by.is_none() {
            self.hypothesis.excluded_by = Some(fact.into());
        }
        self
    }
}

/// What is known of a message before its causes are tested, its possible causes, and the question that decides between
/// them.
pub(super) struct Candidates {
    pub happened: String,
    pub causes: Vec<Candidate>,
    pub question: Action,
}

/// The explanation of a message.
pub(super) struct Answer {
    pub detail: String,
    pub actions: Vec<Action>,
    pub hypotheses: Vec<Hypothesis>,
    pub question: Option<Action>,
}

impl Answer {
    /// An explanation without alternatives.
    pub fn certain(detail: impl Into<String>, action: Action) -> Answer {
        let actions = if action.change.is_empty() { Vec::new() } else { vec![action] };
        Answer { detail: detail.into(), actions, hypotheses: Vec::new(), question: None }
    }
}

impl Candidates {
    pub fn answer(self) -> Answer {
        let left: Vec<&Candidate> =
            self.causes.iter().filter(|one| one.hypothesis.excluded_by.is_none()).collect();
        let mut actions = Vec::new();
        let mut question = None;
        let mut detail = self.happened;
        match left[..] {
            [] => {
                detail += " The facts exclude each known cause: the state has changed since, or the cause is another one.";
                question = Some(self.question);
            }
            [first, ref others @ ..] if others.iter().all(|other| other.action == first.action) => {
                let causes: Vec<&str> = left.iter().map(|one| one.hypothesis.cause.as_str()).collect();
                detail += &format!(" {}.", capitalised(&causes.join("; or ")));
                actions = vec![first.action.clone()];
            }
            [..] => {
                detail += &format!(" {} causes are possible:", left.len());
                for (n, one) in left.iter().enumerate() {
                    detail += &format!(" ({}) {};", n + 1, one.hypothesis.cause);
                }
                detail.pop();
                detail.push('.');
                question = Some(self.question);
            }
        }
        let hypotheses = self.causes.into_iter().map(|one| one.hypothesis).collect();
        Answer { detail, actions, hypotheses, question }
    }
}

impl Explainer<'_> {
    /// The causes of a message that has several; `None` if it has one.
    pub(super) fn causes(&self) -> Option<Answer> {
        use super::Family::*;
        let answer = match self.found.message.family {
            BusError => self.bus_error(),
            CommitMemory => self.commit(),
            HeapCommit | HeapLowered => self.heap_commit(),
            SharedMemory
                if self.found.message.errno != Some(explainer::EINVAL)
                    && self.found.message.errno != Some(explainer::ENOSPC) =>
            {
                self.shared_memory()
            }
            PoolEmpty | KindNotConfigured => self.pool_empty(),
            PoolShort | CommitFailed => return self.pool_short(),
            ProgramPool => return self.program_pool(),
            ThpOff => self.thp_off(),
            ProgramThp => return self.program_thp(),
            OutOfMemory => self.out_of_memory(),
            NoNode => self.no_node(),
            SharedBuffers => self.shared_buffers(),
            _ => return None,
        };
        Some(answer)
    }
}

/// The text with a capital letter at its beginning.
fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
