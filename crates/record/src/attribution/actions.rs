//! Changes that avoid the cause of the pauses, and how to verify them.

use std::path::Path;

use super::{
    Attribution,
    verdict::{Verdict, VerdictReason},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposedChange {
    pub what: ChangeKind,
    /// The command that makes the change; `None` for a flag of the program.
    pub command: Option<Vec<String>>,
    /// A command that measures the effect of the change; `None` if the command line is unknown.
    pub proof: Option<Vec<String>>,
}

/// Kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// Populate the heap before the application starts.
    PreTouch,
    /// Give the heap its full size at the start, so that pre-touch covers it.
    FixedHeap,
    /// Defer compaction to the background, also for memory with `MADV_HUGEPAGE`.
    Defer,
    /// Defer compaction to the background for memory without `MADV_HUGEPAGE`.
    DeferUnlessMadvised,
    /// Use huge pages from a pool, which need no compaction when they are touched.
    Explicit,
    /// Disable THP for this process.
    ThpOff,
    /// Use huge pages instead of base pages, which means fewer page faults.
    Thp,
}

/// Changes that avoid the cause, least invasive first.
pub fn changes(explanation: &Attribution) -> Vec<ProposedChange> {
    let header = &explanation.gathered.header;
    let fragmented = explanation.decision.verdict == Verdict::Thp;
    let program = Program { is_live: !header.started, ..Program::of(&header.command, fragmented) };
    let defrag = header.machine.thp.defrag.known().map_or("", String::as_str);
    let mut whats = Vec::new();
    match explanation.decision.verdict {
        Verdict::Thp => {
            let in_pauses = !matches!(explanation.decision.because, VerdictReason::HugePagesOutside { .. });
            if program.java.is_some() && in_pauses {
                whats.extend(program.earlier_touch());
            }
            whats.extend(match defrag {
                // Without MADV_HUGEPAGE, it is the machine-wide mode that makes the program wait.
                "always" if !program.requests_thp => Some(ChangeKind::DeferUnlessMadvised),
                "always" | "madvise" | "defer+madvise" => Some(ChangeKind::Defer),
                _ => None,
            });
            whats.extend([ChangeKind::Explicit, ChangeKind::ThpOff]);
        }
        Verdict::FirstTouch => {
            whats.extend(program.earlier_touch());
            if !program.requests_thp {
                whats.push(ChangeKind::Thp);
            }
        }
        _ => {}
    }
    whats.into_iter().map(|what| program.change(what)).collect()
}

/// The recorded command line.
struct Program<'a> {
    words: &'a [String],
    /// Index of the `java` command.
    java: Option<usize>,
    requests_thp: bool,
    pre_touches: bool,
    fixed_heap: bool,
    /// Whether fragmented memory is the cause.
    fragmented: bool,
    /// Whether the program ran before the recording, as a server does: a second one would use the same port and the
    /// same log file.
    is_live: bool,
}

impl Program<'_> {
    fn of(words: &[String], fragmented: bool) -> Program<'_> {
        let is_java = |word: &String| Path::new(word).file_name().is_some_and(|name| name == "java");
        let has = |flag: &str| words.iter().any(|word| word == flag);
        let last = |name: &str| words.iter().rev().find_map(|word| word.strip_prefix(name));
        Program {
            words,
            fragmented,
            is_live: false,
            java: words.iter().position(is_java),
            requests_thp: has("-XX:+UseTransparentHugePages"),
            pre_touches: has("-XX:+AlwaysPreTouch"),
            fixed_heap: last("-Xms").is_some() && last("-Xms") == last("-Xmx"),
        }
    }

    fn earlier_touch(&self) -> Option<ChangeKind> {
        match (self.java, self.pre_touches, self.fixed_heap) {
            (None, ..) | (_, true, true) => None,
            (_, true, false) => Some(ChangeKind::FixedHeap),
            (_, false, _) => Some(ChangeKind::PreTouch),
        }
    }

    fn change(&self, what: ChangeKind) -> ProposedChange {
        let known = !self.words.is_empty();
        let run = |options: &str| known.then(|| [&words(options), &words("--"), self.words].concat());
        let thp = "sudo hugewise compare --fragmented -b base,thp";
        let thp_and_pool = "sudo hugewise compare --fragmented -b base,thp,hugetlb";
        let (command, proof) = match what {
            ChangeKind::PreTouch => (None, known.then(|| self.with_and_without_pre_touch())),
            ChangeKind::FixedHeap => (None, None),
            // The proof is for after the change was applied.
            ChangeKind::Defer => (Some(words("sudo hugewise apply --thp-defrag defer")), run(thp)),
            ChangeKind::DeferUnlessMadvised => {
                (Some(words("sudo hugewise apply --thp-defrag defer+madvise")), run(thp))
            }
            ChangeKind::Explicit => (run("hugewise plan"), run(thp_and_pool)),
            ChangeKind::ThpOff => (run("hugewise run --backing base"), run(thp_and_pool)),
            ChangeKind::Thp => (run("hugewise run --backing thp"), run("sudo hugewise compare -b base,thp")),
        };
        if self.is_live {
            // Its user chose its command line: the reader of the report, who may be root, is not to copy it.
            let command = match what {
                ChangeKind::Explicit => Some(words("hugewise plan --pid PID")),
                ChangeKind::Defer | ChangeKind::DeferUnlessMadvised => command,
                _ => None,
            };
            let again = words("sudo hugewise record -o after.rec PID");
            return ProposedChange { what, command, proof: Some(again) };
        }
        ProposedChange { what, command, proof }
    }

    /// The command line with `-XX:±AlwaysPreTouch` as a parameter of `hugewise compare`.
    fn with_and_without_pre_touch(&self) -> Vec<String> {
        let compare = match self.fragmented {
            true => "sudo hugewise compare --fragmented -b base,thp -L touch +,- --",
            false => "sudo hugewise compare -b base,thp -L touch +,- --",
        };
        let mut line = words(compare);
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

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}
