//! Messages of programs and the kernel about huge pages: one row for each in [`wordings`].

mod capture;
mod evidence;
mod explain;
mod explainer;
mod hypotheses;
#[cfg(test)]
mod hypothesis_tests;
mod languages;
mod needles;
mod origin;
mod scan;
#[cfg(test)]
mod tests;
mod vocabulary;
pub mod wordings;

use std::{borrow::Cow, sync::LazyLock};

use hugewise_linux::units::{Bytes, PageSize};
use regex::{Captures, Regex};
use schemars::JsonSchema;
use serde::Serialize;

pub use capture::Capture;
pub use explain::{Explanation, explain, needs_scan};
pub use explainer::Context;
use needles::Needles;
pub use origin::{Identity, Origin};

pub use scan::{FoundMessage, Program, ScannedLog, scan};

/// Kind of a message. The meaning of a name never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// The JVM found no free page in the pool at its start.
    PoolEmpty,
    /// The pool had fewer pages than a region needed.
    PoolShort,
    /// SysV shared memory on huge pages was refused.
    SharedMemory,
    /// `-XX:+UseHugeTLBFS` or `-XX:+UseSHM` found no usable page.
    KindNotConfigured,
    /// The JVM requested THP, which the machine has switched off.
    ThpOff,
    /// ZGC requested THP for its heap in shared memory, which the machine has switched off.
    ShmemThpOff,
    /// The JVM ignores `-XX:LargePageSizeInBytes`.
    PageSizeIgnored,
    /// The JVM refuses `-XX:LargePageSizeInBytes` and exits.
    PageSizeRefused,
    /// ZGC could not allocate or extend its heap.
    HeapCommit,
    /// ZGC continues with a smaller maximum heap size.
    HeapLowered,
    /// Memory on large pages could not be committed.
    CommitFailed,
    /// Memory on base pages could not be committed; a pool may withhold it.
    CommitMemory,
    /// The JVM does not have a flag about large pages.
    UnknownFlag,
    /// The JVM reports large pages as disabled.
    LargePagesOff,
    /// The JVM reports large pages as enabled, which does not prove that it got any.
    LargePagesOn,
    /// The kernel allocated fewer pages at boot than its command line requests.
    BootPool,
    /// The kernel rejected a boot parameter about huge pages.
    BootParameter,
    /// The kernel found no contiguous free block of the requested order.
    NoBlock,
    /// A process touched memory that the kernel could not provide (SIGBUS).
    BusError,
    /// The hardware reported a memory error.
    MemoryError,
    /// State of a pool when the kernel ran out of memory.
    OutOfMemory,
    /// A database could not map its shared memory.
    SharedBuffers,
    /// A region of a JVM, with the page size that the JVM requested for it.
    RegionPages,
    /// SysV shared memory was allowed by RLIMIT_MEMLOCK, which is deprecated.
    MemlockRule,
    /// No node of a cluster has the huge pages that a pod requests.
    NoNode,
    /// The huge pages of a pod or container were requested in an invalid way.
    ContainerLimit,
    /// A program did not get pages of a pool.
    ProgramPool,
    /// A program asks for another THP mode.
    ProgramThp,
    /// A setting or a right prevents a program from using or changing huge pages.
    ProgramSetting,
    /// A setting or a state, and no fault.
    Information,
    /// A line about huge pages that is not known here.
    Unknown,
}

/// Effect on the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Harm {
    /// It did not start, was killed, or has less memory than configured.
    Stopped,
    /// It runs, but not on the huge pages that it requested.
    NotHuge,
    /// It runs, and warns of latency, of its use of memory, or of an option without effect.
    Warned,
    /// Not known: the message is about huge pages, and not known here.
    Unknown,
    /// None by itself.
    None,
}

/// A parsed message about large pages. Fields that it does not contain are `null`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, JsonSchema)]
pub struct Message {
    #[serde(rename = "cause")]
    pub family: Family,
    /// Effect on the program.
    #[serde(rename = "verdict")]
    pub harm: Harm,
    /// Program that prints this wording: `JDK 17`, `the kernel`.
    pub speaker: &'static str,
    /// Error number of the system.
    pub errno: Option<i32>,
    /// Size of the memory concerned, in bytes.
    pub bytes: Option<Bytes>,
    /// Page size, in bytes.
    #[serde(rename = "page_size_bytes")]
    pub page_size: Option<PageSize>,
    /// Order of the block: log2 of its number of base pages.
    pub order: Option<u32>,
    /// Number of pages requested, or in the pool.
    pub pages: Option<u64>,
    /// Number of pages allocated, or free.
    pub got: Option<u64>,
    /// Flag, boot parameter or resource that the message names.
    pub name: Option<String>,
    /// Index of the wording in [`wordings::all`]; `None` if it is not known.
    #[serde(skip)]
    pub wording: Option<usize>,
}

impl Message {
    /// A line about huge pages that is not known. `word`: why it is about huge pages.
    fn unknown(word: String) -> Message {
        Message {
            family: Family::Unknown,
            harm: Harm::Unknown,
            speaker: "a program that is not known here",
            errno: None,
            bytes: None,
            page_size: None,
            order: None,
            pages: None,
            got: None,
            name: Some(word),
            wording: None,
        }
    }

