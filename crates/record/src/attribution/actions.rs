//! The smallest change that would have avoided it, and how to prove that.

use std::path::Path;

use super::{
    Explanation,
    verdict::{Because, Verdict},
};

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What.
    pub what: What,
    /// What does it; nothing where a flag of the program does.
    pub command: Option<Vec<String>>,
    /// A line that compares with and without; nothing where the program's command line is not known.
    pub proof: Option<Vec<String>>,
}

/// What is to be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The heap is touched before the application starts.
    PreTouch,
    /// The heap has its size from the beginning, as it is touched already.
    FixedHeap,
    /// Huge pages are made in the background, also for those who asked for them.
    Defer,
    /// Huge pages are made in the background for those who did not ask for them.
    DeferUnlessAsked,
    /// Huge pages from a pool, which nobody has to make.
    Explicit,
    /// No transparent huge pages for this process.
    ThpOff,
    /// Huge pages instead of base pages: fewer faults.
    Thp,
}

/// Changes that would have avoided what was found, the smallest first.
#[must_use]
pub fn changes(explanation: &Explanation) -> Vec<Change> {
    let header = &explanation.gathered.header;
    let program = Program::of(&header.command, explanation.decision.verdict == Verdict::Thp);
    let defrag = header.machine.thp.defrag.known().map_or("", String::as_str);
    let mut whats = Vec::new();
    match (explanation.decision.verdict, &explanation.decision.because) {
        (Verdict::Thp, because) => {
            let in_pauses = !matches!(because, Because::HugePagesOutside { .. });
            if program.java.is_some() && in_pauses {
                whats.extend(program.earlier_touch());
            }
            whats.extend(match defrag {
                // It did not ask by madvise: the machine's mode alone made it wait.
                "always" if !program.asks_for_thp => Some(What::DeferUnlessAsked),
                "always" | "madvise" | "defer+madvise" => Some(What::Defer),
                _ => None,
            });
            whats.extend([What::Explicit, What::ThpOff]);
        }
        (Verdict::FirstTouch, _) => {
            whats.extend(program.earlier_touch());
            if !program.asks_for_thp {
                whats.push(What::Thp);
            }
        }
        _ => {}
    }
    whats.into_iter().map(|what| program.change(what)).collect()
}

/// The command line that was recorded.
struct Program<'a> {
    words: &'a [String],
    /// Which of them is java.
    java: Option<usize>,
    asks_for_thp: bool,
    pre_touches: bool,
    fixed_heap: bool,
    /// It suffers from memory that is fragmented.
    fragmented: bool,
}

impl Program<'_> {
    fn of(words: &[String], fragmented: bool) -> Program<'_> {
        let is_java = |word: &String| Path::new(word).file_name().is_some_and(|name| name == "java");
        let has = |flag: &str| words.iter().any(|word| word == flag);
        let last = |name: &str| words.iter().rev().find_map(|word| word.strip_prefix(name));
        Program {
            words,
            fragmented,
            java: words.iter().position(is_java),
            asks_for_thp: has("-XX:+UseTransparentHugePages"),
            pre_touches: has("-XX:+AlwaysPreTouch"),
            fixed_heap: last("-Xms").is_some() && last("-Xms") == last("-Xmx"),
        }
    }

    fn earlier_touch(&self) -> Option<What> {
        match (self.java, self.pre_touches, self.fixed_heap) {
            (None, ..) | (_, true, true) => None,
            (_, true, false) => Some(What::FixedHeap),
            (_, false, _) => Some(What::PreTouch),
        }
    }

    fn change(&self, what: What) -> Change {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<String>>();
        let run = |options: &str| {
            let mut line = words(options);
            line.push("--".to_owned());
            line.extend_from_slice(self.words);
            line
        };
        let known = !self.words.is_empty();
        let command = match what {
            What::PreTouch | What::FixedHeap => None,
            What::Defer => Some(words("sudo hugewise apply --thp-defrag defer")),
            What::DeferUnlessAsked => Some(words("sudo hugewise apply --thp-defrag defer+madvise")),
            What::Explicit => known.then(|| run("hugewise plan")),
            What::ThpOff => known.then(|| run("hugewise run --backing base")),
            What::Thp => known.then(|| run("hugewise run --backing thp")),
        };
        let proof = match what {
            _ if !known => None,
            What::PreTouch => Some(self.with_and_without_pre_touch()),
            What::FixedHeap => None,
            What::Thp => Some(run("sudo hugewise compare -b base,thp")),
            // Once it is applied.
            What::Defer | What::DeferUnlessAsked => {
                Some(run("sudo hugewise compare --fragmented -b base,thp"))
            }
            What::Explicit | What::ThpOff => {
                Some(run("sudo hugewise compare --fragmented -b base,thp,hugetlb"))
            }
        };
        Change { what, command, proof }
    }

    /// The same program with `-XX:±AlwaysPreTouch`, as the values of a parameter.
    fn with_and_without_pre_touch(&self) -> Vec<String> {
        let compare = match self.fragmented {
            true => "sudo hugewise compare --fragmented -b base,thp -L touch +,- --",
            false => "sudo hugewise compare -b base,thp -L touch +,- --",
        };
        let mut line: Vec<String> = compare.split(' ').map(str::to_owned).collect();
        for (at, word) in self.words.iter().enumerate() {
            if !word.ends_with("AlwaysPreTouch") {
                line.push(word.clone());
            }
            if Some(at) == self.java {
                line.push("-XX:{touch}AlwaysPreTouch".to_owned());
            }
        }
        line
    }
}
