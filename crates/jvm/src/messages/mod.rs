//! Messages of JVMs and the kernel about large pages.
//!
//! Sources of the wordings: provoked messages of JDK 11, 17, 21 and 25; users' reports for JDK 8;
//! `mm/hugetlb.c`, `mm/page_alloc.c` and `mm/show_mem.c` of Linux 6.

mod evidence;
mod explain;
mod scan;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use hugewise_linux::units::{Bytes, PageSize};
use regex::{Captures, Regex, RegexSet};
use schemars::JsonSchema;
use serde::Serialize;

pub use explain::{Explanation, explain, needs_scan};
pub use scan::{FoundMessage, ScannedLog, scan};

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
    /// State of a pool when the kernel ran out of memory.
    OutOfMemory,
    /// SysV shared memory was allowed by RLIMIT_MEMLOCK, which is deprecated.
    MemlockRule,
    /// No node of a cluster has the huge pages that a pod requests.
    NoNode,
    /// The huge pages of a pod or container were requested in an invalid way.
    ContainerLimit,
}

/// Effect on the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Harm {
    /// It did not start, was killed, or has less memory than configured.
    Stopped,
    /// It runs, but not on the huge pages that it requested.
    NotHuge,
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
}

/// Family, harm, speaker, and a pattern with groups named after the fields of [`Message`].
type Wording = (Family, Harm, &'static str, &'static str);

#[rustfmt::skip]
const WORDINGS: [Wording; 35] = {
    use Family::*;
    use Harm::{NotHuge, Stopped};
    const NONE: Harm = Harm::None;
    [
    (PoolEmpty, NotHuge, "JDK 17 and later", r"UseLargePages disabled, no large pages configured and available"),
    (PoolShort, NotHuge, "JDK 8 and 11", r"Failed to reserve large pages memory req_addr: \w+ bytes: (?<bytes>\d+) \(err(?:or|no) = (?<errno>\d+)\)"),
    (PoolShort, NotHuge, "JDK 17", r"Failed to reserve and commit memory\. req_addr: \w+ bytes: (?<bytes>\d+) page size: (?<page>\d+) \(err(?:or|no) = (?<errno>\d+)\)"),
    (PoolShort, NotHuge, "JDK 21 and later", r"Failed to reserve and commit memory using large pages\. req_addr: \w+ bytes: (?<bytes>\d+)"),
    (PoolShort, NONE, "JDK 21 and later", r"Failed to reserve and commit memory with given page size\. req_addr: \w+ size: (?<bytes>\d+[BKMG]?), page size: (?<page>\d+[BKMG]?), \(err(?:or|no) = (?<errno>\d+)\)"),
    (SharedMemory, NotHuge, "JDK 8 to 21", r"Failed to (?:reserve|attach|create) shared memory\b.*\(err(?:or|no) = (?<errno>\d+)\)"),
    (KindNotConfigured, NotHuge, "JDK 8 to 21", r"(?<name>HugeTLBFS) is not (?:configured or not )?supported by the operating system"),
    (KindNotConfigured, NotHuge, "JDK 17 and 21", r"Large pages using (?<name>UseSHM|UseHugeTLBFS) are not configured on this system"),
    (ThpOff, NotHuge, "JDK 17 and later", r"UseTransparentHugePages disabled[,;] transparent huge pages are not supported by the operating system"),
    (ThpOff, NotHuge, "JDK 8", r"TransparentHugePages is not supported by the operating system"),
    (ThpOff, NotHuge, "JDK 25", r"Anonymous transparent huge pages are not enabled in the OS"),
    (ShmemThpOff, NotHuge, "JDK 25", r"Shared memory transparent huge pages are not enabled in the OS"),
    (PageSizeIgnored, NONE, "JDK 8 and 11", r"Setting LargePageSizeInBytes has no effect on this OS\. Large page size is (?<page>\d+[BKMG])"),
    (PageSizeRefused, Stopped, "ZGC of JDK 17", r"Incompatible large page size configured (?<bytes>\d+) \(expected (?<page>\d+)\)"),
    (PageSizeRefused, Stopped, "ZGC of JDK 21 and later", r"Incompatible -XX:LargePageSizeInBytes, only (?<page>\d+[BKMG]) large pages are supported by ZGC"),
    (PageSizeRefused, Stopped, "JDK 25", r"LargePageSizeInBytes \( (?<bytes>\d+) \) must be a power of 2"),
    (HeapCommit, Stopped, "ZGC", r"Failed to commit memory \(Not enough space\)"),
    (HeapLowered, Stopped, "ZGC", r"Forced to lower max Java heap size from (?<asked>\d+)M\(\d+%\) to (?<left>\d+)M"),
    (HeapCommit, Stopped, "ZGC", r"Failed to allocate initial Java heap \((?<bytes>\d+M)\)"),
    (CommitFailed, NotHuge, "a JVM", r"os::commit_memory\(\w+, (?<bytes>\d+), (?<page>\d+), \d\) failed; error='[^']*' \(err(?:or|no)=(?<errno>\d+)\)"),
    (UnknownFlag, Stopped, "a JVM", r"Unrecognized VM option '[+-]?(?<name>UseSHM|UseHugeTLBFS|UseLargePages\w*|LargePageSizeInBytes|UseTransparentHugePages|UseMadvPopulateWrite|PreTouchParallelChunkSize|AlwaysPreTouchStacks|THPStackMitigation)\b"),
    (LargePagesOff, NotHuge, "ZGC", r"Large Page Support: Disabled \(OS enforced\)"),
    (LargePagesOff, NONE, "a JVM", r"Large Page Support: Disabled|Large page support disabled\."),
    (LargePagesOn, NONE, "a JVM", r"Large Page Support: Enabled \((?<name>Explicit|Transparent)\)"),
    (BootPool, NotHuge, "the kernel", r"HugeTLB: allocating (?<pages>\d+) of page size (?<page>\d+(?:\.\d+)? [KMG]i?B) failed.*?Only allocated (?<got>\d+) hugepages"),
    (BootPool, NotHuge, "the kernel", r"hugetlb: .*?only allocated (?<got>\d+) hugepages"),
    (BootParameter, NotHuge, "the kernel", r"HugeTLB: unsupported (?<name>(?:default_)?hugepagesz=\S+)"),
    (BootParameter, NotHuge, "the kernel", r"HugeTLB: (?:Invalid hugepages parameter (?<name>\S+)|(?<also>hugepages=\S+) does not follow a valid|(?<twice>(?:default_)?hugepagesz=\S+) specified twice)"),
    (NoBlock, NONE, "the kernel", r"page allocation failure: order:(?<order>\d+)"),
    (BusError, Stopped, "a JVM", r"SIGBUS \(0x7\)"),
    (BusError, Stopped, "a shell", r"(?:^|[\s:])[Bb]us error\b"),
    (OutOfMemory, NONE, "the kernel", r"hugepages_total=(?<pages>[1-9]\d*) hugepages_free=(?<got>\d+) hugepages_surp=\d+ hugepages_size=(?<page>\d+kB)"),
    (MemlockRule, NONE, "the kernel", r"Using mlock ulimits for SHM_HUGETLB is (?:obsolete|deprecated)"),
    (NoNode, Stopped, "Kubernetes", r"Insufficient (?<name>hugepages-(?<page>\d+[KMG]i))\b"),
    (ContainerLimit, Stopped, "Kubernetes or its runtime", r"HugePages require cpu or memory|(?i:fail|error|unable).*(?<name>hugetlb\.\d+[KMG]B\.(?:rsvd\.)?(?:max|limit_in_bytes))"),
    ]
};