    /// Meaning and action, if they do not depend on the machine.
    fn advice(&self) -> Option<&'static wordings::Advice> {
        let advice = wordings::all().nth(self.wording?)?.advice.as_ref()?;
        (!advice.meaning.is_empty()).then_some(advice)
    }
}

/// Smallest order of a huge page on any machine: 2 MiB on base pages of 64 KiB.
const MIN_HUGE_PAGE_ORDER: u32 = 5;

/// Words of failures: a line that has one is not only information.
const FAILURE: &str = r"(?i-u)\b(?:fail(?:ed|ure|s)?|error|cannot|can't|could ?n[o']t|unable|denied|refused|timed out|unknown)\b|status=[1-9]";

struct Patterns {
    needles: Needles,
    each: Vec<Regex>,
    failure: Regex,
}

/// `None` only if a pattern does not compile, which a test excludes.
static PATTERNS: LazyLock<Option<Patterns>> = LazyLock::new(|| {
    let patterns: Vec<String> = wordings::all().map(|wording| ascii(wording.pattern)).collect();
    let each = patterns.iter().map(|pattern| Regex::new(pattern)).collect::<Result<_, _>>().ok()?;
    let needles = Needles::new(patterns.iter().map(String::as_str))?;
    Some(Patterns { needles, each, failure: Regex::new(FAILURE).ok()? })
});

/// The pattern with classes of ASCII: with those of Unicode, the fast engine of `regex` gives up at the first
/// character of a line that is not ASCII.
fn ascii(pattern: &str) -> String {
    [r"\b", r"\d", r"\w"]
        .iter()
        .fold(pattern.to_owned(), |text, class| text.replace(class, &format!("(?-u:{class})")))
}

/// Parses one line of a log; `None` if it is not about huge pages.
pub fn read(line: &str) -> Option<Message> {
    let line = plain_quotes(line);
    let line = languages::in_english(&line);
    known(&line).or_else(|| {
        let word = vocabulary::find(&line)?;
        Some(Message::unknown(word))
    })
}

/// The line with `"` and `'` for quotes as JSON, CSV and languages write them.
fn plain_quotes(line: &str) -> Cow<'_, str> {
    // A search for one byte is the quickest.
    let has_escape = line.contains('\\') && ["\\\"", "\\'"].iter().any(|quote| line.contains(quote));
    let has_doubled = line.contains('"') && line.contains("\"\"");
    if !has_escape && !has_doubled {
        return Cow::Borrowed(line);
    }
    let mut plain = String::with_capacity(line.len());
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        let next = letters.peek();
        let is_escape = letter == '\\' && matches!(next, Some('"' | '\'' | '\\'));
        let is_doubled = letter == '"' && next == Some(&'"');
        if !is_escape && !is_doubled {
            plain.push(letter);
        }
    }
    Cow::Owned(plain)
}

fn known(line: &str) -> Option<Message> {
    let patterns = PATTERNS.as_ref()?;
    let (first, wording, captures) = patterns.needles.candidates(line).into_iter().find_map(|at| {
        let captures = patterns.each.get(at)?.captures(line)?;
        let wording = wordings::all().nth(at)?;
        let is_said = wording.family != Family::Information || !patterns.failure.is_match(line);
        is_said.then_some((at, wording, captures))
    })?;
    let message = Message {
        family: wording.family,
        harm: wording.harm,
        speaker: wording.speaker,
        errno: number(&captures, "errno"),
        bytes: size(&captures, "bytes").or_else(|| lost(&captures)),
        page_size: size(&captures, "page").and_then(|bytes| PageSize::new(bytes).ok()),
        order: number(&captures, "order"),
        pages: number(&captures, "pages"),
        got: number(&captures, "got"),
        name: ["name", "also", "twice"].iter().find_map(|group| text(&captures, group)).map(str::to_owned),
        wording: Some(first),
    };
    (message.order.is_none_or(|order| order >= MIN_HUGE_PAGE_ORDER)).then_some(message)
}

fn text<'a>(captures: &Captures<'a>, group: &str) -> Option<&'a str> {
    captures.name(group).map(|found| found.as_str())
}

fn number<T: std::str::FromStr>(captures: &Captures<'_>, group: &str) -> Option<T> {
    text(captures, group)?.parse().ok()
}

/// `2097152`, `2M`, `2048K`, `2.00 MiB`, `2Mi`.
fn size(captures: &Captures<'_>, group: &str) -> Option<Bytes> {
    let text = text(captures, group)?;
    // The kernel prints two decimals, which are zero for all page sizes.
    let text = text.replacen(".00", "", 1);
    // Kubernetes omits the B.
    (if text.ends_with('i') { text + "B" } else { text }).parse().ok()
}

/// Difference between the requested and the remaining heap.
fn lost(captures: &Captures<'_>) -> Option<Bytes> {
    let mib = |group| number::<u64>(captures, group).map(|mib| mib.saturating_mul(1 << 20));
    Some(Bytes(mib("asked")?).saturating_sub(Bytes(mib("left")?)))
}