/// Smallest order of a huge page on any machine: 2 MiB on base pages of 64 KiB.
const MIN_HUGE_PAGE_ORDER: u32 = 5;

struct Patterns {
    any: RegexSet,
    each: Vec<Regex>,
}

/// `None` only if a pattern does not compile, which a test excludes.
static PATTERNS: LazyLock<Option<Patterns>> = LazyLock::new(|| {
    let patterns = WORDINGS.iter().map(|(.., pattern)| ascii(pattern));
    let each = patterns.clone().map(|pattern| Regex::new(&pattern)).collect::<Result<_, _>>().ok()?;
    Some(Patterns { any: RegexSet::new(patterns).ok()?, each })
});

/// The pattern with classes of ASCII: with those of Unicode, the fast engine of `regex` gives up at the first
/// character of a line that is not ASCII.
fn ascii(pattern: &str) -> String {
    [r"\b", r"\d", r"\w"]
        .iter()
        .fold(pattern.to_owned(), |text, class| text.replace(class, &format!("(?-u:{class})")))
}

/// Parses one line of a log; `None` if it is not about large pages.
pub fn read(line: &str) -> Option<Message> {
    let patterns = PATTERNS.as_ref()?;
    let first = patterns.any.matches(line).iter().next()?;
    let (family, harm, speaker, _) = WORDINGS.get(first)?;
    let captures = patterns.each.get(first)?.captures(line)?;
    let message = Message {
        family: *family,
        harm: *harm,
        speaker,
        errno: number(&captures, "errno"),
        bytes: size(&captures, "bytes").or_else(|| lost(&captures)),
        page_size: size(&captures, "page").and_then(|bytes| PageSize::new(bytes).ok()),
        order: number(&captures, "order"),
        pages: number(&captures, "pages"),
        got: number(&captures, "got"),
        name: ["name", "also", "twice"].iter().find_map(|group| text(&captures, group)).map(str::to_owned),
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
